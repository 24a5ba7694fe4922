#include "sim/checkers.h"

#include <algorithm>

#include "base/text.h"

namespace muster::sim {

namespace {

// A notified node is woken at once, and works only until its thread has run.
constexpr Duration kReactionTime = 1ms;

}  // namespace

void Checkers::SeeState(Epoch epoch, const RendezvousState& state) {
  const Seen before = last_;
  last_ = {epoch, state.round, state.complete, state.closed, state.participants.size()};
  const bool same_life = epoch == before.epoch;
  const size_t count = state.participants.size();
  if (same_life && state.round < before.round)
    Violate(Concat("round ", state.round, " after round ", before.round));
  if (same_life && before.closed && !state.closed) Violate("closed, and open again");
  if (count > static_cast<size_t>(settings_.max_nodes))
    Violate(Concat(count, " participants, max_nodes is ", settings_.max_nodes));
  if (few_nodes_) CheckMembers(state);
  if (!state.complete) return;
  const bool is_new = !before.complete || !same_life || before.round != state.round;
  if (is_new) {
    CheckCompleted(epoch, state);
  } else if (few_nodes_) {
    CheckRunning(epoch, state);
  }
}

void Checkers::CheckMembers(const RendezvousState& state) {
  for (const auto& [node, rank] : state.participants) {
    if (state.wait_list.contains(node) || state.redundancy_list.contains(node))
      Violate(Concat(node.ToString(), " is in the round and waits for one"));
  }
  for (const Node& node : state.wait_list) {
    if (state.redundancy_list.contains(node))
      Violate(Concat(node.ToString(), " waits for a round and is a spare"));
  }
}

void Checkers::CheckCompleted(Epoch epoch, const RendezvousState& state) {
  const auto [round, is_new] = rounds_.try_emplace({epoch, state.round});
  if (!is_new) return Violate(Concat("round ", state.round, " was completed a second time"));
  round->second.ranks = state.participants;
  const auto count = static_cast<int64_t>(state.participants.size());
  if (count < settings_.min_nodes)
    Violate(Concat("round ", state.round, " was completed with ", count, " nodes, min_nodes is ",
                   settings_.min_nodes));
  std::vector<bool> taken(static_cast<size_t>(count));
  for (const auto& [node, rank] : state.participants) {
    if (rank < 0 || rank >= count) return Violate(Concat("rank ", rank, " in a round of ", count));
    if (taken[static_cast<size_t>(rank)])
      return Violate(Concat("rank ", rank, " twice in round ", state.round));
    taken[static_cast<size_t>(rank)] = true;
    if (rank == 0) round->second.first = node;
  }
  // In the order of their names, unless the policy differs. (With more than nine hosts "natural"
  // and "text" differ.)
  const bool by_name =
      settings_.policy == RankPolicy::kNatural || settings_.policy == RankPolicy::kText;
  if ((by_name || ranks_by_name_) && count < 10) {
    int64_t expected = 0;
    for (const auto& [node, rank] : state.participants) {
      if (rank != expected++) Violate(Concat(node.ToString(), " is rank ", rank, ", out of order"));
    }
  }
  if (state.WorldSize() != count)
    Violate(
        Concat("round ", state.round, " has ", count, " nodes and reports ", state.WorldSize()));
}

void Checkers::CheckRunning(Epoch epoch, const RendezvousState& state) {
  Round& round = rounds_.at({epoch, state.round});
  round.sizes.insert(static_cast<int64_t>(state.participants.size()));
  for (const auto& [node, rank] : state.participants) {
    const auto first = round.ranks.find(node);
    if (first == round.ranks.end())
      return Violate(
          Concat(node.ToString(), " came into round ", state.round, " after it was completed"));
    if (first->second != rank)
      return Violate(Concat(node.ToString(), " had rank ", first->second, " of round ", state.round,
                            ", and now ", rank));
  }
}

std::optional<Epoch> Checkers::SeeJoined(const Joined& joined) {
  const RendezvousInfo& info = joined.info;
  const auto complain = [&](const std::string& what) {
    Violate(
        Concat(joined.who, " (", joined.node.ToString(), ") in round ", info.round, ": ", what));
  };
  if (info.round <= joined.round_before && !joined.is_torch_node)
    complain(Concat("it was in round ", joined.round_before, " before"));
  // The round that it means: of this life of the server, or of an earlier life that it last saw.
  Round* round = nullptr;
  Epoch life = joined.known_to + 1;
  while (life > 0 && round == nullptr) {
    const auto found = rounds_.find({--life, info.round});
    if (found == rounds_.end()) continue;
    const auto place = found->second.ranks.find(joined.node);
    if (place == found->second.ranks.end()) continue;
    round = &found->second;
    // A node may be late with a round of an earlier life that etcd has completed again since.
    const bool may_be_it = place->second == info.rank &&
                           std::ssize(round->ranks) == info.world_size &&
                           round->first.addr == info.bootstrap_store_info.master_addr;
    if (goes_back_ && !may_be_it && life > 1) round = nullptr;
  }
  if (round == nullptr) {
    complain("no node has completed such a round with it");
    return std::nullopt;
  }
  const int64_t rank = round->ranks.at(joined.node);
  if (rank != info.rank)
    complain(Concat("it believes that it is rank ", info.rank, ", and is ", rank));
  const auto count = static_cast<int64_t>(round->ranks.size());
  // PyTorch's nodes write no size. With them, the number of nodes in the state that is read counts.
  // They themselves count the nodes that they believe alive.
  const bool agrees = info.world_size == count ||
                      (has_torch_nodes_ && round->sizes.contains(info.world_size)) ||
                      (joined.is_torch_node && info.world_size < count);
  if (!agrees) complain(Concat("it believes in ", info.world_size, " nodes of ", count));
  const auto [place, is_first] = round->joined.try_emplace(info.rank, joined.node.ToString());
  if (!is_first) complain(Concat("rank ", info.rank, " was given to ", place->second, " already"));
  if (info.bootstrap_store_info.master_addr != round->first.addr)
    complain(Concat("its workers meet at ", info.bootstrap_store_info.master_addr,
                    ", and rank 0 is ", round->first.ToString()));
  if (!round->master) round->master = info.bootstrap_store_info;
  if (*round->master != info.bootstrap_store_info)
    complain(Concat("its workers meet at ", info.bootstrap_store_info.master_addr, ":",
                    info.bootstrap_store_info.master_port, ", others at ",
                    round->master->master_addr, ":", round->master->master_port));
  return life;
}

void Checkers::SeeWork(const std::string& who, int64_t round, Duration out_for) {
  if (out_for <= kReactionTime) return;
  Violate(Concat(who, " works in round ", round, ", ", out_for.count() / 1000,
                 " us after it was notified that it is out"));
}

void Checkers::SeeClosed(const std::string& who, bool closed, bool& was_closed) {
  if (was_closed && !closed) Violate(Concat(who, " knew that it was closed, and has forgotten"));
  was_closed = was_closed || closed;
}

void Checkers::SeePlace(const std::string& who, int64_t round, bool knew_closed) {
  if (knew_closed) Violate(Concat(who, " knew that it was closed, and is in round ", round));
}

void Checkers::SeeStale(const RunPicture& before, const RunPicture& after) {
  if (before.state != after.state)
    return Violate("a message of an earlier session has changed the state");
  if (before.members != after.members)
    Violate(Concat("a message of an earlier session has changed a member: from ", before.members,
                   " to ", after.members));
}

}  // namespace muster::sim
