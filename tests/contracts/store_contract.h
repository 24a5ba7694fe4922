// One contract for all stores. Each kind of store is a value: how to open it, and the facts in
// which it deliberately differs from the others. Tests check the facts, and never the kind.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "contracts/need.h"
#include "muster/store.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/eventually.h"

namespace muster::test {

/// Opens one more handle on the data of one test: a new connection, a new user of the file, or the
/// same object.
using OpenStore = std::function<std::shared_ptr<Store>()>;

struct StoreFacts {
  bool has_queues = true;
  bool has_extended_api = true;
  /// DeleteKey() returns false for an absent key.
  bool delete_tells_the_truth = true;
  /// Add() on an empty value counts from 0; otherwise it fails as on any other value that is not a
  /// number.
  bool empty_counts_as_zero = false;
  /// Add() on a value that is not a number ends the connection (NetworkError) instead of throwing
  /// std::invalid_argument.
  bool bad_add_ends_connection = true;
  /// A queue with elements counts as a present, empty value for Get(): WAIT checks queues, GET does
  /// not.
  bool queue_satisfies_get = true;
  /// Barrier() counts at the key itself, not at KEY/num_members.
  bool counts_barrier_at_key = true;
  /// The result of GetNumKeys() on an unused store.
  int64_t internal_keys = 0;
  /// How many handles may work at once before the store becomes slow.
  int crowd = 128;
  /// Texts of timeouts, as regular expressions; {ms} and {key} stand for the timeout and the key.
  std::string get_timeout = "wait timeout after {ms}ms, keys: /{key}";
  std::string wait_timeout = "wait timeout after {ms}ms, keys: /{key}";
  /// Defects of a foreign server: a CompareSet() that stores nothing releases waiters of the key.
  bool failed_compare_set_releases = false;
};

struct StoreKind {
  std::string name;
  StoreFacts facts;
  /// Empty data, and a function that opens it. Throws if that fails.
  std::function<OpenStore()> make;
  Need need{};
};

std::ostream& operator<<(std::ostream& out, const StoreKind& kind);

/// The stores of a test program. Each test file instantiates its suite with these. One other file
/// of the program defines them (store_kinds.cc: the stores that need nothing else).
std::vector<StoreKind> AllStores();
std::vector<StoreKind> StoresWithQueues();
std::vector<StoreKind> StoresWithoutQueues();

/// The same kind behind a PrefixStore.
StoreKind Prefixed(StoreKind inner);

/// Names the instances: "Stores/WaitContract.Item046_.../Tcp2".
std::string KindName(const ::testing::TestParamInfo<StoreKind>& info);

class StoreContract : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override;

  const StoreFacts& facts() const { return GetParam().facts; }

  /// A handle. By default, waiting on it ends in kPatience.
  std::shared_ptr<Store> Open();

  /// `pattern` with {ms} and {key} filled in.
  static std::string Filled(std::string pattern, milliseconds timeout, std::string_view key);

  /// A queue name that no other test has used. Queues cannot be listed, so a server that outlives
  /// the test keeps them.
  static std::string FreshQueue();

  /// A round trip: all clients can read what was written through `store`.
  static void Settle(Store& store) { store.GetNumKeys(); }

  /// Waits until `call` is blocked and the server, if there is one, knows it: requests of different
  /// handles may overtake each other on their way to different loops of a server.
  template <typename Call>
  bool UntilParked(Call& call) {
    if (witnesses_.empty()) {
      for (int i = 0; i < kLoopsMax; ++i) witnesses_.push_back(Open());
    }
    if (!call.UntilBlocked()) return false;
    for (const auto& witness : witnesses_) Settle(*witness);
    return true;
  }

 private:
  static constexpr int kLoopsMax = 2;

  OpenStore open_;
  std::vector<std::shared_ptr<Store>> witnesses_;  // consecutive connections: one on each loop
};

}  // namespace muster::test
