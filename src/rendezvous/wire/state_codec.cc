#include "rendezvous/wire/state_codec.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/calendar.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rendezvous/wire/pickle.h"

namespace muster::wire {

namespace {

using Kind = PickleKind;
using Op = PickleOp;

/// Far below the value at which counting would overflow.
constexpr int64_t kRoundMax = int64_t{1} << 62;
constexpr int64_t kRanksMax = kStateNodesMax;

constexpr std::string_view kWorldSize = "muster_world_size";
constexpr std::string_view kNodeAttributes[] = {"addr", "pid", "local_id"};

// The attributes of a state in the order in which they are written. The same walk reads and writes
// them.
template <typename Walk, typename State>
Status Attributes(Walk& walk, State& state) {
  MUSTER_CHECK_OK(walk("round", state.round, kRoundMax));
  MUSTER_CHECK_OK(walk("complete", state.complete));
  MUSTER_CHECK_OK(walk("deadline", state.deadline));
  MUSTER_CHECK_OK(walk("closed", state.closed));
  MUSTER_CHECK_OK(walk("participants", state.participants));
  MUSTER_CHECK_OK(walk("wait_list", state.wait_list));
  // PyTorch up to 2.2 writes none.
  if (walk.Has("redundancy_list", true))
    MUSTER_CHECK_OK(walk("redundancy_list", state.redundancy_list));
  MUSTER_CHECK_OK(walk("last_heartbeats", state.last_heartbeats));
  // Attributes of muster. PyTorch's agents do not know them, but keep them.
  if (walk.Has("muster_closed_by", !state.closed_by.empty()))
    MUSTER_CHECK_OK(walk("muster_closed_by", state.closed_by));
  if (walk.Has("muster_completed_round", state.completion.has_value())) {
    auto completion = state.completion.value_or(RendezvousState::Completion{});
    MUSTER_CHECK_OK(walk("muster_completed_round", completion.round, kRoundMax));
    MUSTER_CHECK_OK(walk(kWorldSize, completion.world_size, kRanksMax));
    if constexpr (!std::is_const_v<State>) state.completion = completion;
  }
  return Ok();
}

/// The limit for all bytes of the texts and unknown values of a state. With the memo, one byte can
/// represent a node of 200 bytes: real states unfold to twice their size, and hostile ones must not
/// get far beyond that.
size_t UnfoldedBytesMax(size_t pickle_bytes) {
  return std::min<size_t>(8 * pickle_bytes + 64 * 1024, 2 * kStateBytesMax);
}

template <typename... Pieces>
Error Wrong(const Pieces&... pieces) {
  return {Code::kProtocol, Concat(pieces...)};
}

class StateReader {
 public:
  explicit StateReader(const PickleTree& tree)
      : tree_(tree), budget_(UnfoldedBytesMax(tree.bytes.size())) {}

  Result<RendezvousState> Read() {
    const PickleValue& root = tree_[tree_.root];
    if (root.kind != Kind::kInstance || root.of != PickleClass::kState) {
      return Wrong(root.kind == Kind::kInstance ? "a node" : Describe(root.kind), " at byte ",
                   root.at, " instead of a rendezvous state");
    }
    if (root.first == kNoPickleId)
      return Wrong("the state at byte ", root.at, " has no attributes");
    attributes_ = AttributesOf(root);
    MUSTER_CHECK_OK(Attributes(*this, state_));
    attributes_.erase(kWorldSize);  // it has no meaning without a round
    MUSTER_CHECK_OK(KeepUnknown(attributes_, state_.unknown));
    return std::move(state_);
  }

  // --- For the walk

  bool Has(std::string_view name, bool) const { return attributes_.contains(name); }

  template <typename T, typename... Max>
  Status operator()(std::string_view name, T& value, Max... max) {
    return Take(name, TakeOut(attributes_, name), value, max...);
  }

 private:
  using AttributeMap = std::map<std::string_view, PickleId>;

  // If a name occurs twice the last one counts, as in Python, and only that one is read.
  AttributeMap AttributesOf(const PickleValue& object) const {
    AttributeMap attributes;
    for (const PickleItem& item : tree_.ItemsOf(object.first))
      attributes.insert_or_assign(tree_.Content(item.key), item.value);
    return attributes;
  }

