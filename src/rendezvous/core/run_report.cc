#include "rendezvous/core/run_report.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "rendezvous/core/coordinator.h"

namespace muster {

namespace {

using Role = MemberReport::Role;
using Phase = RunReport::Phase;

constexpr size_t kFew = 32;
// There is no list of idle nodes; at most this many members are searched for a few names.
constexpr size_t kLooksMax = 1000;
constexpr std::array kRoles = {Role::kParticipant, Role::kWaiting, Role::kSpare, Role::kIdle};

Role RoleOf(const RendezvousState& state, const Node& node) {
  if (state.participants.contains(node)) return Role::kParticipant;
  if (state.wait_list.contains(node)) return Role::kWaiting;
  return state.redundancy_list.contains(node) ? Role::kSpare : Role::kIdle;
}

Phase PhaseOf(const Coordinator::Run& run) {
  const RendezvousState& state = run.state;
  if (state.closed) return Phase::kClosed;
  if (run.members.empty()) return Phase::kEmpty;
  if (state.complete) return Phase::kComplete;
  return state.deadline && !state.participants.empty() ? Phase::kLastCall : Phase::kForming;
}

bool IsLate(const Coordinator::Run& run, const Coordinator::Member& member, Instant now) {
  return !member.session || now - member.seen_at > run.settings.missed_after();
}

int64_t RankOf(const RendezvousState& state, const Node& node) {
  const auto place = state.participants.find(node);
  return state.complete && place != state.participants.end() ? place->second : -1;
}

// The node of an entry of a set, or of a map.
const Node& NodeOf(const Node& node) { return node; }
const Node& NodeOf(const auto& entry) { return entry.first; }

struct Known {
  int64_t rank;
  const Coordinator::Member* member;
};
using KnownNodes = std::vector<Known>;
using ByRole = std::array<KnownNodes, kRoles.size()>;

// A few nodes of one role: the longest silent, then the first by name. Each of thousands of waiting
// nodes may request this, so it must not visit all of them.
KnownNodes Some(const Coordinator::Run& run, Role role, size_t most, Instant now) {
  KnownNodes found;
  const auto add = [&](const Coordinator::Member& member) {
    const auto is_same = [&](const Known& known) { return known.member == &member; };
    if (RoleOf(run.state, member.node) == role && std::ranges::none_of(found, is_same))
      found.push_back({RankOf(run.state, member.node), &member});
  };
  for (const Coordinator::Due& due : run.broken) {
    if (found.size() == most) break;
    add(*due.member);
  }
  for (const Coordinator::Member* member : run.by_silence) {
    if (found.size() == most || !IsLate(run, *member, now)) break;
    add(*member);
  }
  const auto add_all = [&](const auto& nodes) {
    size_t looks = 0;
    for (const auto& entry : nodes) {
      if (found.size() == most || ++looks > kLooksMax) break;
      add(run.members.at(NodeOf(entry)));
    }
  };
  if (role == Role::kParticipant) add_all(run.state.participants);
  if (role == Role::kWaiting) add_all(run.state.wait_list);
  if (role == Role::kSpare) add_all(run.state.redundancy_list);
  if (role == Role::kIdle) add_all(run.members);
  return found;
}

// All nodes by role, in one walk: members and the lists of the round have the same order.
ByRole All(const Coordinator::Run& run) {
  const RendezvousState& state = run.state;
  ByRole found;
  const auto is_next = [](auto& at, const auto& list, const Node& node) {
    while (at != list.end() && NodeOf(*at) < node) ++at;
    return at != list.end() && NodeOf(*at) == node;
  };
  auto participant = state.participants.begin();
  auto waiting = state.wait_list.begin();
  auto spare = state.redundancy_list.begin();
  for (const auto& [node, member] : run.members) {
    Role role = Role::kIdle;
    if (is_next(participant, state.participants, node)) {
      role = Role::kParticipant;
    } else if (is_next(waiting, state.wait_list, node)) {
      role = Role::kWaiting;
    } else if (is_next(spare, state.redundancy_list, node)) {
      role = Role::kSpare;
    }
    const bool has_rank = role == Role::kParticipant && state.complete;
    found[static_cast<size_t>(role)].push_back({has_rank ? participant->second : -1, &member});
  }
  return found;
}

// Copies only the members that are shown: the late ones first.
void AddMembers(RunReport& report, const Coordinator::Run& run, Role role, KnownNodes nodes,
                size_t names_max, Instant now) {
  if (nodes.size() > names_max) {
    std::stable_partition(nodes.begin(), nodes.end(),
                          [&](const Known& known) { return IsLate(run, *known.member, now); });
    nodes.resize(names_max);
  }
  std::ranges::stable_sort(nodes, {}, &Known::rank);
  for (const auto& [rank, member] : nodes) {
    report.members.push_back({.node = member->node,
                              .role = role,
                              .rank = rank,
                              .silent_for = now - member->seen_at,
                              .connected = member->session.has_value(),
                              .late = IsLate(run, *member, now),
                              .label = member->label});
  }
}

}  // namespace

std::vector<RunReport> Coordinator::Reports(std::string_view after, size_t runs_max,
                                            Instant now) const {
  std::vector<RunReport> reports;
  for (auto run = runs_.upper_bound(after); run != runs_.end() && reports.size() < runs_max; ++run)
    if (!run->second.is_replaced) reports.push_back(ReportOn(run->second, 0, now));
  return reports;
}

std::optional<RunReport> Coordinator::Report(std::string_view run_id, size_t names_max,
                                             Instant now) const {
  const Run* run = Find(run_id);
  if (run == nullptr) return std::nullopt;
  return ReportOn(*run, names_max, now);
}

RunReport Coordinator::ReportOn(const Run& run, size_t names_max, Instant now) {
  const RendezvousState& state = run.state;
  RunReport report{.id = run.id,
                   .phase = PhaseOf(run),
                   .round = state.round,
                   .generation = run.generation,
                   .settings = run.settings,
                   .world_size = state.complete ? state.WorldSize() : 0,
                   .participants = static_cast<int64_t>(state.participants.size()),
                   .waiting = static_cast<int64_t>(state.wait_list.size()),
                   .spares = static_cast<int64_t>(state.redundancy_list.size()),
                   .closed_by = state.closed_by};
  report.idle = static_cast<int64_t>(run.members.size()) - report.participants - report.waiting -
                report.spares;
  if (report.phase == Phase::kLastCall && run.observed.last_call_since()) {
    report.last_call_left = std::max<Duration>(LastCallEnds(run) - now, 0s);
  }
  const bool some_are_held =
      report.waiting > 0 && run.waiting_sent == 0 && report.waiting < run.missing;
  if (report.phase == Phase::kComplete && some_are_held && run.held_until > now)
    report.held_left = run.held_until - now;
  ByRole known;
  if (names_max > kFew) known = All(run);
  const std::array counts = {report.participants, report.waiting, report.spares, report.idle};
  for (const Role role : kRoles) {
    const auto index = static_cast<size_t>(role);
    if (names_max <= kFew)
      known[index] = Some(run, role, std::min(names_max, static_cast<size_t>(counts[index])), now);
    AddMembers(report, run, role, std::move(known[index]), names_max, now);
  }
  return report;
}

std::string Coordinator::Missing(const Run& run) {
  const RendezvousState& state = run.state;
  std::vector<std::string> names;
  for (const auto& [node, rank] : state.participants) {
    if (names.size() == kNamesInMessage) break;
    names.push_back(node.ToString());
  }
  const auto here = static_cast<int64_t>(state.participants.size());
  const std::string who =
      Concat(" (", ListOf(names, kNamesInMessage, state.participants.size()), ")");
  if (state.complete) {
    return Concat("round ", state.round, " goes on with ", here, " of its members", who);
  }
  const int64_t needed = std::max<int64_t>(run.settings.min_nodes - here, 0);
  return Concat("round ", state.round, ": ", here, " of ", run.settings.max_nodes,
                " nodes are here", here == 0 ? "" : who, ", ", needed, " more ",
                needed == 1 ? "is" : "are", " needed");
}

}  // namespace muster
