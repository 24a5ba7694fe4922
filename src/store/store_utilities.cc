#include "muster/store_utilities.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "muster/network.h"
#include "os/posix/posix_clock.h"
#include "store/scoped_store_timeout.h"
#include "store/socket_with_port.h"

namespace muster {

namespace {

// More names than this say no more than that it is very many.
constexpr size_t kMissingShownMax = 16;

// Only that a key exists matters, not what it holds.
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

/// Throws `text` as the class that `error` has: a timeout stays one.
[[noreturn]] void ThrowAs(const StoreError& error, const std::string& text) {
  if (dynamic_cast<const StoreTimeoutError*>(&error) != nullptr) throw StoreTimeoutError(text);
  throw StoreError(text);
}

void CheckMember(std::string_view what, std::optional<int64_t> rank, int64_t world_size) {
  if (world_size < 1) {
    throw std::invalid_argument(
        Concat(what, ": a world of ", world_size, " members, allowed: 1 or more"));
  }
  if (rank && (*rank < 0 || *rank >= world_size)) {
    throw std::invalid_argument(Concat(what, ": rank ", *rank, " in a world of ", world_size,
                                       ", allowed: 0 to ", world_size - 1));
  }
}

std::string CounterKey(std::string_view prefix) { return Concat(prefix, "/num_members"); }
std::string GateKey(std::string_view prefix) { return Concat(prefix, "/last_member"); }
std::string TraceKey(std::string_view prefix, int64_t rank) {
  return Concat(prefix, rank, "/TRACE");
}

/// Counts this member in, without waiting; the last one opens the gate. Returns how many there are.
int64_t Arrive(Store& store, int64_t world_size, std::string_view prefix) {
  const int64_t arrived = store.Add(CounterKey(prefix), 1);
  if (arrived == world_size) store.Set(GateKey(prefix), kMarker);
  return arrived;
}

/// How many have arrived by now; `known`, if the store does not tell any more.
int64_t ArrivedBy(Store& store, std::string_view prefix, int64_t known) {
  try {
    return store.Add(CounterKey(prefix), 0);
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception&) {
    return known;
  }
}

// --- Who is missing at a barrier --------------------------------------------------------------

std::string NameOf(int64_t rank, const BarrierOptions& options) {
  return options.name_of_rank ? options.name_of_rank(rank) : Concat(rank);
}

/// Never "no limit": it is for those who do not come that we wait.
milliseconds TraceLimit(const BarrierOptions& options) {
  return std::clamp<milliseconds>(options.trace_timeout, milliseconds(1), std::chrono::hours(24));
}

/// Rank 0's part: every member that gave up as well has left a trace. Those without are missing.
std::string FindMissing(Store& store, int64_t world_size, std::string_view prefix,
                        const BarrierOptions& options) {
  PosixClock clock;
  const Instant deadline = clock.Now() + TraceLimit(options);
  Names missing;
  int64_t rank = 1;
  for (; rank < world_size && missing.size() < kMissingShownMax; ++rank) {
    // The members gave up at about the same time as we did. When the first has been waited for in
    // vain, the others have had as long.
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

/// The others' part: they wait until rank 0 knows, and refer to it.
std::string AwaitFindings(Store& store, std::string_view prefix, const BarrierOptions& options) {
  const std::string rank_0 =
      options.name_of_rank ? Concat("rank 0 (", options.name_of_rank(0), ")") : "rank 0";
  try {
    // Not without limit: rank 0 may be the one that is missing.
    store.Wait({Concat(prefix, "/TRACING_GATE")},
               options.timeout.count() > 0 ? options.timeout : 2 * TraceLimit(options));
    return Concat("[ask ", rank_0, "] who did not come");
  } catch (const StoreError&) {
    return Concat(rank_0, " did not come, or could not find out who else did not");
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
                          " did not; ", Printable(error.what(), 512)));
  }
  std::string finding;
  try {
    store.Set(TraceKey(prefix, *options.rank), kMarker);
    finding = *options.rank == 0 ? FindMissing(store, world_size, prefix, options)
                                 : AwaitFindings(store, prefix, options);
  } catch (const InterruptedError&) {
    throw;
  } catch (const DistError& lost) {
    // The store is gone: what went wrong first is still what the user should read first.
    finding = Concat("who did not come is unknown: ", lost.what());
  }
  ThrowAs(error, Concat("rank ", *options.rank, ": ", barrier, finding, "; ",
                        Printable(error.what(), 512)));
}

// --- Exchanges --------------------------------------------------------------------------------

Names KeysOf(std::string_view prefix, int64_t first, int64_t end) {
  Names keys;
  keys.reserve(static_cast<size_t>(end - first));
  for (int64_t rank = first; rank < end; ++rank) keys.push_back(Concat(prefix, rank));
  return keys;
}

// By halves: one absent key among thousands is found in a few requests, and each member that fails
// does this at about the same time.
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
    // Then the error says less.
  }
  const std::string who =
      absent.empty()
          ? std::string("some values came too late, or not at all")
          : Concat("ranks ", Bracketed(absent, absent.size() < kMissingShownMax), " gave no value");
  ThrowAs(error, Concat("rank ", rank, ": exchange '", Printable(prefix), "' of ", world_size,
                        " members failed (", Limit(store.Timeout()), "): ", who, "; ",
                        Printable(error.what(), 512)));
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
    // Ours never throw; another's that does must not end the process.
  }
}

void Barrier(Store& store, int64_t world_size, std::string_view prefix,
             const BarrierOptions& options) {
  CheckMember("Barrier", options.rank, world_size);
  if (options.name_of_rank && !options.rank) {
    throw std::invalid_argument("Barrier: name_of_rank is of no use without a rank; give both");
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
                          Limit(store.Timeout()), "); ", Printable(error.what(), 512)));
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

namespace {

SocketWithPort ChoosePort(int attempts) {
  for (int attempt = 1; attempt < attempts; ++attempt) {
    try {
      return SocketWithPort();
    } catch (const std::runtime_error&) {
      // A machine that is out of ports at this moment may have one in the next.
    }
  }
  return SocketWithPort();
}

}  // namespace

std::shared_ptr<TcpStore> CreateTcpStore(const CreateTcpStoreOptions& options) {
  CheckMember("CreateTcpStore", std::nullopt, options.world_size);
  if (!options.port && options.world_size > 1) {
    throw std::invalid_argument(Concat("CreateTcpStore: no port for a world of ",
                                       options.world_size,
                                       " members: the others could not know it; give one"));
  }
  if (!options.port && !options.is_server) {
    throw std::invalid_argument(
        "CreateTcpStore: no port, and no server here that could choose one; give the server's");
  }
  TcpStoreOptions tcp{.port = options.port.value_or(0),
                      .world_size = options.world_size,
                      .is_server = options.is_server,
                      .timeout = options.timeout,
                      .wait_for_workers = options.wait_for_workers};
  if (!options.port) {
    // The server gets the very socket that was found: nobody can take the port in between, so
    // there is nothing to be tried again but the finding.
    SocketWithPort socket = ChoosePort(options.retries);
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
