#include "rendezvous/scenario.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "base/text.h"

namespace muster::testing {

namespace {

constexpr Duration kLookEvery = 500ms;

Duration ParseDuration(const std::string& text) {
  size_t used = 0;
  const int64_t count = std::stoll(text, &used);
  const std::string unit = text.substr(used);
  if (unit == "ms") return std::chrono::milliseconds(count);
  if (unit == "s") return std::chrono::seconds(count);
  if (unit == "h") return std::chrono::hours(count);
  throw std::invalid_argument(Concat("'", text, "' is no duration: 10s, 200ms, 1h"));
}

std::string Name(Action action) {
  switch (action) {
    case Action::kKeepAlive:
      return "keeps alive";
    case Action::kAddToParticipants:
      return "joins";
    case Action::kAddToWaitList:
      return "waits";
    case Action::kAddToRedundancyList:
      return "is a spare";
    case Action::kRemoveFromParticipants:
      return "leaves the round";
    case Action::kRemoveFromWaitList:
      return "leaves the wait list";
    case Action::kRemoveFromRedundancyList:
      return "is no spare any more";
    case Action::kMarkComplete:
      return "completes the round";
    case Action::kMarkClosed:
      return "closes";
    case Action::kRestore:
      return "comes back";
    case Action::kSync:
      return "looks again later";
    case Action::kErrorClosed:
      return "fails: closed";
    case Action::kErrorTimeout:
      return "fails: timeout";
    case Action::kErrorGraceful:
      return "goes in peace";
    case Action::kFinish:
      return "is done";
  }
  return "";
}

template <typename Nodes>
std::string Names(const Nodes& nodes) {
  std::string out;
  for (const auto& node : nodes) out += Concat(out.empty() ? "" : " ", node.addr);
  return out.empty() ? "-" : out;
}

}  // namespace

std::string Scenario::Play(const std::string& commands) {
  std::string lines = commands;
  std::ranges::replace(lines, ';', '\n');
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<std::string> command;
    for (std::string word; words >> word;) command.push_back(word);
    if (!command.empty()) Command(command);
  }
  return out_;
}

void Scenario::Command(const std::vector<std::string>& words) {
  const std::string& verb = words[0];
  if (verb == "rules") return SetRules(words);
  if (verb == "show") return Show();
  if (verb == "advance") return Advance(ParseDuration(words.at(1)));
  if (verb == "close") {
    Actor& actor = Named(words.at(1));
    for (size_t i = 2; i < words.size(); ++i) actor.why += Concat(i > 2 ? " " : ": ", words[i]);
    Start(actor, Doing::kClosing, rules_.close_timeout);
    return Settle();
  }
  if (verb == "skew") {
    Named(words.at(1)).skew = ParseDuration(words.at(2));
    return;
  }
  for (size_t i = 1; i < words.size(); ++i) {
    Actor& actor = Named(words[i]);
    if (verb == "join") {
      Start(actor, Doing::kJoining, rules_.join_timeout);
    } else if (verb == "exit") {
      Start(actor, Doing::kLeaving, rules_.join_timeout);
    } else if (verb == "kill") {
      actor.doing = Doing::kNothing;
    } else if (verb == "pause" || verb == "resume") {
      actor.paused = verb == "pause";
    } else {
      throw std::invalid_argument(Concat("no such command: ", verb));
    }
    Settle();
  }
}

void Scenario::SetRules(const std::vector<std::string>& words) {
  rules_ = {.keep_alive_interval = 5s};
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t at = words[i].find('=');
    const std::string key = words[i].substr(0, at);
    const std::string value = words[i].substr(at + 1);
    if (key == "min") rules_.min_nodes = std::stoll(value);
    if (key == "max") rules_.max_nodes = std::stoll(value);
    if (key == "attempts") rules_.keep_alive_max_attempt = std::stoll(value);
    if (key == "last_call") rules_.last_call = ParseDuration(value);
    if (key == "join") rules_.join_timeout = ParseDuration(value);
    if (key == "beat") rules_.keep_alive_interval = ParseDuration(value);
  }
}

Scenario::Actor& Scenario::Named(const std::string& name) {
  Actor& actor = actors_[name];
  actor.node = {.addr = name, .pid = 1, .local_id = 0};
  return actor;
}

void Scenario::Start(Actor& actor, Doing doing, Duration timeout) {
  actor.doing = doing;
  actor.deadline = now_ + timeout;
  // A node that requests the next round leaves the present one first.
  if (doing == Doing::kJoining && state_.participants.contains(actor.node)) {
    actor.doing = Doing::kLeaving;
    Settle();
    actor.doing = Doing::kJoining;
  }
}

void Scenario::Advance(Duration span) {
  const Instant until = now_ + span;
  while (now_ < until) {
    now_ = std::min(now_ + kLookEvery, until);
    Settle();
  }
}

