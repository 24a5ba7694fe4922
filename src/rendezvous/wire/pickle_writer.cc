#include "rendezvous/wire/pickle_writer.h"

#include "base/limits.h"
#include "base/text.h"

namespace muster::wire {

void AppendText(std::string& out, std::string_view text) {
  const bool fits = AppendIfFits<uint8_t>(out, PickleOp::kShortBinUnicode, text.size()) ||
                    AppendIfFits<uint32_t>(out, PickleOp::kBinUnicode, text.size());
  MUSTER_ASSERT(fits);
  out += text;
}

void AppendNumber(std::string& out, int64_t number) {
  if (AppendIfFits<uint8_t>(out, PickleOp::kBinInt1, number) ||
      AppendIfFits<uint16_t>(out, PickleOp::kBinInt2, number) ||
      AppendIfFits<int32_t>(out, PickleOp::kBinInt, number)) {
    return;
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
  /// `size_max`: of `out`.
  Copier(std::string& out, const PickleTree& tree, size_t size_max)
      : out_(out), tree_(tree), size_max_(size_max) {}

  /// The one function here that calls itself, kStateDepthMax levels deep at most. May append one
  /// value too many before it fails.
  Status Copy(PickleId id, size_t depth) {
    const PickleValue& value = tree_[id];
    if (depth > kStateDepthMax) {
      return Error{Code::kProtocol, Concat("a value at byte ", value.at, " is nested more than ",
                                           kStateDepthMax, " levels deep, or in itself")};
    }
    switch (value.kind) {
      case PickleKind::kTuple:
        MUSTER_CHECK_OK(Tuple(id, depth));
        break;
      case PickleKind::kList:
        MUSTER_CHECK_OK(Groups(id, PickleOp::kEmptyList, PickleOp::kAppends, depth));
        break;
      case PickleKind::kDict:
        MUSTER_CHECK_OK(Groups(id, PickleOp::kEmptyDict, PickleOp::kSetItems, depth));
        break;
      case PickleKind::kSet:
        MUSTER_CHECK_OK(Groups(id, PickleOp::kEmptySet, PickleOp::kAddItems, depth));
        break;
      case PickleKind::kClass:
        Class(value.of);
        break;
      case PickleKind::kInstance:
        Class(value.of);
        AppendOp(out_, PickleOp::kEmptyTuple);
        AppendOp(out_, PickleOp::kNewObj);
        if (value.first == kNoPickleId) break;
        MUSTER_CHECK_OK(Copy(value.first, depth + 1));
        AppendOp(out_, PickleOp::kBuild);
        break;
      case PickleKind::kDateTime:
      case PickleKind::kTimeZone:
      case PickleKind::kTimeDelta:
        Class(value.of);
        MUSTER_CHECK_OK(Copy(value.first, depth + 1));
        AppendOp(out_, PickleOp::kReduce);
        break;
      default:
        out_ += tree_.Encoded(id);
    }
    return out_.size() <= size_max_ ? Ok() : Unfolds(tree_);
  }

 private:
  void Class(PickleClass which) {
    AppendText(out_, NameOf(which).module);
    AppendText(out_, NameOf(which).name);
    AppendOp(out_, PickleOp::kStackGlobal);
  }

  Status Tuple(PickleId id, size_t depth) {
    constexpr PickleOp kShort[] = {PickleOp::kEmptyTuple, PickleOp::kTuple1, PickleOp::kTuple2,
                                   PickleOp::kTuple3};
    const size_t count = tree_[id].size;
    const bool is_short = count < std::size(kShort);
    if (!is_short) AppendOp(out_, PickleOp::kMark);
    for (const PickleItem& item : tree_.ItemsOf(id)) MUSTER_CHECK_OK(Copy(item.value, depth + 1));
    AppendOp(out_, is_short ? kShort[count] : PickleOp::kTuple);
    return Ok();
  }

  Status Groups(PickleId id, PickleOp empty, PickleOp add, size_t depth) {
    AppendOp(out_, empty);
    size_t in_group = 0;
    for (const PickleItem& item : tree_.ItemsOf(id)) {
      if (in_group == 0) AppendOp(out_, PickleOp::kMark);
      if (item.key != kNoPickleId) MUSTER_CHECK_OK(Copy(item.key, depth + 1));
      MUSTER_CHECK_OK(Copy(item.value, depth + 1));
      in_group = (in_group + 1) % kPickleBatch;
      if (in_group == 0) AppendOp(out_, add);
    }
    if (in_group != 0) AppendOp(out_, add);
    return Ok();
  }

  std::string& out_;
  const PickleTree& tree_;
  const size_t size_max_;
};

}  // namespace

Status AppendCopy(std::string& out, const PickleTree& tree, PickleId id, size_t& budget) {
  const size_t size_max = out.size() + budget;
  MUSTER_CHECK_OK(Copier(out, tree, size_max).Copy(id, 0));
  budget = size_max - out.size();
  return Ok();
}

}  // namespace muster::wire
