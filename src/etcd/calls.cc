#include "etcd/calls.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"

namespace muster {

namespace {

// A cluster that changes its leader is silent for a second or two; one that is silent for longer
// than this has lost the request.
constexpr Duration kAttempt = 10s;
constexpr Duration kFirstPause = 20ms;
constexpr Duration kLongestPause = 1s;
// For a read whose caller is interrupted: an etcd that lives has answered by then.
constexpr Duration kReadGrace = 200ms;

using Lock = std::unique_lock<Monitor>;

/// A caller that waits for changes. Its watches live on the loop's thread.
class Waiting final : public EtcdWatcher {
 public:
  Waiting(std::unique_ptr<Monitor> monitor, const std::function<bool(const EtcdChange&)>& enough)
      : monitor_(std::move(monitor)), enough_(enough) {}

  void OnChanges(const std::vector<EtcdChange>& changes) override {
    const Lock lock(*monitor_);
    trouble_.clear();
    for (const EtcdChange& each : changes) {
      if (outcome_) return;
      if (!enough_(each)) continue;
      outcome_ = Ok();
      monitor_->NotifyAll();
    }
  }
  void OnTrouble(const std::string& why) override {
    const Lock lock(*monitor_);
    trouble_ = why;
  }
  void OnEnd(const Error& why) override {
    const Lock lock(*monitor_);
    if (!outcome_) outcome_ = Status(why);
    monitor_->NotifyAll();
  }

  Status Result(Clock& clock, Instant deadline) {
    const Instant began = clock.Now();
    Lock lock(*monitor_);
    while (!outcome_) {
      if (deadline != Instant::Never() && clock.Now() >= deadline) {
        outcome_ = Status(Error{Code::kTimeout, trouble_});
        break;
      }
      if (IsInterrupted()) {
        outcome_ = Status(Error{Code::kInterrupted, InterruptedAfter(began, clock.Now())});
        break;
      }
      monitor_->WaitUntil(deadline);
    }
    return *outcome_;
  }

  std::vector<std::unique_ptr<EtcdWatch>> watches;  // on the loop's thread only

