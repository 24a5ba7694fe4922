#include "muster/backed_store.h"

#include <utility>

#include "base/text.h"
#include "store/store_backend.h"
#include "store/throw.h"

namespace muster {

namespace {

std::vector<std::string_view> Views(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

}  // namespace

std::string NamesOf(std::span<const std::string_view> keys) {
  std::string names = "keys: ";
  for (const std::string_view& key : keys)
    names += Concat(&key == &keys.front() ? "" : ", ", Printable(key));
  return names;
}

BackedStore::BackedStore(std::unique_ptr<StoreBackend> backend) : backend_(std::move(backend)) {}

BackedStore::~BackedStore() = default;

Answer BackedStore::Run(const Request& request) const { return Run(request, Timeout()); }

Answer BackedStore::Run(const Request& request, milliseconds timeout) const {
  return ValueOrThrow(backend_->Execute(request, timeout));
}

void BackedStore::Set(std::string_view key, std::string_view value) {
  Run({.op = Op::kSet, .key = key, .value = value});
}

std::string BackedStore::Get(std::string_view key) {
  return Run({.op = Op::kGet, .key = key}).value;
}

int64_t BackedStore::Add(std::string_view key, int64_t delta) {
  return Run({.op = Op::kAdd, .key = key, .number = delta}).number;
}

std::string BackedStore::CompareSet(std::string_view key, std::string_view expected,
                                    std::string_view desired) {
  return Run({.op = Op::kCompareSet, .key = key, .expected = expected, .value = desired}).value;
}

bool BackedStore::Check(const std::vector<std::string>& keys) {
  return Run({.op = Op::kCheck, .keys = Views(keys)}).number > 0;
}

void BackedStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  Run({.op = Op::kWait, .keys = Views(keys)}, timeout);
}

bool BackedStore::DeleteKey(std::string_view key) {
  return Run({.op = Op::kDeleteKey, .key = key}).number > 0;
}

int64_t BackedStore::GetNumKeys() { return Run({.op = Op::kGetNumKeys}).number; }

std::vector<std::string> BackedStore::ListKeys() { return Run({.op = Op::kListKeys}).values; }

void BackedStore::Append(std::string_view key, std::string_view suffix) {
  Run({.op = Op::kAppend, .key = key, .value = suffix});
}

std::vector<std::string> BackedStore::MultiGet(const std::vector<std::string>& keys) {
  if (!backend_->Supports(Op::kMultiGet)) return Store::MultiGet(keys);
  return Run({.op = Op::kMultiGet, .keys = Views(keys)}).values;
}

void BackedStore::MultiSet(const std::vector<std::string>& keys,
                           const std::vector<std::string>& values) {
  if (!backend_->Supports(Op::kMultiSet)) return Store::MultiSet(keys, values);
  RequireValueForEach(keys, values);
  Run({.op = Op::kMultiSet, .keys = Views(keys), .values = Views(values)});
}

bool BackedStore::HasExtendedApi() const { return backend_->Supports(Op::kMultiGet); }

void BackedStore::QueuePush(std::string_view key, std::string_view value) {
  Run({.op = Op::kQueuePush, .key = key, .value = value});
}

std::string BackedStore::QueuePop(std::string_view key, PopMode mode) {
  const Request pop{.op = Op::kQueuePop, .key = key, .number = mode == PopMode::kWait ? 1 : 0};
  Result<Answer> popped = backend_->Execute(pop, Timeout());
  if (!popped && popped.error().code == Code::kNotFound) {
    throw QueueEmptyError(popped.error().message);
  }
  return ValueOrThrow(std::move(popped)).value;
}

int64_t BackedStore::QueueLen(std::string_view key) {
  return Run({.op = Op::kQueueLen, .key = key}).number;
}

void BackedStore::Barrier(std::string_view key, int64_t world_size, milliseconds timeout) {
  if (!backend_->Supports(Op::kBarrier)) return Store::Barrier(key, world_size, timeout);
  Run({.op = Op::kBarrier, .key = key, .number = world_size}, timeout);
}

}  // namespace muster
