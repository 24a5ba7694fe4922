// The contract of all stores, on a real etcd: one for the whole program, with a prefix for each
// test.
#include <string>

#include "contracts/store_contract.h"
#include "etcd/store/shared_etcd.h"
#include "muster/etcd_store.h"

namespace muster::test {

class NoQueuesContract;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NoQueuesContract);  // this one has queues

namespace {

StoreKind EtcdKind() {
  return {.name = "Etcd",
          .facts = {.empty_counts_as_zero = true,
                    .bad_add_ends_connection = false,
                    .queue_satisfies_get = false,
                    .counts_barrier_at_key = false,
                    // A thread, a connection and a file for each, and one etcd for all.
                    .crowd = 32,
                    .get_timeout = "wait timeout after {ms}ms, keys: {key}",
                    .wait_timeout = "wait timeout after {ms}ms, keys: {key}"},
          .make = []() -> OpenStore {
            EtcdOptions options = EtcdOptions::Parse(SharedEtcd().endpoint(0).ToString());
            options.prefix = FreshPrefix();
            return [options] { return OpenEtcdStore(options); };
          },
          .need = EtcdNeed()};
}

}  // namespace

std::vector<StoreKind> AllStores() { return {EtcdKind(), Prefixed(EtcdKind())}; }

}  // namespace muster::test
