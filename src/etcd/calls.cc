#include "etcd/calls.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"

namespace muster {

namespace {

// A cluster that elects a leader does not answer for a second or two. After this time the request
// is lost.
constexpr Duration kAttempt = 10s;
// For a read whose caller is interrupted: a live etcd answers in this time.
constexpr Duration kReadGrace = 200ms;

using Lock = std::unique_lock<Monitor>;

/// A caller that waits for changes. Its watches are on the loop's thread.
class Waiter final : public EtcdWatcher {
 public:
  Waiter(std::unique_ptr<Monitor> monitor, const std::function<bool(const EtcdChange&)>& enough)
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
      if (clock.Now() >= deadline)
        outcome_ = Status(Error{Code::kTimeout, trouble_});
      else if (IsInterrupted())
        outcome_ = Status(Error{Code::kInterrupted, InterruptedAfter(began, clock.Now())});
      else
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

EtcdCalls::EtcdCalls(EtcdConnector connector, System& around)
    : around_(around),
      seed_(around.Seed()),
      connector_(std::move(connector)),
      thread_(around.StartLoop()) {}

EtcdCalls::~EtcdCalls() {
  thread_->RunAndWait([this] { etcd_.reset(); });
}

Result<std::shared_ptr<EtcdCalls>> EtcdCalls::Open(EtcdConnector connector, System& around) {
  auto calls = std::make_shared<EtcdCalls>(std::move(connector), around);
  Status connected = Ok();
  calls->thread_->RunAndWait([&] {
    if (const auto client = calls->Client(); !client) connected = client.error();
  });
  MUSTER_CHECK_OK(connected);
  return calls;
}

Result<std::shared_ptr<Etcd>> EtcdCalls::Client() {
  if (!etcd_) {
    MUSTER_TRY(etcd_, connector_(thread_->loop()));
    name_ = etcd_->Describe();
  }
  return etcd_;
}

Result<EtcdAnswer> EtcdCalls::Attempt(const EtcdTransaction& transaction, Duration patience) {
  // It outlives a caller that does not wait for the answer.
  struct Pending {
    std::unique_ptr<Monitor> monitor;
    std::optional<Result<EtcdAnswer>> answer;
  };
  const auto pending = std::make_shared<Pending>();
  pending->monitor = around_.MakeMonitor();
  thread_->loop().Post([this, pending, transaction = transaction, patience]() mutable {
    etcd_->Commit(std::move(transaction), patience, [pending](Result<EtcdAnswer> result) {
      const Lock lock(*pending->monitor);
      pending->answer = std::move(result);
      pending->monitor->NotifyAll();
    });
  });
  const Instant began = clock().Now();
  Lock lock(*pending->monitor);
  while (!pending->answer && !IsInterrupted()) pending->monitor->WaitUntil(Instant::Never());
  if (pending->answer) return *std::move(pending->answer);
  const std::string why = InterruptedAfter(began, clock().Now());
  const ScopedUninterrupted once;
  const Instant until = clock().Now() + (OnlyReads(transaction) ? kReadGrace : kInterruptionGrace);
  while (!pending->answer && clock().Now() < until)
    pending->monitor->WaitUntil(clock().Now() + kCheckInterval);
  if (pending->answer) return *std::move(pending->answer);
  return MakeError(Code::kInterrupted, why, " while waiting for an answer of ", name_);
}

Result<EtcdAnswer> EtcdCalls::Commit(const EtcdTransaction& transaction, Instant deadline) {
  Backoff backoff(kEtcdFirstPause, kEtcdLongestPause, NextSeed());
  const Instant began = clock().Now();
  while (true) {
    const Duration left = deadline == Instant::Never() ? kAttempt : deadline - clock().Now();
    Result<EtcdAnswer> result = Attempt(transaction, std::clamp<Duration>(left, 1ms, kAttempt));
    if (result) return result;
    const Code code = result.error().code;
    const bool again =
        code == Code::kUnavailable || (code == Code::kTimeout && OnlyReads(transaction));
    const Instant next = clock().Now() + backoff.Next();
    if (!again || next >= deadline) return result;
    clock().SleepUntil(next);
    if (IsInterrupted()) {
      return MakeError(Code::kInterrupted, InterruptedAfter(began, clock().Now()),
                       " while trying again: ", result.error().message);
    }
  }
}

Status EtcdCalls::Await(const std::vector<EtcdRange>& ranges, int64_t revision, Instant deadline,
                        const std::function<bool(const EtcdChange&)>& enough) {
  Waiter waiter(around_.MakeMonitor(), enough);
  thread_->loop().Post([&] {
    for (const EtcdRange& range : ranges)
      waiter.watches.push_back(etcd_->Watch(range, revision, waiter));
  });
  Status status = waiter.Result(clock(), deadline);
  thread_->RunAndWait([&] { waiter.watches.clear(); });
  return status;
}

}  // namespace muster
