#include "contracts/store_contract.h"

#include <atomic>
#include <utility>

#include "muster/prefix_store.h"

namespace muster::test {

namespace {

std::vector<StoreKind> StoresThat(const std::function<bool(const StoreFacts&)>& fit) {
  std::vector<StoreKind> chosen = AllStores();
  std::erase_if(chosen, [&fit](const StoreKind& kind) { return !fit(kind.facts); });
  return chosen;
}

}  // namespace

StoreKind Prefixed(StoreKind inner) {
  inner.name = "Prefix" + inner.name;
  inner.facts.counts_barrier_at_key = false;
  for (std::string* text : {&inner.facts.get_timeout, &inner.facts.wait_timeout}) {
    if (const size_t at = text->find("{key}"); at != std::string::npos) text->insert(at, "part/");
  }
  inner.make = [make = std::move(inner.make)]() -> OpenStore {
    return [open = make()] { return std::make_shared<PrefixStore>("part", open()); };
  };
  return inner;
}

std::vector<StoreKind> StoresWithQueues() {
  return StoresThat([](const StoreFacts& facts) { return facts.has_queues; });
}

std::vector<StoreKind> StoresWithoutQueues() {
  return StoresThat([](const StoreFacts& facts) { return !facts.has_queues; });
}

std::string KindName(const ::testing::TestParamInfo<StoreKind>& info) { return info.param.name; }

std::ostream& operator<<(std::ostream& out, const StoreKind& kind) { return out << kind.name; }

void StoreContract::SetUp() {
  MUSTER_REQUIRE(GetParam().need);
  open_ = GetParam().make();
}

std::shared_ptr<Store> StoreContract::Open() {
  std::shared_ptr<Store> store = open_();
  store->SetTimeout(kPatience);
  return store;
}

std::string StoreContract::Filled(std::string pattern, milliseconds timeout, std::string_view key) {
  const auto replace = [&pattern](std::string_view what, const std::string& by) {
    const size_t at = pattern.find(what);
    if (at != std::string::npos) pattern.replace(at, what.size(), by);
  };
  replace("{ms}", std::to_string(timeout.count()));
  replace("{key}", std::string(key));
  return pattern;
}

std::string StoreContract::FreshQueue() {
  static std::atomic<int> made{0};
  return "queue-" + std::to_string(++made);
}

}  // namespace muster::test
