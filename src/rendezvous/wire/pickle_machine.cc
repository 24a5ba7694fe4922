#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rendezvous/wire/pickle.h"

namespace muster::wire {

namespace {

using Kind = PickleKind;
using Op = PickleOp;

// Python's opcodes that are not in PickleOp, and PROTO, which is refused except at the beginning.
constexpr std::pair<uint8_t, std::string_view> kForeign[] = {
    {'c', "GLOBAL"},       {'i', "INST"},
    {'o', "OBJ"},          {0x92, "NEWOBJ_EX"},
    {'P', "PERSID"},       {'Q', "BINPERSID"},
    {0x82, "EXT1"},        {0x83, "EXT2"},
    {0x84, "EXT4"},        {'I', "INT"},
    {'L', "LONG"},         {0x8b, "LONG4"},
    {'F', "FLOAT"},        {'S', "STRING"},
    {'T', "BINSTRING"},    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},      {0x8d, "BINUNICODE8"},
    {0x8e, "BINBYTES8"},   {0x96, "BYTEARRAY8"},
    {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
    {'l', "LIST"},         {'d', "DICT"},
    {0x91, "FROZENSET"},   {'0', "POP"},
    {'1', "POP_MARK"},     {'2', "DUP"},
    {'p', "PUT"},          {'q', "BINPUT"},
    {'r', "LONG_BINPUT"},  {'g', "GET"},
    {0x80, "PROTO"},
};

// "0x63 (GLOBAL)", for messages.
std::string OpcodeName(uint8_t opcode) {
  std::string shown = Concat("0x", Hex(opcode, 2));
  for (const auto& [foreign, name] : kForeign) {
    if (foreign == opcode) shown += Concat(" (", name, ')');
  }
  return shown;
}

bool IsMutable(Kind kind) {
  return kind == Kind::kList || kind == Kind::kDict || kind == Kind::kSet;
}

class Machine {
 public:
  explicit Machine(std::string_view bytes) : tree_{.bytes = bytes} {}

  Result<PickleTree> Run() {
    if (tree_.bytes.size() > kStateBytesMax) {
      return Error{Code::kProtocol, Concat("a state of ", HumanBytes(tree_.bytes.size()),
                                           ", limit ", HumanBytes(kStateBytesMax))};
    }
    MUSTER_CHECK_OK(Header());
    while (true) {
      at_ = next_;
      MUSTER_TRY(const auto opcode, TakeInt<uint8_t>());
      if (Op{opcode} == Op::kStop) return Stop();
      const Step step = kSteps[opcode];
      if (step == nullptr) {
        return Error{Code::kProtocol, Concat("opcode ", OpcodeName(opcode), " at byte ", at_,
                                             " is not part of a rendezvous state")};
      }
      MUSTER_CHECK_OK((this->*step)());
    }
  }

 private:
  using Step = Status (Machine::*)();
  /// By opcode; null: refused.
  static const std::array<Step, 256> kSteps;

  // --- Reading the bytes

  /// All failures name the opcode at which they happened.
  template <typename... Pieces>
  Error Fail(const Pieces&... pieces) const {
    return Error{Code::kProtocol, Concat(pieces..., " at byte ", at_)};
  }

  size_t left() const { return tree_.bytes.size() - next_; }

  Result<std::string_view> Take(size_t count) {
    if (left() < count) {
      return Fail("the state ends after ", tree_.bytes.size(), " bytes, ", count,
                  " more were expected from byte ", next_, " on, for the opcode");
    }
    next_ += count;
    return tree_.bytes.substr(next_ - count, count);
  }

  template <typename Int>
  Result<Int> TakeInt() {
    MUSTER_TRY(const std::string_view raw, Take(sizeof(Int)));
    return LoadInt<Int>(raw.data());
  }

  Status Header() {
    MUSTER_TRY(const auto opcode, TakeInt<uint8_t>());
    if (Op{opcode} != Op::kProto) return Fail("no protocol number, but ", opcode);
    MUSTER_TRY(const auto protocol, TakeInt<uint8_t>());
    if (protocol < kPickleProtocol || protocol > kPickleProtocolMax) {
      return Fail("pickle protocol ", protocol, " instead of 4 or 5");
    }
    return Ok();
  }

  Status Frame() {
    MUSTER_TRY(const auto size, TakeInt<uint64_t>());
    if (size <= left()) return Ok();
    return Fail("a frame of ", size, " bytes where ", left(), " are left");
  }

