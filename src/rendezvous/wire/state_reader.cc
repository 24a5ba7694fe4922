#include "rendezvous/wire/state_reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/calendar.h"
#include "base/limits.h"
#include "base/text.h"
#include "rendezvous/wire/pickle_machine.h"
#include "rendezvous/wire/pickle_writer.h"
#include "rendezvous/wire/state_names.h"

namespace muster::wire {

namespace {

using Kind = PickleKind;
using enum StateAttribute;

/// Far from where counting on would overflow.
constexpr int64_t kRoundMax = int64_t{1} << 62;
constexpr int64_t kRanksMax = kStateNodesMax;

/// How many bytes the texts and unknown values of a state may have in all. With the memo, one byte
/// can stand for a node of 200: real states unfold to twice their size, and hostile ones must not
/// get far beyond that.
size_t UnfoldedBytesMax(size_t pickle_bytes) {
  return std::min<size_t>(8 * pickle_bytes + 64 * 1024, 2 * kStateBytesMax);
}

/// An object's attributes by name: the known ones in the order of `known`, the others sorted. Where
/// a name comes twice the last one counts, as in Python, and only it is looked at.
template <size_t kCount>
struct Attributes {
  std::array<PickleId, kCount> known;
  std::map<std::string_view, PickleId> unknown;
};

class StateReader {
 public:
  explicit StateReader(const PickleTree& tree)
      : tree_(tree), budget_(UnfoldedBytesMax(tree.bytes().size())) {}

  Result<RendezvousState> Read();

 private:
  template <size_t kCount>
  Attributes<kCount> Sort(PickleId dict, const std::array<std::string_view, kCount>& names) const;
  Status Spend(size_t bytes);
  Status KeepUnknown(const std::map<std::string_view, PickleId>& attributes,
                     std::map<std::string, std::string>& kept);

  // Values of the kind that the attribute `name` needs.
  Error Wrong(std::string_view name, PickleId found, std::string_view wanted) const;
  Result<PickleId> Expect(std::string_view name, PickleId found, Kind kind) const;
  Result<bool> Bool(std::string_view name, PickleId found) const;
  Result<int64_t> Int(std::string_view name, PickleId found) const;
  /// From 0 to `max`.
  Result<int64_t> Count(std::string_view name, PickleId found, int64_t max) const;
  Result<WallTime> Time(std::string_view name, PickleId found);
  Result<std::string> Text(std::string_view name, PickleId found);
  Result<const Node*> NodeAt(std::string_view name, PickleId found);
  Result<Node> MakeNode(PickleId found);
  Status Collection(std::string_view name, PickleId found, Kind kind) const;
  Result<std::set<Node>> Nodes(std::string_view name, PickleId found);

