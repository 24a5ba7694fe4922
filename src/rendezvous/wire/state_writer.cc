#include "rendezvous/wire/state_writer.h"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/calendar.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "rendezvous/wire/pickle_writer.h"
#include "rendezvous/wire/state_names.h"

namespace muster::wire {

namespace {

using Op = PickleOp;
using enum StateAttribute;

class StateWriter {
 public:
  explicit StateWriter(const RendezvousState& state) : state_(state) {}

  std::string Write();

 private:
  void Put(Op op) { AppendOp(out_, op); }
  void Name(StateAttribute which) { AppendText(out_, NameOf(which)); }

  // The memo. Only what is likely to come again gets a number: each costs a byte.
  uint32_t Memoize();
  void Recall(uint32_t number);
  void SharedText(std::string_view text);
  void Class(PickleClass which);

  void Object(PickleClass which);
  void Bool(bool value) { Put(value ? Op::kNewTrue : Op::kNewFalse); }
  void Unknown(const std::map<std::string, std::string>& attributes);
  void PutNode(const Node& node);
  void Time(WallTime time);
  void Zone();
  template <typename Items, typename PutItem>
  void Collection(const Items& items, Op empty, Op add, PutItem put_item);

  struct ByValue {
    bool operator()(const Node* a, const Node* b) const { return *a < *b; }
  };

  const RendezvousState& state_;
  std::string out_;
  uint32_t memo_size_ = 0;
  std::map<std::string_view, uint32_t> texts_;  // of constants
  std::array<std::optional<uint32_t>, kPickleClasses.size()> classes_;
  std::optional<uint32_t> zone_;
  std::map<const Node*, uint32_t, ByValue> nodes_;
};

std::string StateWriter::Write() {
  Object(PickleClass::kState);
  Put(Op::kEmptyDict);
  Put(Op::kMark);
  Name(kRound);
  AppendNumber(out_, state_.round);
  Name(kComplete);
  Bool(state_.complete);
  Name(kDeadline);
  state_.deadline ? Time(*state_.deadline) : Put(Op::kNone);
  Name(kClosed);
  Bool(state_.closed);
  Name(kParticipants);
  Collection(state_.participants, Op::kEmptyDict, Op::kSetItems, [this](const auto& item) {
    PutNode(item.first);
    AppendNumber(out_, item.second);
  });
  const auto put_node = [this](const Node& node) { PutNode(node); };
  Name(kWaitList);
  Collection(state_.wait_list, Op::kEmptySet, Op::kAddItems, put_node);
  Name(kRedundancyList);
  Collection(state_.redundancy_list, Op::kEmptySet, Op::kAddItems, put_node);
  Name(kLastHeartbeats);
  Collection(state_.last_heartbeats, Op::kEmptyDict, Op::kSetItems, [this](const auto& item) {
    PutNode(item.first);
    Time(item.second);
  });
  if (!state_.closed_by.empty()) {
    Name(kClosedBy);
    AppendText(out_, ReplaceInvalidUtf8(state_.closed_by));
  }
  if (state_.completion) {
    Name(kCompletedRound);
    AppendNumber(out_, state_.completion->round);
    Name(kWorldSize);
    AppendNumber(out_, state_.completion->world_size);
  }
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

// --- The memo

uint32_t StateWriter::Memoize() {
  Put(Op::kMemoize);
  return memo_size_++;
}

void StateWriter::Recall(uint32_t number) {
  if (number <= 0xff) {
    Put(Op::kBinGet);
    AppendInt(out_, static_cast<uint8_t>(number));
  } else {
    Put(Op::kLongBinGet);
    AppendInt(out_, number);
  }
}

void StateWriter::SharedText(std::string_view text) {
  const auto known = texts_.find(text);
  if (known != texts_.end()) return Recall(known->second);
  AppendText(out_, text);
  texts_.emplace(text, Memoize());
}

void StateWriter::Class(PickleClass which) {
  auto& known = classes_[static_cast<size_t>(which)];
  if (known) return Recall(*known);
  SharedText(NameOf(which).module);
  SharedText(NameOf(which).name);
  Put(Op::kStackGlobal);
  known = Memoize();
}

// --- Values

void StateWriter::Object(PickleClass which) {
  Class(which);
  Put(Op::kEmptyTuple);
  Put(Op::kNewObj);
}

void StateWriter::Unknown(const std::map<std::string, std::string>& attributes) {
  for (const auto& [name, value] : attributes) {
    AppendText(out_, name);
    out_ += value;  // opcodes that leave the memo alone
  }
}

void StateWriter::PutNode(const Node& node) {
  const auto known = nodes_.find(&node);
  if (known != nodes_.end()) return Recall(known->second);
  MUSTER_ASSERT(IsUtf8(node.addr));
  MUSTER_ASSERT(node.addr.size() <= kNodeAddressBytesMax);
  Object(PickleClass::kNode);
  nodes_.emplace(&node, Memoize());
  Put(Op::kEmptyDict);
  Put(Op::kMark);
  SharedText(kNodeAttributes[0]);
  AppendText(out_, node.addr);
  SharedText(kNodeAttributes[1]);
  AppendNumber(out_, node.pid);
  SharedText(kNodeAttributes[2]);
  AppendNumber(out_, node.local_id);
  const auto unknown = state_.unknown_of_nodes.find(node);
  if (unknown != state_.unknown_of_nodes.end()) Unknown(unknown->second);
  Put(Op::kSetItems);
  Put(Op::kBuild);
}

void StateWriter::Time(WallTime time) {
  Class(PickleClass::kDateTime);
  const std::string payload = WriteDatetime(time);
  Put(Op::kShortBinBytes);
  AppendInt(out_, static_cast<uint8_t>(payload.size()));
  out_ += payload;
  if (!state_.naive_times) Zone();
  Put(state_.naive_times ? Op::kTuple1 : Op::kTuple2);
  Put(Op::kReduce);
}

/// UTC, which Python makes of a difference of zero.
void StateWriter::Zone() {
  if (zone_) return Recall(*zone_);
  Class(PickleClass::kTimeZone);
  Class(PickleClass::kTimeDelta);
  for (int i = 0; i < 3; ++i) AppendNumber(out_, 0);
  Put(Op::kTuple3);
  Put(Op::kReduce);
  Put(Op::kTuple1);
  Put(Op::kReduce);
  zone_ = Memoize();
}

template <typename Items, typename PutItem>
void StateWriter::Collection(const Items& items, Op empty, Op add, PutItem put_item) {
  Put(empty);
  size_t in_group = 0;
  for (const auto& item : items) {
    if (in_group == 0) Put(Op::kMark);
    put_item(item);
    in_group = (in_group + 1) % kPickleBatch;
    if (in_group == 0) Put(add);
  }
  if (in_group != 0) Put(add);
}

}  // namespace

std::string WriteState(const RendezvousState& state) { return StateWriter(state).Write(); }

}  // namespace muster::wire