void Scenario::Settle() {
  for (int turns = 0;; ++turns) {
    if (turns > 1000) throw std::runtime_error("the nodes keep changing the state forever");
    bool changed = false;
    for (auto& [name, actor] : actors_) changed |= Step(actor);
    if (!changed) return;
  }
}

bool Scenario::Step(Actor& actor) {
  if (actor.doing == Doing::kNothing || actor.paused) return false;
  RendezvousState seen = state_;
  const Duration gap = actor.looked_at ? now_ - *actor.looked_at : 0s;
  if (gap > rules_.missed_after()) actor.observed.Skip(gap - rules_.keep_alive_interval);
  actor.looked_at = now_;
  actor.observed.See(seen, now_);
  Purge(actor.observed.Silent(seen, rules_.dead_after(), now_), rules_, &seen);
  const Outlook outlook{
      .state = seen,
      .observed = actor.observed,
      .self = actor.node,
      .settings = rules_,
      .now = now_,
      .deadline = actor.doing == Doing::kJoined ? now_ + rules_.heartbeat_timeout : actor.deadline,
      .place = actor.place};
  const Decision decision = actor.doing == Doing::kJoined    ? DecideKeepAlive(outlook)
                            : actor.doing == Doing::kJoining ? DecideJoin(outlook)
                            : actor.doing == Doing::kLeaving ? DecideExit(outlook)
                                                             : DecideClose(outlook);
  if (decision.action == Action::kSync) return false;
  switch (decision.action) {
    case Action::kFinish:
    case Action::kErrorClosed:
    case Action::kErrorTimeout:
    case Action::kErrorGraceful:
      Finish(actor, decision);
      return false;
    default:
      Perform(actor, decision, std::move(seen));
      return true;
  }
}

void Scenario::Finish(Actor& actor, const Decision& decision) {
  if (actor.doing == Doing::kJoined) return;
  const bool joined = actor.doing == Doing::kJoining && decision.action == Action::kFinish;
  if (joined) {
    const int64_t rank = state_.participants.at(actor.node);
    actor.place = Place{.round = state_.round, .rank = rank};
    Say(Concat(actor.node.addr, " has rank ", rank, " of ", state_.participants.size(),
               " in round ", state_.round));
  } else if (decision.action != Action::kFinish) {
    Say(Concat(actor.node.addr, " ", Name(decision.action), " (", decision.reason,
               state_.closed_by.empty() ? "" : Concat(" by ", state_.closed_by), ")"));
  }
  // Closing happens in addition to what the node does otherwise.
  const bool still_in =
      actor.doing == Doing::kClosing && actor.place && state_.participants.contains(actor.node);
  actor.doing = joined || still_in ? Doing::kJoined : Doing::kNothing;
}

void Scenario::Perform(Actor& actor, const Decision& decision, RendezvousState seen) {
  const WallTime wall = WallTime{1'700'000'000'000'000} + (now_.since_start + actor.skew);
  for (const auto& [node, rank] : state_.participants) {
    if (!seen.participants.contains(node)) {
      Say(Concat(actor.node.addr, " finds ", node.addr, " dead"));
    }
  }
  if (decision.action == Action::kRestore) {
    Restore(actor.node, actor.place->rank, wall, &seen);
  } else {
    Apply(decision.action, actor.node, rules_, wall, &seen);
  }
  if (decision.action == Action::kMarkClosed) seen.closed_by = Concat(actor.node.addr, actor.why);
  if (decision.action == Action::kRemoveFromRedundancyList) {
    actor.deadline = now_ + rules_.join_timeout;
  }
  const bool completed = !state_.complete && seen.complete;
  state_ = std::move(seen);
  if (decision.action == Action::kKeepAlive) return;
  Say(Concat(actor.node.addr, " ", Name(decision.action), " (", decision.reason, ")"));
  if (completed && decision.action != Action::kMarkComplete) Say("the round is complete");
}

void Scenario::Show() {
  std::string members;
  for (const auto& [node, rank] : state_.participants) {
    members += Concat(" ", node.addr);
    if (state_.complete) members += Concat("=", rank);
  }
  Say(Concat("round ", state_.round, state_.complete ? " complete" : " forming",
             state_.closed ? " closed" : "", state_.deadline ? " last-call" : "", ":",
             members.empty() ? " -" : members, "; waiting: ", Names(state_.wait_list),
             "; spares: ", Names(state_.redundancy_list)));
}

void Scenario::Say(const std::string& line) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_.since_start).count();
  std::string tenths = Concat(ms / 1000, ".", ms % 1000 / 100, "s");
  tenths.insert(0, tenths.size() < 8 ? 8 - tenths.size() : 0, ' ');
  out_ += Concat(tenths, "  ", line, "\n");
}

}  // namespace muster::testing