 private:
  const std::unique_ptr<Monitor> monitor_;
  const std::function<bool(const EtcdChange&)>& enough_;
  std::optional<Status> outcome_;
  std::string trouble_;  // since the last change
};

}  // namespace

bool OnlyReads(const EtcdTransaction& transaction) {
  const auto reads = [](const EtcdOperation& each) {
    return each.kind == EtcdOperation::Kind::kGet;
  };
  return std::all_of(transaction.then.begin(), transaction.then.end(), reads) &&
         std::all_of(transaction.otherwise.begin(), transaction.otherwise.end(), reads);
}

EtcdCalls::EtcdCalls(System& around)
    : around_(around), clock_(around.clock()), seed_(around.Seed()), thread_(around.StartLoop()) {}

EtcdCalls::~EtcdCalls() {
  thread_->RunAndWait([this] { etcd_.reset(); });
}

Result<std::shared_ptr<EtcdCalls>> EtcdCalls::Open(const EtcdConnector& connector, System& around) {
  std::shared_ptr<EtcdCalls> calls(new EtcdCalls(around));
  std::optional<Error> failure;
  calls->thread_->RunAndWait([&] {
    Result<std::unique_ptr<Etcd>> made = connector(calls->thread_->loop());
    if (!made) {
      failure = made.error();
      return;
    }
    calls->etcd_ = std::move(*made);
    calls->name_ = calls->etcd_->Describe();
  });
  if (failure) return *std::move(failure);
  return calls;
}

template <typename T>
Result<T> EtcdCalls::Ask(Duration grace,
                         const std::function<void(std::function<void(Result<T>)>)>& start) {
  // Outlives a caller who does not wait for the answer.
  struct Asked {
    std::unique_ptr<Monitor> monitor;
    std::atomic<bool> is_started = false;  // and needs nothing of the caller any more
    std::optional<Result<T>> answer;
  };
  const auto asked = std::make_shared<Asked>();
  asked->monitor = around_.MakeMonitor();
  thread_->loop().Post([asked, &start] {
    start([asked](Result<T> result) {
      const Lock lock(*asked->monitor);
      asked->answer = std::move(result);
      asked->monitor->NotifyAll();
    });
    asked->is_started = true;
  });
  const Instant began = clock_.Now();
  Lock lock(*asked->monitor);
  while (!asked->answer && !IsInterrupted()) asked->monitor->WaitUntil(Instant::Never());
  if (asked->answer) return *std::move(asked->answer);
  // What etcd owes at once is about to come, and whoever wrote may want to have it.
  Error why{Code::kInterrupted, InterruptedAfter(began, clock_.Now())};
  const ScopedUninterrupted once;
  const Instant until = clock_.Now() + grace;
  while (!asked->answer && (!asked->is_started || clock_.Now() < until))
    asked->monitor->WaitUntil(clock_.Now() + kCheckInterval);
  if (asked->answer) return *std::move(asked->answer);
  return Error{why.code, Concat(why.message, " while waiting for an answer of ", name_)};
}

template <typename T>
Result<T> EtcdCalls::Repeat(Instant deadline, bool repeat_unheard,
                            const std::function<Result<T>(Duration)>& attempt) {
  Backoff backoff(kFirstPause, kLongestPause, NextSeed());
  const Instant began = clock_.Now();
  while (true) {
    const Duration left = deadline == Instant::Never() ? kAttempt : deadline - clock_.Now();
    Result<T> result = attempt(std::clamp<Duration>(left, 1ms, kAttempt));
    if (result) return result;
    const Code code = result.error().code;
    if (code != Code::kUnavailable && !(repeat_unheard && code == Code::kTimeout)) return result;
    const Instant next = clock_.Now() + backoff.Next();
    if (next >= deadline) return result;
    clock_.SleepUntil(next);
    if (IsInterrupted()) {
      return Error{Code::kInterrupted, Concat(InterruptedAfter(began, clock_.Now()),
                                              " while trying again: ", result.error().message)};
    }
  }
}

Result<EtcdAnswer> EtcdCalls::Commit(const EtcdTransaction& transaction, Instant deadline) {
  const bool reads = OnlyReads(transaction);
  return Repeat<EtcdAnswer>(deadline, reads, [&](Duration patience) {
    return Ask<EtcdAnswer>(reads ? kReadGrace : kInterruptionGrace,
                           [&](std::function<void(Result<EtcdAnswer>)> done) {
                             etcd_->Commit(transaction, patience, std::move(done));
                           });
  });
}

Result<EtcdLease> EtcdCalls::Grant(Duration ttl, Instant deadline) {
  return Repeat<EtcdLease>(deadline, true, [&](Duration patience) {
    return Ask<EtcdLease>(kReadGrace, [&](std::function<void(Result<EtcdLease>)> done) {
      etcd_->Grant(ttl, patience, std::move(done));
    });
  });
}

Status EtcdCalls::Revoke(int64_t lease, Instant deadline) {
  return Repeat<Unit>(deadline, true, [&](Duration patience) {
    return Ask<Unit>(kInterruptionGrace, [&](std::function<void(Status)> done) {
      etcd_->Revoke(lease, patience, std::move(done));
    });
  });
}

Status EtcdCalls::Await(const std::vector<EtcdRange>& ranges, int64_t revision, Instant deadline,
                        const std::function<bool(const EtcdChange&)>& enough) {
  Waiting waiting(around_.MakeMonitor(), enough);
  thread_->loop().Post([&] {
    for (const EtcdRange& range : ranges)
      waiting.watches.push_back(etcd_->Watch(range, revision, waiting));
  });
  Status status = waiting.Result(clock_, deadline);
  thread_->RunAndWait([&] { waiting.watches.clear(); });
  return status;
}

}  // namespace muster
