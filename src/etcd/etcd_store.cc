#include "muster/etcd_store.h"

#include <atomic>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "etcd/store_client.h"
#include "store/throw.h"

namespace muster {

struct EtcdStore::Impl {
  Impl(std::shared_ptr<EtcdCalls> calls, std::string_view its_prefix, int64_t its_lease)
      : prefix(its_prefix), lease(its_lease), client(std::move(calls), prefix, lease) {}

  const std::string prefix;
  const int64_t lease;
  EtcdStoreClient client;
  std::atomic<milliseconds> timeout = kDefaultStoreTimeout;
};

EtcdStore::EtcdStore(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                     milliseconds timeout, int64_t lease)
    : impl_(std::make_unique<Impl>(std::move(calls), prefix, lease)) {
  SetTimeout(timeout);
  OkOrThrow(impl_->client.Reach(timeout));
}

EtcdStore::~EtcdStore() = default;

void EtcdStore::Set(std::string_view key, std::string_view value) {
  OkOrThrow(impl_->client.Set(key, value, Timeout()));
}

std::string EtcdStore::Get(std::string_view key) {
  return ValueOrThrow(impl_->client.Get(key, Timeout()));
}

int64_t EtcdStore::Add(std::string_view key, int64_t delta) {
  return ValueOrThrow(impl_->client.Add(key, delta, Timeout()));
}

std::string EtcdStore::CompareSet(std::string_view key, std::string_view expected,
                                  std::string_view desired) {
  return ValueOrThrow(impl_->client.CompareSet(key, expected, desired, Timeout()));
}

bool EtcdStore::Check(const std::vector<std::string>& keys) {
  return ValueOrThrow(impl_->client.Check(keys, Timeout()));
}

void EtcdStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  OkOrThrow(impl_->client.Wait(keys, timeout));
}

bool EtcdStore::DeleteKey(std::string_view key) {
  return ValueOrThrow(impl_->client.Delete(key, Timeout()));
}

int64_t EtcdStore::GetNumKeys() { return ValueOrThrow(impl_->client.Count(Timeout())); }

std::vector<std::string> EtcdStore::ListKeys() {
  return ValueOrThrow(impl_->client.ListKeys(Timeout()));
}

void EtcdStore::Append(std::string_view key, std::string_view suffix) {
  OkOrThrow(impl_->client.Append(key, suffix, Timeout()));
}

std::vector<std::string> EtcdStore::MultiGet(const std::vector<std::string>& keys) {
  return ValueOrThrow(impl_->client.MultiGet(keys, Timeout()));
}

void EtcdStore::MultiSet(const std::vector<std::string>& keys,
                         const std::vector<std::string>& values) {
  if (keys.size() != values.size()) {
    throw std::invalid_argument(Concat("multiSet keys and values vectors must be of same size: ",
                                       keys.size(), " keys, ", values.size(), " values"));
  }
  OkOrThrow(impl_->client.MultiSet(keys, values, Timeout()));
}

void EtcdStore::QueuePush(std::string_view key, std::string_view value) {
  OkOrThrow(impl_->client.Push(key, value, Timeout()));
}

std::string EtcdStore::QueuePop(std::string_view key, PopMode mode) {
  if (mode == PopMode::kWait) return ValueOrThrow(impl_->client.Pop(key, Timeout()));
  std::optional<std::string> element = ValueOrThrow(impl_->client.TryPop(key, Timeout()));
  if (!element) throw QueueEmptyError(Concat("queue is empty: ", Printable(key)));
  return *std::move(element);
}

int64_t EtcdStore::QueueLen(std::string_view key) {
  return ValueOrThrow(impl_->client.QueueLength(key, Timeout()));
}

std::shared_ptr<Store> EtcdStore::Clone() {
  return std::make_shared<EtcdStore>(impl_->client.calls(), impl_->prefix, Timeout(), impl_->lease);
}

milliseconds EtcdStore::Timeout() const { return impl_->timeout.load(); }
void EtcdStore::SetTimeout(milliseconds timeout) { impl_->timeout.store(timeout); }

const std::string& EtcdStore::prefix() const { return impl_->prefix; }

}  // namespace muster
