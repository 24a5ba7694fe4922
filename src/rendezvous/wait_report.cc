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

std::string InBrackets(const std::vector<std::string>& names, int64_t count) {
  if (names.empty()) return "";
  return Concat(" (", ListOf(names, kNamesShown, static_cast<size_t>(count)), ")");
}

// "; not back yet: a, b": nothing without names.
std::string Also(std::string_view what, const std::vector<std::string>& names) {
  return names.empty() ? "" : Concat("; ", what, ": ", ListOf(names, kNamesShown));
}

std::string Seconds(std::chrono::milliseconds left) {
  return Concat(std::max<int64_t>(0, (left.count() + 999) / 1000), " s");
}

std::string Nodes(int64_t count) { return Concat(count, count == 1 ? " node" : " nodes"); }

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

WaitReport::Phase PhaseOf(RunReport::Phase phase) {
  using Phase = WaitReport::Phase;
  // In the order of the enumerators; the last is an empty run.
  constexpr Phase kPhases[] = {Phase::kForming, Phase::kLastCall, Phase::kComplete, Phase::kClosed,
                               Phase::kIdle};
  static_assert(static_cast<size_t>(RunReport::Phase::kEmpty) + 1 == std::size(kPhases));
  // A newer server may have further phases.
  return kPhases[std::min(static_cast<size_t>(phase), std::size(kPhases) - 1)];
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
  if (snapshot.last_call_ends) report.last_call_left = TimeLeft(*snapshot.last_call_ends - now);
  const bool limited =
      snapshot.deadline != Instant::Never() && report.phase != WaitReport::Phase::kSpare;
  if (limited) report.time_left = TimeLeft(snapshot.deadline - now);
  return report;
}

WaitReport ReportOn(const RunReport& run, const std::optional<Node>& self) {
  using Role = MemberReport::Role;
  WaitReport report{.phase = PhaseOf(run.phase),
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
  if (run.last_call_left) report.last_call_left = TimeLeft(*run.last_call_left);
  if (run.held_left) report.held_left = TimeLeft(*run.held_left);
  return report;
}

std::string_view NoteOnSharedId(std::string_view run_id) {
  return run_id == "none"
             ? "; jobs without --rdzv-id share the id 'none', so this rendezvous may be "
               "another job's: give each job an id of its own"
             : "";
}

std::string WaitReport::ToString() const {
  const std::string in_round = Concat("round ", round, ": ");
  const std::string in =
      Concat(here, " of ", max_nodes, max_nodes == 1 ? " node is here" : " nodes are here",
             InBrackets(joined, here));
  const std::string back = Also("not back yet", expected);
  const std::string quiet = Also("not heard of lately", silent);
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
