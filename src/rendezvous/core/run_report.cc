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

MemberReport MemberOf(const Coordinator::Run& run, const Coordinator::Member& member, Role role,
                      int64_t rank, Instant now) {
  return {.node = member.node,
          .role = role,
          .rank = rank,
          .silent_for = now - member.seen_at,
          .connected = member.session.has_value(),
          .late = IsLate(run, member, now),
          .label = member.label};
}

int64_t RankOf(const Coordinator::Run& run, const Coordinator::Member& member, Role role) {
  const bool has_one = role == Role::kParticipant && run.state.complete;
  return has_one ? run.state.participants.at(member.node) : -1;
}

// A few nodes of one role: the longest silent, then the first by name. Each of thousands of waiting
// nodes may request this, so it must not visit all of them.
std::vector<MemberReport> Some(const Coordinator::Run& run, Role role, size_t names_max,
                               size_t idle, Instant now) {
  std::vector<MemberReport> found;
  const auto add = [&](const Coordinator::Member& member) {
    const auto same = [&](const MemberReport& there) { return there.node == member.node; };
    if (found.size() < names_max && std::ranges::none_of(found, same))
      found.push_back(MemberOf(run, member, role, RankOf(run, member, role), now));
  };
  const auto add_late = [&](const Coordinator::Member& member) {
    if (RoleOf(run.state, member.node) == role) add(member);
  };
  for (const Coordinator::Due& due : run.broken) {
    if (found.size() == names_max) break;
    add_late(*due.member);
  }
  for (const Coordinator::Member* member : run.by_silence) {
    if (found.size() == names_max || now - member->seen_at <= run.settings.missed_after()) break;
    add_late(*member);
  }
  const auto add_nodes = [&](const std::set<Node>& nodes) {
    for (const Node& node : nodes) {
      if (found.size() == names_max) break;
      add(run.members.at(node));
    }
  };
  if (role == Role::kWaiting) add_nodes(run.state.wait_list);
  if (role == Role::kSpare) add_nodes(run.state.redundancy_list);
  if (role == Role::kParticipant) {
    for (const auto& [node, rank] : run.state.participants) {
      if (found.size() == names_max) break;
      add(run.members.at(node));
    }
  }
  if (role == Role::kIdle) {
    size_t looks = 0;
    for (const auto& [node, member] : run.members) {
      if (found.size() == std::min(names_max, idle) || ++looks > kLooksMax) break;
      add_late(member);
    }
  }
  return found;
}

struct Known {
  int64_t rank;
  const Coordinator::Member* member;
};
using ByRole = std::array<std::vector<Known>, kRoles.size()>;

// All nodes by role, in one walk: members and the lists of the round have the same order.
ByRole Sort(const Coordinator::Run& run) {
  const RendezvousState& state = run.state;
  ByRole found;
  const auto is_next = [](auto& at, const auto& list, const Node& node, const auto& node_of) {
    while (at != list.end() && node_of(*at) < node) ++at;
    return at != list.end() && node_of(*at) == node;
  };
  const auto self = [](const Node& node) -> const Node& { return node; };
  const auto first = [](const auto& pair) -> const Node& { return pair.first; };
  auto participant = state.participants.begin();
  auto waiting = state.wait_list.begin();
  auto spare = state.redundancy_list.begin();
  for (const auto& [node, member] : run.members) {
    Role role = Role::kIdle;
    if (is_next(participant, state.participants, node, first)) {
      role = Role::kParticipant;
    } else if (is_next(waiting, state.wait_list, node, self)) {
      role = Role::kWaiting;
    } else if (is_next(spare, state.redundancy_list, node, self)) {
      role = Role::kSpare;
    }
    const bool has_rank = role == Role::kParticipant && state.complete;
    found[static_cast<size_t>(role)].push_back({has_rank ? participant->second : -1, &member});
  }
  return found;
}

// Copies only the members that are shown.
std::vector<MemberReport> Many(const Coordinator::Run& run, Role role, std::vector<Known> nodes,
                               size_t names_max, Instant now) {
  if (nodes.size() > names_max) {
    std::stable_partition(nodes.begin(), nodes.end(),
                          [&](const Known& known) { return IsLate(run, *known.member, now); });
    nodes.resize(names_max);
  }
  std::ranges::stable_sort(nodes, {}, &Known::rank);
  std::vector<MemberReport> found;
  found.reserve(nodes.size());
  for (const auto& [rank, member] : nodes) found.push_back(MemberOf(run, *member, role, rank, now));
  return found;
}

}  // namespace

std::optional<RunSnapshot> Coordinator::Snapshot(std::string_view run_id) const {
  const Run* run = Find(run_id);
  if (run == nullptr) return std::nullopt;
  return RunSnapshot{.settings = run->settings,
                     .settings_of = run->settings_of,
                     .round = run->state.round,
                     .closed = run->state.closed,
                     .closed_by = run->state.closed_by,
                     .waiting = static_cast<int64_t>(run->state.wait_list.size()),
                     .lost = run->losses.count};
}

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
  ByRole all;
  if (names_max > kFew) all = Sort(run);
  for (const Role role : kRoles) {
    std::vector<MemberReport> some;
    if (names_max > kFew) {
      some = Many(run, role, std::move(all[static_cast<size_t>(role)]), names_max, now);
    } else {
      some = Some(run, role, names_max, static_cast<size_t>(report.idle), now);
      std::ranges::stable_sort(some, {}, &MemberReport::rank);
    }
    std::ranges::move(some, std::back_inserter(report.members));
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