  static PickleId TakeOut(AttributeMap& attributes, std::string_view name) {
    const auto found = attributes.extract(name);
    return found.empty() ? kNoPickleId : found.mapped();
  }

  Status Spend(size_t bytes) {
    if (bytes > budget_) return Unfolds(tree_);
    budget_ -= bytes;
    return Ok();
  }

  Status KeepUnknown(const AttributeMap& attributes, std::map<std::string, std::string>& kept) {
    if (attributes.size() > kStateUnknownMax) {
      return Wrong(attributes.size(), " unknown attributes of one object, limit ",
                   kStateUnknownMax);
    }
    for (const auto& [name, value] : attributes) {
      MUSTER_CHECK_OK(Spend(name.size()));
      MUSTER_CHECK_OK(AppendCopy(kept[std::string(name)], tree_, value, budget_));
    }
    return Ok();
  }

  // --- Values of the kind that the attribute `name` needs

  Error WrongValue(std::string_view name, PickleId found, std::string_view wanted) const {
    if (found == kNoPickleId) return Wrong("no attribute '", name, "'");
    return Wrong("attribute '", name, "': ", Describe(tree_[found].kind), " at byte ",
                 tree_[found].at, " instead of ", wanted);
  }

  Result<PickleValue> Expect(std::string_view name, PickleId found, Kind kind) const {
    if (found != kNoPickleId && tree_[found].kind == kind) return tree_[found];
    return WrongValue(name, found, Describe(kind));
  }

  Result<int64_t> Int(std::string_view name, PickleId found) const {
    MUSTER_TRY(const PickleValue value, Expect(name, found, Kind::kInt));
    if (!value.fits) return WrongValue(name, found, "one of 64 bits");
    return value.number;
  }

  Status Take(std::string_view name, PickleId found, bool& value) const {
    MUSTER_TRY(const PickleValue read, Expect(name, found, Kind::kBool));
    value = read.number != 0;
    return Ok();
  }

  /// From 0 to `max`.
  Status Take(std::string_view name, PickleId found, int64_t& value,
              int64_t max = kRanksMax) const {
    MUSTER_TRY(value, Int(name, found));
    if (value >= 0 && value <= max) return Ok();
    return Wrong("attribute '", name, "': ", value, " at byte ", tree_[found].at,
                 " is not from 0 to ", max);
  }

  Status Take(std::string_view name, PickleId found, WallTime& time) {
    MUSTER_TRY(const PickleValue read, Expect(name, found, Kind::kDateTime));
    time = WallTime{read.number};
    // With an offset, a time on the first or last day of the calendar may be outside it.
    if (time < kWallTimeMin || time > kWallTimeMax)
      return WrongValue(name, found, "one in the years 1 to 9999 of UTC");
    if (!read.fits) state_.naive_times = true;
    return Ok();
  }

  Status Take(std::string_view name, PickleId found, std::optional<WallTime>& time) {
    if (found != kNoPickleId && tree_[found].kind == Kind::kNone) return Ok();
    return Take(name, found, time.emplace());
  }

  Status Take(std::string_view name, PickleId found, std::string& text) {
    MUSTER_CHECK_OK(Expect(name, found, Kind::kText));
    text = tree_.Content(found);
    return Spend(text.size());
  }

  // --- Nodes

  Status MustBeCollection(std::string_view name, PickleId found, Kind kind) const {
    MUSTER_TRY(const PickleValue value, Expect(name, found, kind));
    if (value.number <= kRanksMax) return Ok();
    return Wrong("attribute '", name, "': ", value.number, " nodes, limit ", kStateNodesMax);
  }

  template <typename T>
  Status Take(std::string_view name, PickleId found, std::map<Node, T>& nodes) {
    MUSTER_CHECK_OK(MustBeCollection(name, found, Kind::kDict));
    for (const PickleItem& item : tree_.ItemsOf(found)) {
      MUSTER_TRY(const Node* node, NodeAt(name, item.key));
      // States with sorted nodes are the fastest to read.
      MUSTER_CHECK_OK(Take(name, item.value, nodes.try_emplace(nodes.end(), *node)->second));
    }
    return Ok();
  }