  const PickleTree& tree_;
  size_t budget_;
  RendezvousState state_;
  std::unordered_map<PickleId, Node> nodes_;  // those that have been looked at
};

Result<RendezvousState> StateReader::Read() {
  const PickleValue& root = tree_[tree_.root];
  if (root.kind != Kind::kInstance || root.of != PickleClass::kState) {
    return Error{Code::kProtocol,
                 Concat(root.kind == Kind::kInstance ? "a node" : Describe(root.kind), " at byte ",
                        root.at, " instead of a rendezvous state")};
  }
  if (root.first == kNoPickleId) {
    return Error{Code::kProtocol, Concat("the state at byte ", root.at, " has no attributes")};
  }
  const auto attributes = Sort(root.first, kStateAttributes);
  const auto find = [&](StateAttribute which) {
    return attributes.known[static_cast<size_t>(which)];
  };
  MUSTER_TRY(state_.round, Count(NameOf(kRound), find(kRound), kRoundMax));
  MUSTER_TRY(state_.complete, Bool(NameOf(kComplete), find(kComplete)));
  const PickleId deadline = find(kDeadline);
  if (deadline == kNoPickleId || tree_[deadline].kind != Kind::kNone) {
    MUSTER_TRY(state_.deadline, Time(NameOf(kDeadline), deadline));
  }
  MUSTER_TRY(state_.closed, Bool(NameOf(kClosed), find(kClosed)));
  MUSTER_CHECK_OK(Collection(NameOf(kParticipants), find(kParticipants), Kind::kDict));
  for (const PickleItem& item : tree_.ItemsOf(find(kParticipants))) {
    MUSTER_TRY(const Node* node, NodeAt(NameOf(kParticipants), item.key));
    MUSTER_TRY(const int64_t rank, Count(NameOf(kParticipants), item.value, kRanksMax));
    state_.participants.insert_or_assign(*node, rank);
  }
  MUSTER_TRY(state_.wait_list, Nodes(NameOf(kWaitList), find(kWaitList)));
  if (find(kRedundancyList) != kNoPickleId) {  // PyTorch up to 2.2 has none
    MUSTER_TRY(state_.redundancy_list, Nodes(NameOf(kRedundancyList), find(kRedundancyList)));
  }
  MUSTER_CHECK_OK(Collection(NameOf(kLastHeartbeats), find(kLastHeartbeats), Kind::kDict));
  for (const PickleItem& item : tree_.ItemsOf(find(kLastHeartbeats))) {
    MUSTER_TRY(const Node* node, NodeAt(NameOf(kLastHeartbeats), item.key));
    MUSTER_TRY(const WallTime time, Time(NameOf(kLastHeartbeats), item.value));
    state_.last_heartbeats.insert_or_assign(*node, time);
  }
  if (find(kClosedBy) != kNoPickleId) {
    MUSTER_TRY(state_.closed_by, Text(NameOf(kClosedBy), find(kClosedBy)));
  }
  if (find(kCompletedRound) != kNoPickleId) {
    RendezvousState::Completion completion;
    MUSTER_TRY(completion.round, Count(NameOf(kCompletedRound), find(kCompletedRound), kRoundMax));
    MUSTER_TRY(completion.world_size, Count(NameOf(kWorldSize), find(kWorldSize), kRanksMax));
    state_.completion = completion;
  }
  MUSTER_CHECK_OK(KeepUnknown(attributes.unknown, state_.unknown));
  return std::move(state_);
}

template <size_t kCount>
Attributes<kCount> StateReader::Sort(PickleId dict,
                                     const std::array<std::string_view, kCount>& names) const {
  Attributes<kCount> sorted;
  sorted.known.fill(kNoPickleId);
  for (const PickleItem& item : tree_.ItemsOf(dict)) {
    const std::string_view name = tree_.Content(item.key);
    const auto known = std::find(names.begin(), names.end(), name);
    if (known == names.end()) {
      sorted.unknown.insert_or_assign(name, item.value);
    } else {
      sorted.known[static_cast<size_t>(known - names.begin())] = item.value;
    }
  }
  return sorted;
}

Status StateReader::Spend(size_t bytes) {
  if (bytes > budget_) {
    return Error{Code::kProtocol,
                 Concat("the state's ", HumanBytes(tree_.bytes().size()), " unfold to too many")};
  }
  budget_ -= bytes;
  return Ok();
}

Status StateReader::KeepUnknown(const std::map<std::string_view, PickleId>& attributes,
                                std::map<std::string, std::string>& kept) {
  if (attributes.size() > kStateUnknownMax) {
    return Error{Code::kProtocol,
                 Concat(attributes.size(), " attributes of one object that nobody ",
                        "knows, limit ", kStateUnknownMax)};
  }
  for (const auto& [name, value] : attributes) {
    MUSTER_CHECK_OK(Spend(name.size()));
    MUSTER_CHECK_OK(AppendCopy(kept[std::string(name)], tree_, value, budget_));
  }
  return Ok();
}

// --- Values

Error StateReader::Wrong(std::string_view name, PickleId found, std::string_view wanted) const {
  if (found == kNoPickleId) return Error{Code::kProtocol, Concat("no attribute '", name, "'")};
  return Error{Code::kProtocol, Concat("attribute '", name, "': ", Describe(tree_[found].kind),
                                       " at byte ", tree_[found].at, " instead of ", wanted)};
}

Result<PickleId> StateReader::Expect(std::string_view name, PickleId found, Kind kind) const {
  if (found == kNoPickleId || tree_[found].kind != kind) return Wrong(name, found, Describe(kind));
  return found;
}

Result<bool> StateReader::Bool(std::string_view name, PickleId found) const {
  MUSTER_TRY(const PickleId id, Expect(name, found, Kind::kBool));
  return tree_[id].number != 0;
}

Result<int64_t> StateReader::Int(std::string_view name, PickleId found) const {
  MUSTER_TRY(const PickleId id, Expect(name, found, Kind::kInt));
  if (!tree_[id].fits) return Wrong(name, found, "one of 64 bits");
  return tree_[id].number;
}

Result<int64_t> StateReader::Count(std::string_view name, PickleId found, int64_t max) const {
  MUSTER_TRY(const int64_t number, Int(name, found));
  if (number >= 0 && number <= max) return number;
  return Error{Code::kProtocol, Concat("attribute '", name, "': ", number, " at byte ",
                                       tree_[found].at, " is not from 0 to ", max)};
}

Result<WallTime> StateReader::Time(std::string_view name, PickleId found) {
  MUSTER_TRY(const PickleId id, Expect(name, found, Kind::kDateTime));
  const WallTime time{tree_[id].number};
  // Far from UTC, the first and the last day of the calendar reach out of it.
  if (time < kWallTimeMin || time > kWallTimeMax) {
    return Wrong(name, found, "one in the years 1 to 9999 of UTC");
  }
  if (!tree_[id].fits) state_.naive_times = true;
  return time;
}

Result<std::string> StateReader::Text(std::string_view name, PickleId found) {
  MUSTER_TRY(const PickleId id, Expect(name, found, Kind::kText));
  MUSTER_CHECK_OK(Spend(tree_.Content(id).size()));
  return std::string(tree_.Content(id));
}

// --- Nodes

/// The same object occurs several times, in a list and in the heartbeats; it is read once.
Result<const Node*> StateReader::NodeAt(std::string_view name, PickleId found) {
  const PickleValue& value = tree_[found];
  if (value.kind != Kind::kInstance || value.of != PickleClass::kNode) {
    return Wrong(name, found, "a node");
  }
  const auto known = nodes_.find(found);
  if (known != nodes_.end()) return &known->second;
  MUSTER_TRY(Node node, MakeNode(found));
  return &nodes_.emplace(found, std::move(node)).first->second;
}

Result<Node> StateReader::MakeNode(PickleId found) {
  const PickleValue& value = tree_[found];
  if (value.first == kNoPickleId) {
    return Error{Code::kProtocol, Concat("the node at byte ", value.at, " has no attributes")};
  }
  const auto attributes = Sort(value.first, kNodeAttributes);
  const auto [addr, pid, local_id] = attributes.known;
  if (addr == kNoPickleId && attributes.unknown.contains("fqdn")) {
    return Error{Code::kProtocol, Concat("the node at byte ", value.at,
                                         " has 'fqdn' instead of 'addr': it runs PyTorch 1.x")};
  }
  Node node;
  MUSTER_TRY(node.addr, Text(kNodeAttributes[0], addr));
  MUSTER_TRY(node.pid, Int(kNodeAttributes[1], pid));
  MUSTER_TRY(node.local_id, Int(kNodeAttributes[2], local_id));
  if (node.addr.size() > kNodeAddressBytesMax) {
    return Error{Code::kProtocol, Concat("the node at byte ", value.at, " has an address of ",
                                         node.addr.size(), " bytes, limit ", kNodeAddressBytesMax)};
  }
  if (!attributes.unknown.empty()) {
    std::map<std::string, std::string> kept;
    MUSTER_CHECK_OK(KeepUnknown(attributes.unknown, kept));
    // Two objects may describe one node; Python keeps the first one as key, and so do we.
    state_.unknown_of_nodes.emplace(node, std::move(kept));
  }
  return node;
}

Status StateReader::Collection(std::string_view name, PickleId found, Kind kind) const {
  MUSTER_TRY(const PickleId id, Expect(name, found, kind));
  if (tree_[id].size <= kStateNodesMax) return Ok();
  return Error{Code::kProtocol, Concat("attribute '", name, "': ", tree_[id].size, " nodes, limit ",
                                       kStateNodesMax)};
}

Result<std::set<Node>> StateReader::Nodes(std::string_view name, PickleId found) {
  MUSTER_CHECK_OK(Collection(name, found, Kind::kSet));
  std::set<Node> nodes;
  for (const PickleItem& item : tree_.ItemsOf(found)) {
    MUSTER_TRY(const Node* node, NodeAt(name, item.value));
    nodes.insert(*node);
  }
  return nodes;
}

}  // namespace

Result<RendezvousState> ReadState(std::string_view pickle) {
  MUSTER_TRY(const PickleTree tree, RunPickle(pickle));
  return StateReader(tree).Read();
}

}  // namespace muster::wire
