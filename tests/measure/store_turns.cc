// The longest time that the store's lock is held, for requests at the limits: prints a line for
// each.
//
//   store_turns
//
// The time is processor time, so other processes on a busy machine do not count. The store has no
// hook for it: this program has the functions of the C library that lock and unlock a mutex, and
// passes the calls on. Only a SpinningMutex is locked by pthread_mutex_trylock().
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "server/shared_store.h"
#include "store/wire/reply_writer.h"

namespace muster {
namespace {

using Strings = std::vector<std::string>;
constexpr ClientId kClient = static_cast<ClientId>(1);
constexpr size_t kMebibyte = 1 << 20;

Instant ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return Instant{std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)};
}

using MutexCall = int (*)(pthread_mutex_t*);

MutexCall LibraryCall(const char* name) {
  return reinterpret_cast<MutexCall>(dlsym(RTLD_NEXT, name));
}

const pthread_mutex_t* held = nullptr;  // the store's mutex, while it is locked
Instant held_since;
Duration longest_turn{};  // since the last report

}  // namespace
}  // namespace muster

extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static muster::MutexCall library = muster::LibraryCall("pthread_mutex_trylock");
  const int failure = library(mutex);
  if (failure == 0) {
    muster::held = mutex;
    muster::held_since = muster::ThreadTime();
  }
  return failure;
}

extern "C" int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static muster::MutexCall library = muster::LibraryCall("pthread_mutex_unlock");
  if (mutex == muster::held) {
    muster::longest_turn =
        std::max(muster::longest_turn, muster::ThreadTime() - muster::held_since);
    muster::held = nullptr;
  }
  return library(mutex);
}

namespace muster {
namespace {

class Measurement {
 public:
  void Report(const char* what) {
    const Duration longest = std::exchange(longest_turn, Duration{});
    std::printf("%-48s %8.3f ms\n", what,
                std::chrono::duration<double, std::milli>(longest).count());
  }

  void Long(Op op, const Strings& keys, std::string_view value) {
    LongStep step(op, kClient, hub_.hasher(), hub_.account());
    for (const std::string& key : keys) step.Add(key, value);
    bool done = false;
    while (!done) {
      std::string text;
      bool let_go = false;
      SharedStore::Turn turn(hub_, 0);
      done = turn.Advance(
          step, kClient, clock_.Now(),
          [&](const ValueView& got) {
            text.append(got.tail);
            kept_.insert(kept_.end(), got.pieces.begin(), got.pieces.end());
            return true;
          },
          &let_go);
      turn.Finish();
    }
    kept_.clear();
  }

  void Short(const Request& request) { Batch({&request, 1}); }

  /// All in one turn, like requests that arrive together.
  void Batch(std::span<const Request> requests) {
    std::vector<Request> made(requests.begin(), requests.end());
    std::vector<Piece> given(made.size());
    for (size_t i = 0; i < made.size(); ++i) {
      made[i].hash = hub_.hasher().Hash(made[i].key);
      if (made[i].value.size() <= kSmallValueBytes) continue;
      given[i] = MakePiece(made[i].value, hub_.account());
      made[i].piece = &given[i];
    }
    std::string replies;
    std::vector<wire::PieceAt> pieces;
    bool let_go = false;
    SharedStore::Turn turn(hub_, 0);
    for (const Request& request : made) {
      if (turn.IsLong(request)) break;  // the server takes it in short steps
      const Reply reply = turn.Step(kClient, request, clock_.Now(), &let_go);
      wire::AppendReply(replies, reply, pieces);
    }
    turn.Finish();
  }

  void DropScope(std::string_view scope) { hub_.DropScope(scope); }

  void Disconnect() {
    {
      SharedStore::Turn turn(hub_, 0);
      turn.Drop(kClient, clock_.Now());
      turn.Finish();
    }
    bool more = true;
    while (more) {
      SharedStore::Turn turn(hub_, 0);
      more = turn.Expire(clock_.Now());
      turn.Finish();
    }
  }