  Result<PickleTree> Stop() {
    if (!marks_.empty() || stack_.size() != 1) {
      return Fail("the end, with ", stack_.size(), " values and ", marks_.size(),
                  " open groups instead of one state");
    }
    if (left() != 0) return Fail(left(), " bytes after the end");
    tree_.root = stack_.back();
    return std::move(tree_);
  }

  // --- The stack. Values below the innermost open group cannot be used.

  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  Status Need(size_t count) const {
    if (stack_.size() - floor() >= count) return Ok();
    return Fail("an opcode that takes ", count, " values where there are ",
                stack_.size() - floor());
  }

  Status Push(PickleId id) {
    if (stack_.size() >= kStateStackMax)
      return Fail("more than ", kStateStackMax, " pending values");
    stack_.push_back(id);
    return Ok();
  }

  Status PushNew(PickleValue value) {
    if (tree_.values.size() >= kStateValuesMax)
      return Fail("more than ", kStateValuesMax, " values");
    value.at = static_cast<uint32_t>(at_);
    value.size = static_cast<uint32_t>(next_ - at_);
    tree_.values.push_back(value);
    return Push(static_cast<PickleId>(tree_.values.size() - 1));
  }

  PickleId Pop() {
    MUSTER_ASSERT(stack_.size() > floor());
    const PickleId top = stack_.back();
    stack_.pop_back();
    return top;
  }

  Status Mark() {
    // More than the nesting of values, because those are inside groups of the state itself.
    constexpr size_t kMost = 2 * kStateDepthMax;
    if (marks_.size() >= kMost) return Fail("more than ", kMost, " open groups");
    marks_.push_back(stack_.size());
    return Ok();
  }

  /// Closes the innermost group; returns its position on the stack. At least `below` usable values
  /// must be below it.
  Result<size_t> CloseGroup(size_t below) {
    if (marks_.empty()) return Fail("the end of a group that was not opened");
    const size_t start = marks_.back();
    marks_.pop_back();
    if (start - floor() < below) return Fail("a group that belongs to nothing");
    return start;
  }

  Status Memoize() {
    MUSTER_CHECK_OK(Need(1));
    if (memo_.size() >= kStateValuesMax)
      return Fail("more than ", kStateValuesMax, " memo entries");
    memo_.push_back(stack_.back());
    return Ok();
  }

  template <typename Index>
  Status Get() {
    MUSTER_TRY(const auto index, TakeInt<Index>());
    if (index < memo_.size()) return Push(memo_[index]);
    return Fail("memo entry ", index, " of ", memo_.size());
  }

  // --- Simple values

  /// With as many bytes after the opcode, which are not looked at.
  template <Kind kKind, int64_t kNumber = 0, size_t kBytes = 0>
  Status PushConstant() {
    MUSTER_CHECK_OK(Take(kBytes));
    return PushNew({.kind = kKind, .number = kNumber});
  }

  template <typename Int>
  Status PushInt() {
    MUSTER_TRY(const auto number, TakeInt<Int>());
    return PushNew({.kind = Kind::kInt, .number = number});
  }

  Status PushLong() {
    MUSTER_TRY(const auto size, TakeInt<uint8_t>());
    MUSTER_TRY(const std::string_view digits, Take(size));
    uint64_t bits = !digits.empty() && digits.back() < 0 ? ~uint64_t{0} : 0;
    const bool fits = size <= sizeof bits;
    for (size_t i = fits ? size : 0; i > 0; --i) {
      bits = bits << 8 | static_cast<unsigned char>(digits[i - 1]);
    }
    return PushNew({.kind = Kind::kInt, .fits = fits, .number = static_cast<int64_t>(bits)});
  }

  template <Kind kKind, typename Length>
  Status PushContent() {
    MUSTER_TRY(const auto length, TakeInt<Length>());
    MUSTER_TRY(const std::string_view content, Take(length));
    if (kKind == Kind::kText && !IsUtf8(content)) return Fail("a text that is not UTF-8");
    return PushNew({.kind = kKind, .header = 1 + sizeof(Length)});
  }

  // --- Containers

  template <size_t kCount>
  Status PackTop() {
    MUSTER_CHECK_OK(Need(kCount));
    return Pack(stack_.size() - kCount);
  }

