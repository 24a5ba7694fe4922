// Helpers built from a store's operations: barriers that report missing members, exchanges of one
// value per rank, and a store that starts even if others compete for ports. The keys are those of
// PyTorch's agents, so that both can take part.
#pragma once

#include <functional>
#include <optional>

#include "muster/tcp_store.h"

namespace muster {

struct BarrierOptions {
  milliseconds timeout{300'000};
  /// If all members set it, a failed barrier names the missing ranks.
  std::optional<int64_t> rank{};
  std::function<std::string(int64_t rank)> name_of_rank{};  ///< For that message. Needs `rank`.
  /// How long rank 0 may take to find the missing ranks; the others wait for it as long as for the
  /// barrier.
  milliseconds trace_timeout{10'000};
};

/// Returns when `world_size` members have called it with this prefix; a prefix can be used only
/// once. Otherwise StoreError (StoreTimeoutError after the timeout): rank 0's names the missing
/// ranks, the others refer to rank 0; without ranks it says how many members arrived.
/// std::invalid_argument: no members, a rank that is not one of them, names without a rank.
void Barrier(Store& store, int64_t world_size, std::string_view prefix,
             const BarrierOptions& options = {});

/// The values that `world_size` members set under prefix + rank. Rank 0 returns last: it may serve
/// the store. StoreError names the ranks whose values are missing.
std::vector<std::string> GetAll(Store& store, int64_t rank, std::string_view prefix,
                                int64_t world_size);

/// Every member gives a value and gets those of all, by rank.
std::vector<std::string> Synchronize(Store& store, std::string_view data, int64_t rank,
                                     int64_t world_size, std::string_view prefix,
                                     milliseconds timeout = milliseconds{300'000});

struct CreateTcpStoreOptions {
  bool is_server = false;
  std::string host = "localhost";
  std::optional<uint16_t> port{};  ///< nullopt: a free one, for a world of one only.
  int world_size = 1;
  milliseconds timeout{600'000};
  bool wait_for_workers = true;  ///< Return only when all members have joined.
  int retries = 3;               ///< Attempts to find a free port, if none is given.
};

/// std::invalid_argument: no members; no port, but a world of several, or no server here that could
/// choose one. Otherwise what TcpStore throws; StoreTimeoutError says where, and how many of the
/// world had joined. The variable USE_LIBUV, by which PyTorch's users choose one of two servers,
/// has no effect.
std::shared_ptr<TcpStore> CreateTcpStore(const CreateTcpStoreOptions& options);

}  // namespace muster
