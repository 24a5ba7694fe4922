#include "sim/failure_patterns.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/text.h"
#include "rendezvous/core/coordinator.h"

namespace muster::sim {

namespace {

constexpr std::array kPatterns = {
    FailurePattern{"agent", "one node dies and is back after 5 s", 1, 0s, 5s, 0s},
    FailurePattern{"machine", "one node dies and is back after a minute", 1, 0s, 60s, 0s},
    FailurePattern{"rack", "8 nodes die within 5 s, and are back after 60 to 65 s", 8, 5s, 60s, 5s},
    FailurePattern{"flapping", "one node dies ten times, 8 s after it was back, for 4 s", 1, 0s, 4s,
                   0s, 10, 8s},
};

class FailureWorld {
 public:
  FailureWorld(const FailureCosts& costs, uint64_t seed)
      : costs_(costs), prng_(seed), coordinator_({.judges_silence = false}) {
    settings_ = {.min_nodes = FailureCosts::kNodes / 2, .max_nodes = FailureCosts::kNodes};
    // The other rule holds nodes back before they join.
    const bool is_ours = costs.rule == HoldRule::kUntilAllBack;
    settings_.forming->rejoin_window = is_ours ? costs.window : Duration(0);
  }

  FailureOutcome Play(const FailurePattern& pattern) {
    for (size_t i = 0; i < nodes_.size(); ++i) Start(i);
    const Instant begin = now_ + 100s + UpTo(30s);
    for (size_t i = 0; i < static_cast<size_t>(pattern.nodes); ++i) {
      Instant dies = begin + UpTo(pattern.staggered);
      for (int64_t time = 0; time < pattern.times; ++time) {
        const Instant back = dies + pattern.back_after + UpTo(pattern.back_within);
        At(dies, [this, i] { Die(i); });
        At(back, [this, i] { Start(i); });
        dies = back + pattern.lives_for;
      }
    }
    const Instant end = Instant{} + FailureCosts::kHorizon;
    while (true) {
      const Instant next = agenda_.empty() ? Instant::Never() : agenda_.begin()->first;
      const Instant due = std::min(next, coordinator_.NextDue());
      if (due > end) break;
      now_ = due;
      if (next <= now_) {
        const auto event = std::move(agenda_.begin()->second);
        agenda_.erase(agenda_.begin());
        event();
      } else {
        Deliver([&](Pushes& out) { coordinator_.Tick(now_, out); });
      }
    }
    now_ = end;
    EndWork();
    const double all = static_cast<double>(FailureCosts::kNodes * FailureCosts::kWorkersPerNode) *
                       Seconds(FailureCosts::kHorizon);
    return {.lost = all - achieved_, .rounds = round_};
  }

 private:
  enum class Doing : uint8_t { kDead, kHeld, kJoining, kWorking, kStopping };
  struct Member {
    Doing doing = Doing::kDead;
    int64_t lives = 0;
    SessionKey key{};
  };

  static double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
  Duration UpTo(Duration most) {
    return Duration(static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(most.count()) + 1)));
  }
  void At(Instant at, std::function<void()> event) { agenda_.emplace(at, std::move(event)); }

  void Start(size_t i) {
    Member& node = nodes_[i];
    ++node.lives;
    node.doing = Doing::kHeld;
    node.key = {.session = SessionId{++sessions_}};
    by_session_[sessions_] = i;
    const Hello hello{
        .run_id = "run", .node = {Concat("node", i), node.lives, 0}, .settings = settings_};
    Deliver([&](Pushes& out) { coordinator_.Open(node.key.session, hello, now_, out); });
    if (costs_.rule == HoldRule::kUntilAllBack || !IsHoldTime()) return Join(i);
    held_.insert(i);
    At(formed_at_ + costs_.window, [this] { Release(); });
  }

  bool IsHoldTime() const { return round_ > 0 && is_whole_ && now_ < formed_at_ + costs_.window; }

  void Release() {
    for (const size_t i : std::exchange(held_, {})) Join(i);
  }

  void Join(size_t i) {
    nodes_[i].doing = Doing::kJoining;
    Deliver([&](Pushes& out) { coordinator_.Join(nodes_[i].key, 600s, now_, out); });
  }

  void Die(size_t i) {
    Member& node = nodes_[i];
    if (std::exchange(node.doing, Doing::kDead) == Doing::kWorking) EndWork();
    held_.erase(i);
    At(now_ + FailureCosts::kNoticed, [this, session = node.key.session] {
      coordinator_.Disconnect(session, now_);
      Deliver([&](Pushes& out) { coordinator_.Tick(now_, out); });
    });
  }

  template <typename Event>
  void Deliver(const Event& event) {
    Pushes out;
    event(out);
    for (const Push& push : out) OnPush(by_session_.at(static_cast<uint64_t>(push.to)), push);
  }

  void OnPush(size_t i, const Push& push) {
    Member& node = nodes_[i];
    if (push.to != node.key.session || node.doing == Doing::kDead) return;
    if (push.kind == Push::Kind::kOpened) {
      node.key.token = push.token;
      node.key.incarnation = push.incarnation;
    }
    if (push.kind == Push::Kind::kComplete) {
      node.doing = Doing::kWorking;
      node.key.round = push.round;
      if (push.round != round_) Begin(push);
    }
    const bool is_news = push.kind == Push::Kind::kLost ||
                         (push.kind == Push::Kind::kNodesWaiting && push.count > 0);
    if (!is_news || node.doing != Doing::kWorking) return;
    EndWork();
    node.doing = Doing::kStopping;
    At(now_ + FailureCosts::kStop, [this, i, session = node.key.session] {
      if (nodes_[i].key.session == session && nodes_[i].doing == Doing::kStopping) Join(i);
      Release();
    });
  }

  void Begin(const Push& push) {
    round_ = push.round;
    world_size_ = push.world_size;
    formed_at_ = now_;
    is_whole_ = true;
    At(now_ + costs_.restart, [this, round = round_] {
      if (round_ == round && is_whole_) works_since_ = now_;
    });
  }

  void EndWork() {
    is_whole_ = false;
    if (!works_since_) return;
    achieved_ += Seconds(now_ - *works_since_) *
                 static_cast<double>(world_size_ * FailureCosts::kWorkersPerNode);
    works_since_.reset();
  }

  const FailureCosts costs_;
  Prng prng_;
  RunSettings settings_;
  Coordinator coordinator_;
  Instant now_{};
  std::multimap<Instant, std::function<void()>> agenda_;
  std::array<Member, FailureCosts::kNodes> nodes_{};
  std::map<uint64_t, size_t> by_session_;
  uint64_t sessions_ = 0;
  std::set<size_t> held_;
  int64_t round_ = -1;
  int64_t world_size_ = 0;
  Instant formed_at_{};
  bool is_whole_ = false;  // all members of the round are there, and have not been asked to stop
  std::optional<Instant> works_since_;
  double achieved_ = 0;  // worker-seconds
};

}  // namespace

std::span<const FailurePattern> FailurePatterns() { return kPatterns; }

FailureOutcome PlayFailures(const FailurePattern& pattern, const FailureCosts& costs,
                            uint64_t seed) {
  return FailureWorld(costs, seed).Play(pattern);
}

}  // namespace muster::sim