  Status PackGroup() {
    MUSTER_TRY(const size_t start, CloseGroup(0));
    return Pack(start);
  }

  /// Creates a tuple of the values at the stack's end.
  Status Pack(size_t from) {
    MUSTER_CHECK_OK(PushNew({.kind = Kind::kTuple}));
    const PickleId tuple = Pop();
    MUSTER_CHECK_OK(AddItems(tuple, Kind::kTuple, from));
    return Push(tuple);
  }

  template <Kind kKind>
  Status AddTop() {
    constexpr size_t kCount = kKind == Kind::kDict ? 2 : 1;
    MUSTER_CHECK_OK(Need(kCount + 1));
    return AddItems(stack_[stack_.size() - kCount - 1], kKind, stack_.size() - kCount);
  }

  template <Kind kKind>
  Status AddGroup() {
    MUSTER_TRY(const size_t start, CloseGroup(1));
    return AddItems(stack_[start - 1], kKind, start);
  }

  /// Moves the values at the stack's end into the container, which must be of that kind.
  Status AddItems(PickleId container, Kind kind, size_t from) {
    const PickleValue& owner = tree_[container];
    if (owner.kind != kind) {
      return Fail("items for ", Describe(kind), " are given to ", Describe(owner.kind));
    }
    if (owner.sealed) return Fail("attributes that change after they were given to an object");
    const size_t step = kind == Kind::kDict ? 2 : 1;
    if ((stack_.size() - from) % step != 0) return Fail("a key without its value");
    if (tree_.items.size() + (stack_.size() - from) > kStateItemsMax) {
      return Fail("more than ", kStateItemsMax, " items");
    }
    for (size_t i = from; i < stack_.size(); i += step) {
      const PickleId first = stack_[i];
      // Python refuses these as keys, and would receive them from this node.
      if ((kind == Kind::kDict || kind == Kind::kSet) && IsMutable(tree_[first].kind)) {
        return Fail(Describe(tree_[first].kind), " as key or as member of a set");
      }
      tree_.Append(container, step == 2 ? first : kNoPickleId, stack_[i + step - 1]);
    }
    stack_.resize(from);
    return Ok();
  }

  // --- Objects

  Status Class() {
    MUSTER_CHECK_OK(Need(2));
    const PickleId name = Pop();
    const PickleId module = Pop();
    if (tree_[name].kind != Kind::kText || tree_[module].kind != Kind::kText) {
      return Fail("a class that is named by ", Describe(tree_[module].kind), " and ",
                  Describe(tree_[name].kind));
    }
    const PickleClassName given{tree_.Content(module), tree_.Content(name)};
    const auto found = std::ranges::find(kPickleClasses, given);
    if (found == kPickleClasses.end()) {
      return Error{Code::kProtocol,
                   Concat("class ", Printable(given.module, 80), '.', Printable(given.name, 80),
                          " at byte ", at_, " is not allowed")};
    }
    return PushNew(
        {.kind = Kind::kClass, .of = static_cast<PickleClass>(found - kPickleClasses.begin())});
  }

  Status NewObject() {
    MUSTER_CHECK_OK(Need(2));
    const PickleValue& arguments = tree_[Pop()];
    const PickleValue& made = tree_[Pop()];
    if (made.kind != Kind::kClass) return Fail("a new object of ", Describe(made.kind));
    if (made.of != PickleClass::kState && made.of != PickleClass::kNode) {
      return Fail("NEWOBJ on ", NameOf(made.of).name, ", which is made by REDUCE");
    }
    if (arguments.kind != Kind::kTuple || arguments.number != 0) {
      return Fail("a new ", NameOf(made.of).name, " with arguments");
    }
    return PushNew({.kind = Kind::kInstance, .of = made.of});
  }

  Status Build() {
    MUSTER_CHECK_OK(Need(2));
    const PickleId attributes = Pop();
    PickleValue& object = tree_[stack_.back()];
    if (object.kind != Kind::kInstance) return Fail("attributes for ", Describe(object.kind));
    if (object.first != kNoPickleId) return Fail("attributes for an object that has some");
    if (tree_[attributes].kind != Kind::kDict) {
      return Fail("attributes in ", Describe(tree_[attributes].kind), " instead of a dict");
    }
    // Python never writes shared attributes, and with them few bytes could cause much work.
    if (tree_[attributes].sealed) return Fail("attributes that belong to another object");
    for (const PickleItem& item : tree_.ItemsOf(attributes)) {
      if (tree_[item.key].kind != Kind::kText) {
        return Fail("an attribute named by ", Describe(tree_[item.key].kind));
      }
    }
    tree_[attributes].sealed = true;
    object.first = attributes;
    return Ok();
  }

