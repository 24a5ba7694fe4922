#include "rendezvous/wire/pickle_writer.h"

#include <limits>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"

namespace muster::wire {

void AppendText(std::string& out, std::string_view text) {
  if (text.size() <= std::numeric_limits<uint8_t>::max()) {
    AppendOp(out, PickleOp::kShortBinUnicode);
    AppendInt(out, static_cast<uint8_t>(text.size()));
  } else {
    MUSTER_ASSERT(text.size() <= std::numeric_limits<uint32_t>::max());
    AppendOp(out, PickleOp::kBinUnicode);
    AppendInt(out, static_cast<uint32_t>(text.size()));
  }
  out += text;
}

void AppendNumber(std::string& out, int64_t number) {
  if (number >= 0 && number <= std::numeric_limits<uint8_t>::max()) {
    AppendOp(out, PickleOp::kBinInt1);
    return AppendInt(out, static_cast<uint8_t>(number));
  }
  if (number >= 0 && number <= std::numeric_limits<uint16_t>::max()) {
    AppendOp(out, PickleOp::kBinInt2);
    return AppendInt(out, static_cast<uint16_t>(number));
  }
  if (number == static_cast<int32_t>(number)) {
    AppendOp(out, PickleOp::kBinInt);
    return AppendInt(out, static_cast<int32_t>(number));
  }
  // As many bytes as keep the sign: those above the last one must only repeat its highest bit.
  uint8_t size = sizeof number;
  while ((number >> (8 * size - 9)) == (number < 0 ? -1 : 0)) --size;
  AppendOp(out, PickleOp::kLong1);
  AppendInt(out, size);
  for (unsigned i = 0; i < size; ++i) out += static_cast<char>(number >> (8 * i) & 0xff);
}

Error Unfolds(const PickleTree& tree) {
  return {Code::kProtocol,
          Concat("the state's ", HumanBytes(tree.bytes.size()), " unfold to too many")};
}

namespace {

class Copier {
 public:
  Copier(std::string& out, const PickleTree& tree, size_t& budget)
      : out_(out), tree_(tree), budget_(budget) {}

  /// The one function here that calls itself, kStateDepthMax levels deep at most.
  Status Copy(PickleId id, size_t depth) {
    const PickleValue& value = tree_[id];
    if (depth > kStateDepthMax) {
      return Error{Code::kProtocol, Concat("a value at byte ", value.at, " is nested more than ",
                                           kStateDepthMax, " levels deep, or in itself")};
    }
    switch (value.kind) {
      case PickleKind::kTuple:
        return Tuple(id, depth);
      case PickleKind::kList:
        return Groups(id, PickleOp::kEmptyList, PickleOp::kAppends, depth);
      case PickleKind::kDict:
        return Groups(id, PickleOp::kEmptyDict, PickleOp::kSetItems, depth);
      case PickleKind::kSet:
        return Groups(id, PickleOp::kEmptySet, PickleOp::kAddItems, depth);
      case PickleKind::kClass:
        return Class(value.of);
      case PickleKind::kInstance:
        return Instance(value, depth);
      case PickleKind::kDateTime:
      case PickleKind::kTimeZone:
      case PickleKind::kTimeDelta:
        MUSTER_CHECK_OK(Class(value.of));
        MUSTER_CHECK_OK(Copy(value.first, depth + 1));
        return Emit(PickleOp::kReduce);
      default:
        return Emit(tree_.Encoded(id));
    }
  }

 private:
  Status Emit(std::string_view bytes) {
    if (bytes.size() > budget_) return Unfolds(tree_);
    budget_ -= bytes.size();
    out_ += bytes;
    return Ok();
  }
  Status Emit(PickleOp op) {
    const char byte = static_cast<char>(op);
    return Emit({&byte, 1});
  }

  Status Class(PickleClass which) {
    std::string reference;
    AppendText(reference, NameOf(which).module);
    AppendText(reference, NameOf(which).name);
    AppendOp(reference, PickleOp::kStackGlobal);
    return Emit(reference);
  }

  Status Instance(const PickleValue& value, size_t depth) {
    MUSTER_CHECK_OK(Class(value.of));
    MUSTER_CHECK_OK(Emit(PickleOp::kEmptyTuple));
    MUSTER_CHECK_OK(Emit(PickleOp::kNewObj));
    if (value.first == kNoPickleId) return Ok();
    MUSTER_CHECK_OK(Copy(value.first, depth + 1));
    return Emit(PickleOp::kBuild);
  }

  Status Tuple(PickleId id, size_t depth) {
    constexpr PickleOp kShort[] = {PickleOp::kEmptyTuple, PickleOp::kTuple1, PickleOp::kTuple2,
                                   PickleOp::kTuple3};
    const size_t count = tree_[id].size;
    const bool is_short = count < std::size(kShort);
    if (!is_short) MUSTER_CHECK_OK(Emit(PickleOp::kMark));
    for (const PickleItem& item : tree_.ItemsOf(id)) MUSTER_CHECK_OK(Copy(item.value, depth + 1));
    return Emit(is_short ? kShort[count] : PickleOp::kTuple);
  }

  Status Groups(PickleId id, PickleOp empty, PickleOp add, size_t depth) {
    MUSTER_CHECK_OK(Emit(empty));
    size_t in_group = 0;
    for (const PickleItem& item : tree_.ItemsOf(id)) {
      if (in_group == 0) MUSTER_CHECK_OK(Emit(PickleOp::kMark));
      if (item.key != kNoPickleId) MUSTER_CHECK_OK(Copy(item.key, depth + 1));
      MUSTER_CHECK_OK(Copy(item.value, depth + 1));
      in_group = (in_group + 1) % kPickleBatch;
      if (in_group == 0) MUSTER_CHECK_OK(Emit(add));
    }
    return in_group == 0 ? Ok() : Emit(add);
  }

  std::string& out_;
  const PickleTree& tree_;
  size_t& budget_;
};

}  // namespace

Status AppendCopy(std::string& out, const PickleTree& tree, PickleId id, size_t& budget) {
  return Copier(out, tree, budget).Copy(id, 0);
}

}  // namespace muster::wire
