// Plays a story (tests/scenarios/*.txt) on the rendezvous machine: several nodes, one state, a
// clock that is moved by hand. No threads, no sockets, no waiting.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/operations.h"
#include "rendezvous/core/run_settings.h"

namespace muster::testing {

class Scenario {
 public:
  /// Runs commands, one to a line or separated by ';', and returns what happened.
  ///
  ///   rules min=2 max=4 last_call=30s join=600s beat=5s attempts=3
  ///   join a b        start NextRendezvous() on these nodes
  ///   exit a          leave the round
  ///   close a [why]   close the rendezvous
  ///   kill a          the node dies without leaving
  ///   pause a         the node does nothing until 'resume a'
  ///   skew a 1h       its wall clock is off by so much
  ///   advance 10s     time passes
  ///   show            the state
  std::string Play(const std::string& commands);

 private:
  enum class Doing { kNothing, kJoining, kJoined, kLeaving, kClosing };
  struct Actor {
    Node node;
    Doing doing = Doing::kNothing;
    Observation observed{};
    std::optional<Instant> looked_at{};
    Instant deadline{};
    Duration skew{};
    std::optional<Place> place{};
    std::string why{};
    bool paused = false;
    std::string last_reason{};
  };

  void Command(const std::vector<std::string>& words);
  void SetRules(const std::vector<std::string>& words);
  void Start(Actor& actor, Doing doing, Duration timeout);
  void Advance(Duration span);
  void Settle();
  /// Lets the node read and act once. Returns whether it changed the state.
  bool Step(Actor& actor);
  void Finish(Actor& actor, const Decision& decision);
  void Perform(Actor& actor, const Decision& decision, RendezvousState seen);
  void Show();
  void Say(const std::string& line);
  Actor& Named(const std::string& name);

  RunSettings rules_;
  RendezvousState state_;
  Instant now_{};
  std::map<std::string, Actor> actors_;
  std::string out_;
};

}  // namespace muster::testing
