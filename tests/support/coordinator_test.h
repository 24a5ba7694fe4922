// The fixture of the coordinator's tests.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/coordinator.h"

namespace muster::test {

inline RunSettings MinMax(int64_t min_nodes, int64_t max_nodes) {
  return {.min_nodes = min_nodes, .max_nodes = max_nodes, .last_call = 5s};
}

/// Nodes by name, a clock moved by hand, and what each node received.
class CoordinatorTest : public ::testing::Test {
 protected:
  explicit CoordinatorTest(const CoordinatorOptions& options = {}) : coordinator_(options) {}

  struct Talker {
    SessionKey key{};
    Hello hello{};
    std::vector<Push> heard{};
  };

  void Open(const std::string& name, const RunSettings& settings, uint64_t resume = 0) {
    Talker& talker = talkers_[name];
    talker.key.session = SessionId{++sessions_};
    by_session_[sessions_] = name;
    talker.hello = {.run_id = "run",
                    .node = {name, 1, 0},
                    .settings = settings,
                    .bootstrap_port = 4711,
                    .resume = resume,
                    .round = talker.key.round};
    Run([&](Pushes& out) { coordinator_.Open(talker.key.session, talker.hello, now_, out); });
  }
  void Join(const std::string& name, Duration timeout = 600s) {
    Run([&](Pushes& out) { coordinator_.Join(talkers_[name].key, timeout, now_, out); });
  }
  void OpenAndJoin(const std::vector<std::string>& names, const RunSettings& settings) {
    for (const std::string& name : names) Open(name, settings);
    for (const std::string& name : names) Join(name);
  }
  void Leave(const std::string& name, int64_t round) {
    SessionKey key = talkers_[name].key;
    key.round = round;
    Run([&](Pushes& out) { coordinator_.Leave(key, now_, out); });
  }
  void Close(const std::string& name, const std::string& reason) {
    Run([&](Pushes& out) { coordinator_.Close(talkers_[name].key, reason, now_, out); });
  }
  /// The node ends, and with it what it knew.
  void End(const std::string& name) {
    Break(name);
    talkers_.erase(name);
  }
  void Break(const std::string& name) { coordinator_.Disconnect(talkers_[name].key.session, now_); }
  void KeepAlive(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      Run([&](Pushes& out) { coordinator_.KeepAlive(talkers_[name].key, now_, out); });
    }
  }
  /// Time passes; the named nodes keep alive.
  void Pass(Duration span, const std::vector<std::string>& alive) {
    const Instant until = now_ + span;
    while (now_ < until) {
      now_ = std::min(now_ + 500ms, until);
      KeepAlive(alive);
      Run([&](Pushes& out) { coordinator_.Tick(now_, out); });
      EXPECT_GT(coordinator_.NextDue(), now_) << "nothing is left undone";
    }
  }
  template <typename Event>
  void Run(const Event& event) {
    Pushes out;
    event(out);
    for (Push& push : out) {
      Talker& talker = talkers_[by_session_[static_cast<uint64_t>(push.to)]];
      if (push.kind == Push::Kind::kOpened) {
        talker.key.token = push.token;
        talker.key.incarnation = push.incarnation;
      }
      if (push.kind == Push::Kind::kComplete) talker.key.round = push.round;
      talker.heard.push_back(std::move(push));
    }
  }
  /// What the node received since the last call.
  std::vector<Push> Heard(const std::string& name) {
    return std::exchange(talkers_[name].heard, {});
  }
  std::vector<Push::Kind> Kinds(const std::string& name) {
    std::vector<Push::Kind> kinds;
    for (const Push& push : Heard(name)) kinds.push_back(push.kind);
    return kinds;
  }
  const RendezvousState& State() const { return coordinator_.Find("run")->state; }

  Coordinator coordinator_;
  Instant now_{100s};
  uint64_t sessions_ = 0;
  std::map<std::string, Talker> talkers_;
  std::map<uint64_t, std::string> by_session_;
};

}  // namespace muster::test
