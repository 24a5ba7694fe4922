#include "base/assert.h"
#include "base/limits.h"
#include "base/text.h"
#include "rendezvous/wire/pickle.h"

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
  // As many bytes as needed to keep the sign: higher bytes may only repeat the highest bit of the
  // last one.
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

  /// The only recursive function here, at most kStateDepthMax levels deep. May append one value too
  /// many before it fails.
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
      case PickleKind::kInstance:
      case PickleKind::kDateTime:
      case PickleKind::kTimeZone:
      case PickleKind::kTimeDelta:
        MUSTER_CHECK_OK(Object(value, depth));
        break;
      default:
        out_ += tree_.Encoded(id);
    }
    return out_.size() <= size_max_ ? Ok() : Unfolds(tree_);
  }

 private:
  void Put(PickleOp op) { AppendOp(out_, op); }

  Status Object(const PickleValue& value, size_t depth) {
    AppendText(out_, NameOf(value.of).module);
    AppendText(out_, NameOf(value.of).name);
    Put(PickleOp::kStackGlobal);
    const bool is_instance = value.kind == PickleKind::kInstance;
    if (is_instance) Put(PickleOp::kEmptyTuple);
    if (is_instance) Put(PickleOp::kNewObj);
    if (value.first == kNoPickleId) return Ok();  // a class, or an object without attributes
    MUSTER_CHECK_OK(Copy(value.first, depth + 1));
    Put(is_instance ? PickleOp::kBuild : PickleOp::kReduce);
    return Ok();
  }

  Status Tuple(PickleId id, size_t depth) {
    constexpr PickleOp kShort[] = {PickleOp::kEmptyTuple, PickleOp::kTuple1, PickleOp::kTuple2,
                                   PickleOp::kTuple3};
    const auto count = static_cast<size_t>(tree_[id].number);
    const bool is_short = count < std::size(kShort);
    if (!is_short) Put(PickleOp::kMark);
    for (const PickleItem& item : tree_.ItemsOf(id)) MUSTER_CHECK_OK(Copy(item.value, depth + 1));
    Put(is_short ? kShort[count] : PickleOp::kTuple);
    return Ok();
  }

  Status Groups(PickleId id, PickleOp empty, PickleOp add, size_t depth) {
    Put(empty);
    size_t in_group = 0;
    for (const PickleItem& item : tree_.ItemsOf(id)) {
      if (in_group == 0) Put(PickleOp::kMark);
      if (item.key != kNoPickleId) MUSTER_CHECK_OK(Copy(item.key, depth + 1));
      MUSTER_CHECK_OK(Copy(item.value, depth + 1));
      in_group = (in_group + 1) % kPickleBatch;
      if (in_group == 0) Put(add);
    }
    if (in_group != 0) Put(add);
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
