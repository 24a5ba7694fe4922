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
// There is no list of the idle, and of thousands not all are looked at to name a few.
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

MemberReport MemberOf(const Coordinator::Run& run, const Coordinator::Member& member, Role role,
                      Instant now) {
  MemberReport report{.node = member.node,
                      .role = role,
                      .silent_for = now - member.seen_at,
                      .connected = member.session.has_value(),
                      .label = member.label};
  report.late = !report.connected || report.silent_for > run.rules.missed_after();
  if (role == Role::kParticipant && run.state.complete)
    report.rank = run.state.participants.at(member.node);
  return report;
}

// The nodes of one role. Where only a few may be shown, looking at all of them would be too much to
// ask for each of thousands that wait: the first few by name, and the first few of those not heard
// for longest.
std::vector<MemberReport> Some(const Coordinator::Run& run, Role role, size_t names_max,
                               size_t idle, Instant now) {
  std::vector<MemberReport> found;
  const auto add = [&](const Coordinator::Member& member) {
    const auto same = [&](const MemberReport& there) { return there.node == member.node; };
    if (found.size() < names_max && std::ranges::none_of(found, same))
      found.push_back(MemberOf(run, member, role, now));
  };
  const auto add_late = [&](const Coordinator::Member& member) {
    if (RoleOf(run.state, member.node) == role) add(member);
  };
  for (const Coordinator::Due& due : run.broken) {
    if (found.size() == names_max) break;
    add_late(*due.member);
  }
  for (const Coordinator::Member* member : run.by_silence) {
    if (found.size() == names_max || now - member->seen_at <= run.rules.missed_after()) break;
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

std::vector<MemberReport> Many(const Coordinator::Run& run, Role role, size_t names_max,
                               Instant now) {
  std::vector<MemberReport> found;
  for (const auto& [node, member] : run.members) {
    if (RoleOf(run.state, node) == role) found.push_back(MemberOf(run, member, role, now));
  }
  if (found.size() > names_max) {
    std::stable_partition(found.begin(), found.end(), [](const auto& one) { return one.late; });
    found.resize(names_max);
  }
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
                     .lost = run->fallen.count};
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
    const Instant ends = *run.observed.last_call_since() + run.rules.timeout.last_call;
    report.last_call_left = std::max<Duration>(ends - now, 0s);
  }
  for (const Role role : kRoles) {
    std::vector<MemberReport> some =
        names_max <= kFew ? Some(run, role, names_max, static_cast<size_t>(report.idle), now)
                          : Many(run, role, names_max, now);
    std::ranges::stable_sort(some, {}, &MemberReport::rank);
    std::ranges::move(some, std::back_inserter(report.members));
  }
  return report;
}

std::string Coordinator::Missing(const Run& run) {
  const RendezvousState& state = run.state;
  std::vector<std::string> names;
  for (const auto& [node, rank] : state.participants) {
    if (names.size() == kNamesTold) break;
    names.push_back(node.ToString());
  }
  const auto here = static_cast<int64_t>(state.participants.size());
  const std::string who = Concat(" (", ListOf(names, kNamesTold, state.participants.size()), ")");
  if (state.complete) {
    return Concat("round ", state.round, " goes on with ", here, " of its members", who);
  }
  const int64_t needed = std::max<int64_t>(run.rules.min_nodes - here, 0);
  return Concat("round ", state.round, ": ", here, " of ", run.rules.max_nodes, " nodes are here",
                here == 0 ? "" : who, ", ", needed, " more ", needed == 1 ? "is" : "are",
                " needed");
}

}  // namespace muster