  Status Take(std::string_view name, PickleId found, std::set<Node>& nodes) {
    MUSTER_CHECK_OK(MustBeCollection(name, found, Kind::kSet));
    for (const PickleItem& item : tree_.ItemsOf(found)) {
      MUSTER_TRY(const Node* node, NodeAt(name, item.value));
      nodes.insert(nodes.end(), *node);
    }
    return Ok();
  }

  /// The same object occurs several times, in a list and in the heartbeats; it is read once.
  Result<const Node*> NodeAt(std::string_view name, PickleId found) {
    const PickleValue& value = tree_[found];
    if (value.kind != Kind::kInstance || value.of != PickleClass::kNode)
      return WrongValue(name, found, "a node");
    const auto known = nodes_.find(found);
    if (known != nodes_.end()) return &known->second;
    MUSTER_TRY(Node node, ReadNode(value));
    return &nodes_.emplace(found, std::move(node)).first->second;
  }

  Result<Node> ReadNode(const PickleValue& value) {
    if (value.first == kNoPickleId)
      return Wrong("the node at byte ", value.at, " has no attributes");
    AttributeMap attributes = AttributesOf(value);
    const auto [addr, pid, local_id] = kNodeAttributes;
    if (!attributes.contains(addr) && attributes.contains("fqdn")) {
      return Wrong("the node at byte ", value.at,
                   " has 'fqdn' instead of 'addr': it runs PyTorch 1.x");
    }
    Node node;
    MUSTER_CHECK_OK(Take(addr, TakeOut(attributes, addr), node.addr));
    MUSTER_TRY(node.pid, Int(pid, TakeOut(attributes, pid)));
    MUSTER_TRY(node.local_id, Int(local_id, TakeOut(attributes, local_id)));
    if (node.addr.size() > kNodeAddressBytesMax) {
      return Wrong("the node at byte ", value.at, " has an address of ", node.addr.size(),
                   " bytes, limit ", kNodeAddressBytesMax);
    }
    if (!attributes.empty()) {
      std::map<std::string, std::string> kept;
      MUSTER_CHECK_OK(KeepUnknown(attributes, kept));
      // Two objects may describe one node; like Python, this keeps the first one as key.
      state_.unknown_of_nodes.emplace(node, std::move(kept));
    }
    return node;
  }

  const PickleTree& tree_;
  size_t budget_;
  RendezvousState state_;
  AttributeMap attributes_;                   // of the state, those that are not read yet
  std::unordered_map<PickleId, Node> nodes_;  // nodes that have been read
};

class StateWriter {
 public:
  explicit StateWriter(const RendezvousState& state) : state_(state) {}

  std::string Write() {
    Object(PickleClass::kState);
    Put(Op::kEmptyDict);
    Put(Op::kMark);
    const Status written = Attributes(*this, state_);
    MUSTER_ASSERT(written.has_value());
    Unknown(state_.unknown);
    Put(Op::kSetItems);
    Put(Op::kBuild);
    Put(Op::kStop);

    std::string pickle;
    pickle.reserve(out_.size() + 11);
    AppendOp(pickle, Op::kProto);
    AppendInt(pickle, kPickleProtocol);
    AppendOp(pickle, Op::kFrame);
    AppendInt<uint64_t>(pickle, out_.size());
    return pickle += out_;
  }

  // --- For the walk

  static bool Has(std::string_view, bool wanted) { return wanted; }

  template <typename T, typename... Max>
  Status operator()(std::string_view name, const T& value, Max...) {
    AppendText(out_, name);
    Put(value);
    return Ok();
  }

 private:
  // --- The memo. Only values that are likely to occur again get a number: each number costs a
  // byte.

  uint32_t Memoize() {
    Put(Op::kMemoize);
    return memo_size_++;
  }

  void Recall(uint32_t number) {
    if (!AppendIfFits<uint8_t>(out_, Op::kBinGet, number))
      AppendIfFits<uint32_t>(out_, Op::kLongBinGet, number);
  }

  void SharedText(std::string_view text) {
    const auto known = texts_.find(text);
    if (known != texts_.end()) return Recall(known->second);
    AppendText(out_, text);
    texts_.emplace(text, Memoize());
  }