 private:
  PosixClock clock_;
  SharedStore hub_{{}, uint64_t{1} << 40, 1, [](size_t) {}};
  std::vector<Piece> kept_;
};

Strings Keys(std::string_view prefix, size_t count) {
  Strings keys;
  for (size_t i = 0; i < count; ++i) keys.push_back(Concat(prefix, i));
  return keys;
}

void Measure() {
  Measurement m;
  const Strings keys = Keys("/flood/", kKeysPerRequestMax);
  m.Long(Op::kMultiSet, keys, "value");
  m.Report("MULTI_SET of 131,072 new keys");
  m.Long(Op::kMultiSet, keys, "other");
  m.Report("MULTI_SET of 131,072 keys again");
  m.Long(Op::kMultiSet, Keys("/muster.run/g/0/", kKeysPerRequestMax), "value");
  m.Report("MULTI_SET of 131,072 new keys of a scope");
  m.Long(Op::kMultiGet, keys, "");
  m.Report("MULTI_GET of 131,072 keys");
  m.Long(Op::kCheck, keys, "");
  m.Report("CHECK of 131,072 keys");
  m.Long(Op::kWait, Keys("/never/", kKeysPerRequestMax), "");
  m.Report("WAIT for 131,072 keys");
  m.Disconnect();
  m.Report("... and its end");
  for (const char* prefix : {"/a/", "/b/", "/c/", "/d/", "/e/"}) {
    m.Long(Op::kMultiSet, Keys(prefix, kKeysPerRequestMax), "value");
  }
  m.Report("MULTI_SET of 131,072 keys, five more times");
  m.Long(Op::kListKeys, {}, "");
  m.Report("LIST_KEYS of 900,000 keys");
  const std::string value(8 * kMebibyte, 'v');
  const Strings large = Keys("/large/", 32);
  m.Long(Op::kMultiSet, large, value);
  m.Report("MULTI_SET of 256 MiB");
  m.Long(Op::kMultiGet, large, "");
  m.Report("MULTI_GET of 256 MiB");
  m.Long(Op::kMultiSet, large, value);
  m.Report("MULTI_SET of 256 MiB again");
  for (int i = 0; i < 25; ++i) m.Short({.op = Op::kAppend, .key = "/grows", .value = value});
  m.Report("APPEND of 8 MiB, to 200 MiB");
  m.Short({.op = Op::kAppend, .key = "/grows", .value = "x"});
  m.Report("APPEND of 1 byte to 200 MiB");
  const std::string piece(4'097, 'p');
  for (size_t i = 0; i < 65'000; ++i) m.Short({.op = Op::kAppend, .key = "/many", .value = piece});
  m.Report("APPEND of 4 KiB, 65,000 times");
  m.Short({.op = Op::kGet, .key = "/grows"});
  m.Report("GET of 200 MiB");
  m.Short({.op = Op::kGet, .key = "/many"});
  m.Report("GET of 256 MiB in 65,000 pieces");
  m.Short({.op = Op::kSet, .key = "/many", .value = "x"});
  m.Report("SET of 1 byte over 256 MiB");
}

void Grow(Measurement& m, const char* key, size_t bytes) {
  const std::string value(8 * kMebibyte, 'v');
  for (size_t i = 0; i < bytes / value.size(); ++i) {
    m.Short({.op = Op::kAppend, .key = key, .value = value});
  }
}

void MeasureLargeValues() {
  Measurement m;
  for (const char* key : {"/a", "/b", "/c"}) Grow(m, key, 200 * kMebibyte);
  m.Report("APPEND of 8 MiB, to three values of 200 MiB");
  const std::vector<Request> deletes = {{.op = Op::kDeleteKey, .key = "/a"},
                                        {.op = Op::kDeleteKey, .key = "/b"},
                                        {.op = Op::kDeleteKey, .key = "/c"},
                                        {.op = Op::kPing}};
  m.Batch(deletes);
  m.Report("DELETE of three values of 200 MiB, together");
  for (const char* key : {"/muster.run/g/0/a", "/muster.run/g/0/b"}) Grow(m, key, 200 * kMebibyte);
  m.Report("APPEND of 8 MiB, to two values of a scope");
  m.DropScope("/muster.run/g/0/");
  m.Report("... and the end of the scope");
  const std::string piece(4'097, 'p');
  const std::vector<Request> pieces(64, {.op = Op::kAppend, .key = "/many", .value = piece});
  for (size_t i = 0; i < 65'000 / pieces.size(); ++i) m.Batch(pieces);
  m.Report("APPEND of 4 KiB, 65,000 times, 64 together");
  const std::vector<Request> compares(
      64, {.op = Op::kCompareSet, .key = "/many", .expected = "x", .value = "y"});
  m.Batch(compares);
  m.Report("COMPARE_SET with these 256 MiB, 64 together");
}

void MeasureEnds() {
  Measurement m;
  const Strings keys = Keys("/end/", kKeysPerPiece);
  const std::string first(kSmallValueBytes + 1, 'v'), rest(60'000, 'v');
  for (const std::string& key : keys) {
    m.Short({.op = Op::kSet, .key = key, .value = first});
    m.Short({.op = Op::kAppend, .key = key, .value = rest});
  }
  m.Report("APPEND of 60,000 bytes to 1,000 values");
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  m.Short({.op = Op::kMultiGet, .keys = views});
  m.Report("MULTI_GET of all of them, at once");
  m.Long(Op::kMultiGet, keys, "");
  m.Report("... and in steps");
}

void MeasureGrowth() {
  Measurement m;
  constexpr size_t kMillions = 6;
  for (size_t i = 0; i < kMillions * 8; ++i) {
    m.Long(Op::kMultiSet, Keys(Concat("/", i, "/"), 125'000), "v");
  }
  m.Report("MULTI_SET of 6,000,000 new keys");
  m.Long(Op::kListKeys, {}, "");
  m.Report("LIST_KEYS of 6,000,000 keys");
  m.Long(Op::kMultiSet, Keys("/muster.run/g/0/", kKeysPerRequestMax), "value");
  m.DropScope("/muster.run/g/0/");
  m.Report("a scope of 131,072 keys among them, dropped");
}

}  // namespace
}  // namespace muster

int main() {
  muster::Measure();
  muster::MeasureLargeValues();
  muster::MeasureEnds();
  muster::MeasureGrowth();
}
