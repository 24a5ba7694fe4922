#include "muster/store_utilities.h"

#include <algorithm>

#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "store/free_socket.h"
#include "store/scoped_store_timeout.h"
#include "store/throw.h"

namespace muster {

namespace {

// More names than this are of no use in a message.
constexpr size_t kMissingShownMax = 16;

// Only the existence of the key matters.
constexpr std::string_view kMarker = "<muster>";

using Names = std::vector<std::string>;

std::string Limit(milliseconds timeout) {
  return timeout.count() > 0 ? Concat(timeout.count(), " ms") : "no limit of time";
}

std::string Bracketed(const Names& names, bool complete) {
  std::string list;
  for (const std::string& name : names) list += Concat(list.empty() ? "" : ", ", name);
  return Concat('[', list, complete ? "]" : ", ...]");
}

/// Throws `problem` and its cause as a StoreTimeoutError, if the cause is one, or as a StoreError.
[[noreturn]] void ThrowAs(const StoreError& error, std::string_view problem) {
  const std::string text = Concat(problem, "; ", Printable(error.what(), 512));
  if (dynamic_cast<const StoreTimeoutError*>(&error) != nullptr) throw StoreTimeoutError(text);
  throw StoreError(text);
}

void CheckMember(std::string_view what, std::optional<int64_t> rank, int64_t world_size) {
  if (world_size < 1) {
    throw Invalid(what, ": a world of ", world_size, " members, allowed: 1 or more");
  }
  if (rank && (*rank < 0 || *rank >= world_size)) {
    throw Invalid(what, ": rank ", *rank, " in a world of ", world_size, ", allowed: 0 to ",
                  world_size - 1);
  }
}

std::string CounterKey(std::string_view prefix) { return Concat(prefix, "/num_members"); }
std::string GateKey(std::string_view prefix) { return Concat(prefix, "/last_member"); }
std::string TraceKey(std::string_view prefix, int64_t rank) {
  return Concat(prefix, rank, "/TRACE");
}

/// Counts this member, without waiting; the last member opens the gate. Returns how many have
/// arrived.
int64_t Arrive(Store& store, int64_t world_size, std::string_view prefix) {
  const int64_t arrived = store.Add(CounterKey(prefix), 1);
  if (arrived == world_size) store.Set(GateKey(prefix), kMarker);
  return arrived;
}

/// How many have arrived by now; `known` if the store fails.
int64_t ArrivedBy(Store& store, std::string_view prefix, int64_t known) {
  try {
    return store.Add(CounterKey(prefix), 0);
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception&) {
    return known;
  }
}

// --- Missing members of a barrier --------------------------------------------------------------

std::string NameOf(int64_t rank, const BarrierOptions& options) {
  return options.name_of_rank ? options.name_of_rank(rank) : Concat(rank);
}

/// Never "no limit": missing members may never arrive.
milliseconds TraceLimit(const BarrierOptions& options) {
  return std::clamp<milliseconds>(options.trace_timeout, milliseconds(1), std::chrono::hours(24));
}

/// On rank 0: members that timed out, too, have left a trace. Members without one are missing.
std::string FindMissing(Store& store, int64_t world_size, std::string_view prefix,
                        const BarrierOptions& options) {
  PosixClock clock;
  const Instant deadline = clock.Now() + TraceLimit(options);
  Names missing;
  int64_t rank = 1;
  for (; rank < world_size && missing.size() < kMissingShownMax; ++rank) {
    // All members time out at about the same time: after the wait for the first missing member, the
    // others have had as much time.
    const auto left = std::chrono::ceil<milliseconds>(deadline - clock.Now());
    try {
      store.Wait({TraceKey(prefix, rank)},
                 missing.empty() ? std::max(left, milliseconds(1)) : milliseconds(1));
    } catch (const StoreError&) {
      missing.push_back(NameOf(rank, options));
    }
  }
  store.Set(Concat(prefix, "/TRACING_GATE"), kMarker);
  if (missing.empty()) return "all of them answer by now: some came too late, allow more time";
  return Concat(Bracketed(missing, rank == world_size), " did not come");
}

/// On the other ranks: waits until rank 0 has finished, and refers to its message.
std::string AwaitFindings(Store& store, std::string_view prefix, const BarrierOptions& options) {
  const std::string rank_0 =
      options.name_of_rank ? Concat("rank 0 (", options.name_of_rank(0), ")") : "rank 0";
  try {
    // With a limit: rank 0 itself may be missing.
    store.Wait({Concat(prefix, "/TRACING_GATE")},
               options.timeout.count() > 0 ? options.timeout : 2 * TraceLimit(options));
    return Concat("[ask ", rank_0, "] who did not come");
  } catch (const StoreError&) {
    return Concat(rank_0, " did not come, or could not find the other missing ranks");
  }
}

[[noreturn]] void ThrowBarrierError(Store& store, int64_t world_size, std::string_view prefix,
                                    int64_t arrived, const BarrierOptions& options,
                                    const StoreError& error) {
  const std::string barrier = Concat("barrier '", Printable(prefix), "' of ", world_size,
                                     " members failed (", Limit(options.timeout), "): ");
  if (!options.rank) {
    arrived = ArrivedBy(store, prefix, arrived);
    ThrowAs(error, Concat(barrier, arrived, " came, ", std::max<int64_t>(0, world_size - arrived),
                          " did not"));
  }
  std::string finding;
  try {
    store.Set(TraceKey(prefix, *options.rank), kMarker);
    finding = *options.rank == 0 ? FindMissing(store, world_size, prefix, options)
                                 : AwaitFindings(store, prefix, options);
  } catch (const InterruptedError&) {
    throw;
  } catch (const DistError& lost) {
    // The store failed: the first error is still the one to report.
    finding = Concat("the missing ranks are unknown: ", lost.what());
  }
  ThrowAs(error, Concat("rank ", *options.rank, ": ", barrier, finding));
}

// --- Exchanges --------------------------------------------------------------------------------

Names KeysOf(std::string_view prefix, int64_t first, int64_t end) {
  Names keys;
  keys.reserve(static_cast<size_t>(end - first));
  for (int64_t rank = first; rank < end; ++rank) keys.push_back(Concat(prefix, rank));
  return keys;
}

// By bisection: finding one absent key among thousands takes few requests. This matters because all
// failing members do it at about the same time.
void FindAbsent(Store& store, std::string_view prefix, int64_t first, int64_t end, Names& absent) {
  if (absent.size() >= kMissingShownMax || store.Check(KeysOf(prefix, first, end))) return;
  if (end - first == 1) {
    absent.push_back(Concat(first));
    return;
  }
  const int64_t middle = first + (end - first) / 2;
  FindAbsent(store, prefix, first, middle, absent);
  FindAbsent(store, prefix, middle, end, absent);
}

[[noreturn]] void ThrowAbsent(Store& store, int64_t rank, std::string_view prefix,
                              int64_t world_size, const StoreError& error) {
  Names absent;
  try {
    FindAbsent(store, prefix, 0, world_size, absent);
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception&) {
    // The error is then thrown without names.
  }
  const std::string missing =
      absent.empty()
          ? std::string("some values came too late, or not at all")
          : Concat("ranks ", Bracketed(absent, absent.size() < kMissingShownMax), " gave no value");
  ThrowAs(error, Concat("rank ", rank, ": exchange '", Printable(prefix), "' of ", world_size,
                        " members failed (", Limit(store.Timeout()), "): ", missing));
}

}  // namespace

ScopedStoreTimeout::ScopedStoreTimeout(Store& store, milliseconds timeout)
    : store_(store), before_(store.Timeout()) {
  store_.SetTimeout(timeout);
}

ScopedStoreTimeout::~ScopedStoreTimeout() {
  try {
    store_.SetTimeout(before_);
  } catch (...) {
    // A user's store may throw; that must not end the process.
  }
}

void Barrier(Store& store, int64_t world_size, std::string_view prefix,
             const BarrierOptions& options) {
  CheckMember("Barrier", options.rank, world_size);
  if (options.name_of_rank && !options.rank) {
    throw Invalid("Barrier: name_of_rank is of no use without a rank; give both");
  }
  const ScopedStoreTimeout limit(store, options.timeout);
  const int64_t arrived = Arrive(store, world_size, prefix);
  try {
    store.Wait({GateKey(prefix)}, options.timeout);
  } catch (const StoreError& error) {
    ThrowBarrierError(store, world_size, prefix, arrived, options, error);
  }
}

std::vector<std::string> GetAll(Store& store, int64_t rank, std::string_view prefix,
                                int64_t world_size) {
  CheckMember("GetAll", rank, world_size);
  std::vector<std::string> values;
  try {
    values = store.MultiGet(KeysOf(prefix, 0, world_size));
  } catch (const StoreError& error) {
    ThrowAbsent(store, rank, prefix, world_size, error);
  }
  const std::string finished = Concat(prefix, "/finished");
  const int64_t arrived = Arrive(store, world_size, finished);
  if (rank != 0) return values;
  try {
    store.Wait({GateKey(finished)});
  } catch (const StoreError& error) {
    ThrowAs(error, Concat("rank 0: exchange '", Printable(prefix), "' of ", world_size,
                          " members: only ", ArrivedBy(store, finished, arrived), " have read it (",
                          Limit(store.Timeout()), ")"));
  }
  return values;
}

std::vector<std::string> Synchronize(Store& store, std::string_view data, int64_t rank,
                                     int64_t world_size, std::string_view prefix,
                                     milliseconds timeout) {
  CheckMember("Synchronize", rank, world_size);
  const ScopedStoreTimeout limit(store, timeout);
  store.Set(Concat(prefix, rank), data);
  return GetAll(store, rank, prefix, world_size);
}

std::shared_ptr<TcpStore> CreateTcpStore(const CreateTcpStoreOptions& options) {
  CheckMember("CreateTcpStore", std::nullopt, options.world_size);
  if (!options.port && options.world_size > 1) {
    throw Invalid("CreateTcpStore: no port for a world of ", options.world_size,
                  " members: the others could not know it; give one");
  }
  if (!options.port && !options.is_server) {
    throw Invalid(
        "CreateTcpStore: no port, and no server here that could choose one; give the server's");
  }
  TcpStoreOptions tcp{.port = options.port.value_or(0),
                      .world_size = options.world_size,
                      .is_server = options.is_server,
                      .timeout = options.timeout,
                      .wait_for_workers = options.wait_for_workers};
  if (!options.port) {
    // The server gets the socket itself: no other process can take the port in between, so that
    // only the search is repeated.
    ListeningSocket socket = FreeSocket(options.retries);
    tcp.port = socket.port();
    tcp.server.listen_fd = socket.Release();
  }
  try {
    auto store = std::make_shared<TcpStore>(options.host, tcp);
    if (options.wait_for_workers) {
      Barrier(*store, options.world_size, "_tcp_store/num_members", {.timeout = options.timeout});
    }
    return store;
  } catch (const StoreTimeoutError& error) {
    throw StoreTimeoutError(Concat("not all members came to the store at ", options.host, ", port ",
                                   tcp.port, ": ", error.what()));
  }
}

}  // namespace muster