  Status Reduce() {
    MUSTER_CHECK_OK(Need(2));
    const PickleId arguments = Pop();
    const PickleValue& callee = tree_[Pop()];
    if (callee.kind != Kind::kClass) return Fail("a call of ", Describe(callee.kind));
    const std::string_view name = NameOf(callee.of).name;
    if (tree_[arguments].kind != Kind::kTuple)
      return Fail(name, " with ", Describe(tree_[arguments].kind), " as arguments");
    if (callee.of == PickleClass::kState || callee.of == PickleClass::kNode)
      return Fail("REDUCE on ", name, ", which is made by NEWOBJ");
    PickleValue made{.of = callee.of, .first = arguments};
    if (const Status time = MakeTime(tree_, made); !time) return Fail(time.error().message);
    return PushNew(made);
  }

  PickleTree tree_;
  size_t at_ = 0;    // the opcode that is being executed
  size_t next_ = 0;  // the byte after what has been read
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // sizes of the stack where groups were opened
  std::vector<PickleId> memo_;
};

constexpr std::array<Machine::Step, 256> Machine::kSteps = [] {
  std::array<Step, 256> steps{};
  const auto on = [&steps](Op op, Step step) { steps[static_cast<uint8_t>(op)] = step; };
  on(Op::kFrame, &Machine::Frame);
  on(Op::kNone, &Machine::PushConstant<Kind::kNone>);
  on(Op::kNewTrue, &Machine::PushConstant<Kind::kBool, 1>);
  on(Op::kNewFalse, &Machine::PushConstant<Kind::kBool, 0>);
  on(Op::kBinFloat, &Machine::PushConstant<Kind::kFloat, 0, sizeof(double)>);
  on(Op::kBinInt1, &Machine::PushInt<uint8_t>);
  on(Op::kBinInt2, &Machine::PushInt<uint16_t>);
  on(Op::kBinInt, &Machine::PushInt<int32_t>);
  on(Op::kLong1, &Machine::PushLong);
  on(Op::kShortBinUnicode, &Machine::PushContent<Kind::kText, uint8_t>);
  on(Op::kBinUnicode, &Machine::PushContent<Kind::kText, uint32_t>);
  on(Op::kShortBinBytes, &Machine::PushContent<Kind::kBytes, uint8_t>);
  on(Op::kBinBytes, &Machine::PushContent<Kind::kBytes, uint32_t>);
  on(Op::kMemoize, &Machine::Memoize);
  on(Op::kBinGet, &Machine::Get<uint8_t>);
  on(Op::kLongBinGet, &Machine::Get<uint32_t>);
  on(Op::kMark, &Machine::Mark);
  on(Op::kEmptyTuple, &Machine::PushConstant<Kind::kTuple>);
  on(Op::kTuple1, &Machine::PackTop<1>);
  on(Op::kTuple2, &Machine::PackTop<2>);
  on(Op::kTuple3, &Machine::PackTop<3>);
  on(Op::kTuple, &Machine::PackGroup);
  on(Op::kEmptyList, &Machine::PushConstant<Kind::kList>);
  on(Op::kAppend, &Machine::AddTop<Kind::kList>);
  on(Op::kAppends, &Machine::AddGroup<Kind::kList>);
  on(Op::kEmptyDict, &Machine::PushConstant<Kind::kDict>);
  on(Op::kSetItem, &Machine::AddTop<Kind::kDict>);
  on(Op::kSetItems, &Machine::AddGroup<Kind::kDict>);
  on(Op::kEmptySet, &Machine::PushConstant<Kind::kSet>);
  on(Op::kAddItems, &Machine::AddGroup<Kind::kSet>);
  on(Op::kStackGlobal, &Machine::Class);
  on(Op::kNewObj, &Machine::NewObject);
  on(Op::kBuild, &Machine::Build);
  on(Op::kReduce, &Machine::Reduce);
  return steps;
}();

}  // namespace

Result<PickleTree> RunPickle(std::string_view bytes) { return Machine(bytes).Run(); }

}  // namespace muster::wire
