#include "contracts/store_contract.h"

#include <atomic>
#include <utility>

#include "muster/file_store.h"
#include "muster/hash_store.h"
#include "muster/prefix_store.h"
#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "support/temp_dir.h"
#include "support/torch_server.h"

namespace muster::test {

namespace {

std::shared_ptr<Store> Connect(uint16_t port) {
  return std::make_shared<TcpStore>("127.0.0.1",
                                    TcpStoreOptions{.port = port, .timeout = kPatience});
}

StoreKind Hash() {
  return {.name = "Hash",
          .facts = {.empty_counts_as_zero = true,
                    .bad_add_ends_connection = false,
                    .queue_satisfies_get = false,
                    .counts_barrier_at_key = false,
                    .get_timeout = "Wait timeout",
                    .wait_timeout = "Wait timeout"},
          .make = [] { return [store = HashStore::Create()] { return store->Clone(); }; }};
}

StoreKind File() {
  return {.name = "File",
          .facts = {.has_queues = false,
                    .has_extended_api = false,
                    .delete_tells_the_truth = false,
                    .empty_counts_as_zero = true,
                    .bad_add_ends_connection = false,
                    .counts_barrier_at_key = false,
                    .internal_keys = 1,
                    // Every handle polls the file.
                    .crowd = 12,
                    .get_timeout = "Timeout waiting for key: {key} after {ms} ms",
                    .wait_timeout = "Wait timeout"},
          .make = [] {
            return [dir = std::make_shared<TempDir>()]() -> std::shared_ptr<Store> {
              return std::make_shared<FileStore>(dir->File("store"));
            };
          }};
}

StoreKind Tcp(int threads) {
  return {.name = "Tcp" + std::to_string(threads), .facts = {}, .make = [threads]() -> OpenStore {
            auto server = std::make_shared<StoreServer>(
                StoreServerOptions{.host = "127.0.0.1", .threads = threads});
            return [server] { return Connect(server->port()); };
          }};
}

StoreKind Torch() {
  return {.name = "Torch",
          .facts = {.failed_compare_set_releases = true},
          .make = []() -> OpenStore {
            std::string why;
            const uint16_t port = TorchServer::Get(&why)->port();
            // One server serves all tests of the process; each begins by cleaning up.
            const std::shared_ptr<Store> store = Connect(port);
            for (const std::string& key : store->ListKeys()) store->DeleteKey(key);
            return [port] { return Connect(port); };
          },
          .missing =
              [] {
                std::string why;
                TorchServer::Get(&why);
                return why;
              }};
}

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

std::vector<StoreKind> StoresThat(const std::function<bool(const StoreFacts&)>& fit) {
  std::vector<StoreKind> chosen = AllStores();
  std::erase_if(chosen, [&fit](const StoreKind& kind) { return !fit(kind.facts); });
  return chosen;
}

}  // namespace

std::vector<StoreKind> AllStores() {
  return {Hash(),  File(),           Tcp(1),           Tcp(2),
          Torch(), Prefixed(Hash()), Prefixed(File()), Prefixed(Tcp(1))};
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
  if (const auto& missing = GetParam().missing) {
    if (const std::string why = missing(); !why.empty()) {
      if (TorchServer::IsRequired()) FAIL() << "PyTorch is required, but " << why;
      GTEST_SKIP() << "no PyTorch: " << why;
    }
  }
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
