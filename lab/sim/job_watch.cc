#include "sim/job_watch.h"

#include <algorithm>

#include "base/text.h"

namespace muster::sim {

namespace {

struct Span {
  int64_t first;
  int64_t count;
};

bool Overlap(Span a, Span b) { return a.first < b.first + b.count && b.first < a.first + a.count; }

std::string Name(RoundId id) { return Concat("round ", id.round, " (life ", id.epoch, ")"); }

}  // namespace

JobFigures& JobFigures::operator+=(const JobFigures& other) {
  launchers += other.launchers;
  succeeded += other.succeeded;
  attempts += other.attempts;
  workers += other.workers;
  restarts += other.restarts;
  return *this;
}

void JobWatch::SeeClosed(Epoch epoch, const RendezvousState& state) {
  last_rounds_.try_emplace(epoch, state.complete ? state.round : state.round - 1);
}

void JobWatch::SeeStart(size_t node, RoundId id, const Placement& place) {
  ++figures.attempts;
  figures.workers += static_cast<uint64_t>(plan_.RoleOf(node).workers);
  const auto closed = last_rounds_.find(id.epoch);
  if (closed != last_rounds_.end() && id.round > closed->second)
    checkers_.Violate(Concat("node ", node, " starts workers in ", Name(id),
                             ", and the rendezvous was closed after round ", closed->second));
  Round& round = rounds_[id];
  Member& member = round.members[node];
  if (member.place)
    return checkers_.Violate(Concat("node ", node, " starts workers in ", Name(id), " again"));
  member.place = place;
  CheckRanks(node, round, id);
  const auto started = std::ranges::count_if(
      round.members, [](const auto& each) { return each.second.place.has_value(); });
  if (started == place.group_world_size) CheckAllRanks(round, id);
}

void JobWatch::CheckRanks(size_t node, const Round& round, RoundId id) {
  const Placement& place = *round.members.at(node).place;
  const NodeRole role = plan_.RoleOf(node);
  const Span ranks{place.ranks.first_rank, role.workers};
  const Span role_ranks{place.ranks.first_role_rank, role.workers};
  const auto complain = [&](const std::string& what) {
    checkers_.Violate(Concat("node ", node, " in ", Name(id), ": ", what));
  };
  if (ranks.first < 0 || ranks.first + ranks.count > place.ranks.world_size)
    complain(Concat("its workers are ", ranks.first, " to ", ranks.first + ranks.count - 1, " of ",
                    place.ranks.world_size));
  if (role_ranks.first < 0 || role_ranks.first + role_ranks.count > place.ranks.role_world_size)
    complain(Concat("its workers are ", role_ranks.first, " to ",
                    role_ranks.first + role_ranks.count - 1, " of the ",
                    place.ranks.role_world_size, " of their role"));
  for (const auto& [other, member] : round.members) {
    if (other == node || !member.place) continue;
    const AssignedRanks& theirs = member.place->ranks;
    const NodeRole other_role = plan_.RoleOf(other);
    if (theirs.world_size != place.ranks.world_size)
      complain(Concat("there are ", place.ranks.world_size, " workers; node ", other, " reports ",
                      theirs.world_size));
    if (Overlap(ranks, {theirs.first_rank, other_role.workers}))
      complain(Concat("some of its workers have the ranks of node ", other, "'s"));
    if (role.role != other_role.role) continue;
    if (theirs.role_world_size != place.ranks.role_world_size)
      complain(Concat("its role has ", place.ranks.role_world_size, " workers; node ", other,
                      " reports ", theirs.role_world_size));
    if (Overlap(role_ranks, {theirs.first_role_rank, other_role.workers}))
      complain(Concat("some of its workers have the role ranks of node ", other, "'s"));
  }
}

// Each rank was checked to be within the world, and no two members have one in common. If their
// number is right, none is missing.
void JobWatch::CheckAllRanks(const Round& round, RoundId id) {
  int64_t all = 0;
  std::map<std::string, int64_t> of_role;
  for (const auto& [node, member] : round.members) {
    const NodeRole role = plan_.RoleOf(node);
    all += role.workers;
    of_role[role.role] += role.workers;
  }
  for (const auto& [node, member] : round.members) {
    const AssignedRanks& ranks = member.place->ranks;
    if (ranks.world_size != all || ranks.role_world_size != of_role[plan_.RoleOf(node).role])
      checkers_.Violate(Concat("node ", node, " in ", Name(id), " believes in ", ranks.world_size,
                               " workers, ", ranks.role_world_size, " of its role; they are ", all,
                               " and ", of_role[plan_.RoleOf(node).role]));
  }
}

void JobWatch::SeeAllSucceeded(size_t node, RoundId id) {
  const Round& round = rounds_[id];
  const auto succeeded =
      std::ranges::count_if(round.members, [](const auto& each) { return each.second.succeeded; });
  const int64_t expected = round.members.at(node).place->group_world_size;
  if (succeeded != expected)
    checkers_.Violate(Concat("node ", node, " ends, for all have succeeded; of ", Name(id),
                             " only ", succeeded, " of ", expected, " nodes have"));
}

void JobWatch::SeeNodeLost(RoundId id, WorldTime when) {
  Round& round = rounds_[id];
  if (!round.lost_at) round.lost_at = when;
}

void JobWatch::SeePaid(size_t node, RoundId id, WorldTime failed_at) {
  ++figures.restarts;
  Round& round = rounds_[id];
  const std::optional<size_t> before = round.payer;
  if (!before) round.payer = node;
  if (!plan_.BlameIsClear()) return;
  if (before)
    checkers_.Violate(
        Concat("node ", node, " pays for the end of ", Name(id), ", as node ", *before, " has"));
  if (round.lost_at && *round.lost_at < failed_at)
    checkers_.Violate(Concat("node ", node, " pays for the end of ", Name(id),
                             ", in which another node had died before"));
}

}  // namespace muster::sim
