// The stores that every machine has, and PyTorch's where it is installed.
#include "contracts/store_contract.h"
#include "muster/file_store.h"
#include "muster/hash_store.h"
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
            // One server serves all tests of the process; each test begins by removing all keys.
            const std::shared_ptr<Store> store = Connect(port);
            for (const std::string& key : store->ListKeys()) store->DeleteKey(key);
            return [port] { return Connect(port); };
          },
          .need = {.what = "PyTorch",
                   .missing =
                       [] {
                         std::string why;
                         TorchServer::Get(&why);
                         return why;
                       },
                   .is_required = &TorchServer::IsRequired}};
}

}  // namespace

std::vector<StoreKind> AllStores() {
  return {Hash(),  File(),           Tcp(1),           Tcp(2),
          Torch(), Prefixed(Hash()), Prefixed(File()), Prefixed(Tcp(1))};
}

}  // namespace muster::test
