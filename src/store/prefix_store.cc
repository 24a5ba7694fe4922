#include "muster/prefix_store.h"

#include <utility>

#include "base/text.h"
#include "store/throw.h"

namespace muster {

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix)), store_(std::move(store)) {
  if (!store_) throw Invalid("PrefixStore: store is null");
}

std::string PrefixStore::Prefixed(std::string_view key) const { return Concat(prefix_, '/', key); }

std::vector<std::string> PrefixStore::Prefixed(const std::vector<std::string>& keys) const {
  std::vector<std::string> prefixed;
  prefixed.reserve(keys.size());
  for (const std::string& key : keys) prefixed.push_back(Prefixed(key));
  return prefixed;
}

void PrefixStore::Set(std::string_view key, std::string_view value) {
  store_->Set(Prefixed(key), value);
}
std::string PrefixStore::Get(std::string_view key) { return store_->Get(Prefixed(key)); }
int64_t PrefixStore::Add(std::string_view key, int64_t delta) {
  return store_->Add(Prefixed(key), delta);
}
std::string PrefixStore::CompareSet(std::string_view key, std::string_view expected,
                                    std::string_view desired) {
  return store_->CompareSet(Prefixed(key), expected, desired);
}
bool PrefixStore::Check(const std::vector<std::string>& keys) {
  return store_->Check(Prefixed(keys));
}
void PrefixStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  store_->Wait(Prefixed(keys), timeout);
}
bool PrefixStore::DeleteKey(std::string_view key) { return store_->DeleteKey(Prefixed(key)); }
int64_t PrefixStore::GetNumKeys() { return store_->GetNumKeys(); }

std::vector<std::string> PrefixStore::ListKeys() {
  const std::string start = Prefixed("");
  std::vector<std::string> own;
  for (const std::string& key : store_->ListKeys()) {
    if (key.starts_with(start)) own.push_back(key.substr(start.size()));
  }
  return own;
}

void PrefixStore::Append(std::string_view key, std::string_view suffix) {
  store_->Append(Prefixed(key), suffix);
}
std::vector<std::string> PrefixStore::MultiGet(const std::vector<std::string>& keys) {
  return store_->MultiGet(Prefixed(keys));
}
void PrefixStore::MultiSet(const std::vector<std::string>& keys,
                           const std::vector<std::string>& values) {
  store_->MultiSet(Prefixed(keys), values);
}
bool PrefixStore::HasExtendedApi() const { return store_->HasExtendedApi(); }
void PrefixStore::QueuePush(std::string_view key, std::string_view value) {
  store_->QueuePush(Prefixed(key), value);
}
std::string PrefixStore::QueuePop(std::string_view key, PopMode mode) {
  return store_->QueuePop(Prefixed(key), mode);
}
int64_t PrefixStore::QueueLen(std::string_view key) { return store_->QueueLen(Prefixed(key)); }

std::shared_ptr<Store> PrefixStore::Clone() {
  return std::make_shared<PrefixStore>(prefix_, store_->Clone());
}
milliseconds PrefixStore::Timeout() const { return store_->Timeout(); }
void PrefixStore::SetTimeout(milliseconds timeout) { store_->SetTimeout(timeout); }

std::shared_ptr<Store> PrefixStore::underlying_non_prefix() const {
  std::shared_ptr<Store> store = store_;
  while (const auto* inner = dynamic_cast<const PrefixStore*>(store.get())) store = inner->store_;
  return store;
}

}  // namespace muster
