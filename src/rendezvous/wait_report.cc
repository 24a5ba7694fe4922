#include "rendezvous/wait_report.h"

#include <algorithm>

#include "base/text.h"

namespace muster {

namespace {

constexpr size_t kNamesShown = 8;

template <typename Nodes>
std::vector<std::string> Names(const Nodes& nodes) {
  std::vector<std::string> names;
  for (const Node& node : nodes) names.push_back(node.ToString());
  return names;
}

std::string List(const std::vector<std::string>& names) { return ListOf(names, kNamesShown); }

std::string InBrackets(const std::vector<std::string>& names, int64_t count) {
  return names.empty() ? ""
                       : Concat(" (", ListOf(names, kNamesShown, static_cast<size_t>(count)), ")");
}

std::string Seconds(std::chrono::milliseconds left) {
  return Concat(std::max<int64_t>(0, (left.count() + 999) / 1000), " s");
}

std::string Nodes(int64_t count) { return Concat(count, count == 1 ? " node" : " nodes"); }

std::chrono::milliseconds Left(Instant until, Instant now) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now);
  return std::max(left, std::chrono::milliseconds(0));
}

WaitReport::Phase PhaseOf(const RendezvousState& state, const Node& self, int64_t min_nodes) {
  using Phase = WaitReport::Phase;
  if (state.closed) return Phase::kClosed;
  if (state.redundancy_list.contains(self)) return Phase::kSpare;
  if (state.complete) {
    return state.participants.contains(self) ? Phase::kComplete : Phase::kNextRound;
  }
  return static_cast<int64_t>(state.participants.size()) >= min_nodes ? Phase::kLastCall
                                                                      : Phase::kForming;
}

WaitReport::Phase PhaseOf(const RunReport& run) {
  using Phase = WaitReport::Phase;
  switch (run.phase) {
    case RunReport::Phase::kForming:
      return Phase::kForming;
    case RunReport::Phase::kLastCall:
      return Phase::kLastCall;
    case RunReport::Phase::kComplete:
      return Phase::kComplete;
    case RunReport::Phase::kClosed:
      return Phase::kClosed;
    case RunReport::Phase::kEmpty:
      break;
  }
  return Phase::kIdle;
}

}  // namespace

WaitReport ReportOn(const WaitSnapshot& snapshot, const Node& self, const std::string& run_id,
                    const RunSettings& settings, Instant now) {
  const RendezvousState& state = snapshot.state;
  WaitReport report{.phase = PhaseOf(state, self, settings.min_nodes),
                    .run_id = run_id,
                    .round = state.round,
                    .min_nodes = settings.min_nodes,
                    .max_nodes = settings.max_nodes};
  for (const auto& [node, rank] : state.participants) report.joined.push_back(node.ToString());
  report.waiting = Names(state.wait_list);
  report.spares = Names(state.redundancy_list);
  report.silent = Names(snapshot.quiet);
  const auto here = static_cast<int64_t>(state.participants.size());
  report.here = here;
  if (report.phase == WaitReport::Phase::kForming) report.awaited = settings.min_nodes - here;
  if (report.phase == WaitReport::Phase::kNextRound) report.awaited = here;
  if (snapshot.last_call_ends) report.last_call_left = Left(*snapshot.last_call_ends, now);
  const bool limited =
      snapshot.deadline != Instant::Never() && report.phase != WaitReport::Phase::kSpare;
  if (limited) report.time_left = Left(snapshot.deadline, now);
  return report;
}

WaitReport ReportOn(const RunReport& run, const std::optional<Node>& self) {
  using Role = MemberReport::Role;
  WaitReport report{.phase = PhaseOf(run),
                    .run_id = run.id,
                    .round = run.round,
                    .min_nodes = run.settings.min_nodes,
                    .max_nodes = run.settings.max_nodes,
                    .here = run.participants};
  for (const MemberReport& member : run.members) {
    const std::string name = member.node.ToString();
    if (member.role == Role::kParticipant) report.joined.push_back(name);
    if (member.role == Role::kWaiting) report.waiting.push_back(name);
    if (member.role == Role::kSpare) report.spares.push_back(name);
    if (member.role == Role::kIdle) report.expected.push_back(name);
    if (member.late) report.silent.push_back(name);
    const bool waits = member.role == Role::kWaiting || member.role == Role::kSpare;
    if (self && member.node == *self && waits && report.phase == WaitReport::Phase::kComplete) {
      report.phase =
          member.role == Role::kSpare ? WaitReport::Phase::kSpare : WaitReport::Phase::kNextRound;
    }
  }
  const bool forms = report.phase == WaitReport::Phase::kForming;
  if (forms) report.awaited = std::max<int64_t>(run.settings.min_nodes - run.participants, 0);
  if (report.phase == WaitReport::Phase::kNextRound) report.awaited = run.participants;
  if (run.last_call_left)
    report.last_call_left =
        std::chrono::duration_cast<std::chrono::milliseconds>(*run.last_call_left);
  if (run.held_left)
    report.held_left = std::chrono::duration_cast<std::chrono::milliseconds>(*run.held_left);
  return report;
}

std::string_view NoteOnSharedId(std::string_view run_id) {
  return run_id == "none" ? "; 'none' is the id of every job that names none: give each its own "
                            "(--rdzv-id)"
                          : "";
}

std::string WaitReport::ToString() const {
  const std::string in_round = Concat("round ", round, ": ");
  const std::string in =
      Concat(here, " of ", max_nodes, max_nodes == 1 ? " node is here" : " nodes are here",
             InBrackets(joined, here));
  const std::string back =
      expected.empty() ? "" : Concat("; not back yet: ", ListOf(expected, kNamesShown));
  const std::string quiet = silent.empty() ? "" : Concat("; not heard of lately: ", List(silent));
  const std::string ago =
      held_for ? Concat(": the round re-formed ", Seconds(*held_for), " ago") : "";
  const std::string held =
      held_left ? Concat("; held back for up to ", Seconds(*held_left), " more", ago) : "";
  const std::string limit = time_left ? Concat("; gives up in ", Seconds(*time_left)) : "";
  switch (phase) {
    case Phase::kIdle:
      return "not waiting for anybody";
    case Phase::kContact:
      return Concat("waiting for the backend to say how the rendezvous '", OneLine(run_id),
                    "' stands", trouble.empty() ? "" : Concat(": ", OneLine(trouble)), limit);
    case Phase::kForming:
      return Concat(in_round, in, ", ", awaited, " more ", awaited == 1 ? "is" : "are", " needed",
                    back, quiet, limit);
    case Phase::kLastCall:
      return Concat(in_round, in, ", enough to start; last call for the others",
                    last_call_left ? Concat(": starts in ", Seconds(*last_call_left)) : "", back,
                    quiet, limit);
    case Phase::kNextRound:
      return Concat("waiting for the next round: ", Nodes(awaited), " ",
                    awaited == 1 ? "is" : "are", " still in round ", round,
                    InBrackets(joined, here), held, quiet, limit);
    case Phase::kSpare:
      return Concat("a spare: round ", round, " is full with ", Nodes(max_nodes),
                    "; waits without limit for one of them to leave", quiet);
    case Phase::kBootstrap:
      return Concat(in_round, "complete with ", Nodes(here), "; waiting for rank 0",
                    first.empty() ? "" : Concat(" (", OneLine(first), ")"),
                    " to say where its store is", limit);
    case Phase::kComplete:
      return Concat("in round ", round, " with ", Nodes(here), quiet);
    case Phase::kClosed:
      return Concat("the rendezvous '", OneLine(run_id), "' is closed");
  }
  return "";
}

}  // namespace muster