  void Class(PickleClass which) {
    auto& known = classes_[static_cast<size_t>(which)];
    if (known) return Recall(*known);
    SharedText(NameOf(which).module);
    SharedText(NameOf(which).name);
    Put(Op::kStackGlobal);
    known = Memoize();
  }

  // --- Values

  void Put(Op op) { AppendOp(out_, op); }
  void Put(bool value) { Put(value ? Op::kNewTrue : Op::kNewFalse); }
  void Put(int64_t number) { AppendNumber(out_, number); }
  void Put(const std::string& text) { AppendText(out_, ReplaceInvalidUtf8(text)); }
  void Put(const std::optional<WallTime>& time) { time ? Put(*time) : Put(Op::kNone); }

  void Put(WallTime time) {
    Class(PickleClass::kDateTime);
    const std::string payload = WriteDatetime(time);
    Put(Op::kShortBinBytes);
    AppendInt(out_, static_cast<uint8_t>(payload.size()));
    out_ += payload;
    if (!state_.naive_times) Zone();
    Put(state_.naive_times ? Op::kTuple1 : Op::kTuple2);
    Put(Op::kReduce);
  }

  /// UTC, which Python creates from a difference of zero.
  void Zone() {
    if (zone_) return Recall(*zone_);
    Class(PickleClass::kTimeZone);
    Class(PickleClass::kTimeDelta);
    for (int i = 0; i < 3; ++i) Put(int64_t{0});
    Put(Op::kTuple3);
    Put(Op::kReduce);
    Put(Op::kTuple1);
    Put(Op::kReduce);
    zone_ = Memoize();
  }

  void Object(PickleClass which) {
    Class(which);
    Put(Op::kEmptyTuple);
    Put(Op::kNewObj);
  }

  void Unknown(const std::map<std::string, std::string>& attributes) {
    for (const auto& [name, value] : attributes) {
      AppendText(out_, name);
      out_ += value;  // opcodes that do not change the memo
    }
  }

  void Put(const Node& node) {
    const auto known = nodes_.find(node);
    if (known != nodes_.end()) return Recall(known->second);
    MUSTER_ASSERT(IsUtf8(node.addr));
    MUSTER_ASSERT(node.addr.size() <= kNodeAddressBytesMax);
    Object(PickleClass::kNode);
    nodes_.emplace(node, Memoize());
    Put(Op::kEmptyDict);
    Put(Op::kMark);
    SharedText(kNodeAttributes[0]);
    AppendText(out_, node.addr);
    SharedText(kNodeAttributes[1]);
    Put(node.pid);
    SharedText(kNodeAttributes[2]);
    Put(node.local_id);
    const auto unknown = state_.unknown_of_nodes.find(node);
    if (unknown != state_.unknown_of_nodes.end()) Unknown(unknown->second);
    Put(Op::kSetItems);
    Put(Op::kBuild);
  }

  template <typename T>
  void Put(const std::pair<const Node, T>& item) {
    Put(item.first);
    Put(item.second);
  }

  template <typename T>
  void Put(const std::map<Node, T>& nodes) {
    PutItems(nodes, Op::kEmptyDict, Op::kSetItems);
  }
  void Put(const std::set<Node>& nodes) { PutItems(nodes, Op::kEmptySet, Op::kAddItems); }

  void PutItems(const auto& items, Op empty, Op add) {
    Put(empty);
    size_t in_group = 0;
    for (const auto& item : items) {
      if (in_group == 0) Put(Op::kMark);
      Put(item);
      in_group = (in_group + 1) % kPickleBatch;
      if (in_group == 0) Put(add);
    }
    if (in_group != 0) Put(add);
  }

  const RendezvousState& state_;
  std::string out_;
  uint32_t memo_size_ = 0;
  std::map<std::string_view, uint32_t> texts_;  // of constants
  std::array<std::optional<uint32_t>, kPickleClasses.size()> classes_;
  std::optional<uint32_t> zone_;
  std::map<std::reference_wrapper<const Node>, uint32_t, std::less<Node>> nodes_;
};

}  // namespace

Result<RendezvousState> ReadState(std::string_view pickle) {
  MUSTER_TRY(const PickleTree tree, RunPickle(pickle));
  return StateReader(tree).Read();
}

std::string WriteState(const RendezvousState& state) { return StateWriter(state).Write(); }

}  // namespace muster::wire
