#include "rendezvous/wire/pickle_machine.h"

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rendezvous/wire/pickle_times.h"

namespace muster::wire {

namespace {

using Kind = PickleKind;
using Op = PickleOp;

bool IsMutable(Kind kind) {
  return kind == Kind::kList || kind == Kind::kDict || kind == Kind::kSet;
}

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes), tree_(bytes) {}

  Result<PickleTree> Run();

 private:
  // One opcode. Three functions, because one would not fit a screen.
  Status Step(uint8_t opcode);
  Status StepContainer(uint8_t opcode);
  Status StepObject(uint8_t opcode);

  // Reading the bytes. All failures name the opcode they happened at.
  template <typename... Pieces>
  Error Fail(const Pieces&... pieces) const {
    return Error{Code::kProtocol, Concat(pieces..., " at byte ", at_)};
  }
  Result<std::string_view> Take(size_t count);
  template <typename Int>
  Result<Int> TakeInt();
  Status Header();
  Status Frame();
  Result<PickleTree> Stop();

  // The stack. What lies below the innermost open group is out of reach.
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Status Need(size_t count) const;
  Status Push(PickleId id);
  Status PushNew(PickleValue value);
  PickleId Pop();
  Status Mark();
  Result<size_t> CloseGroup(size_t below);
  Status Memoize();
  template <typename Index>
  Status Get();

  // Values that stand for themselves.
  Status PushPlain(Kind kind, int64_t number);
  template <typename Int>
  Status PushInt();
  Status PushLong();
  template <typename Length>
  Status PushContent(Kind kind);

  // Containers.
  Status PushContainer(Kind kind) { return PushNew({.kind = kind}); }
  Status PackTop(size_t count);
  Status PackGroup();
  Status Pack(size_t from);
  Status AddTop(Kind kind);
  Status AddGroup(Kind kind);
  Status AddItems(PickleId container, Kind kind, size_t from);

  // Objects.
  Status Class();
  Status NewObject();
  Status Build();
  Status Reduce();

  std::string_view bytes_;
  size_t at_ = 0;    // the opcode that is being dealt with
  size_t next_ = 0;  // the byte after what has been read
  PickleTree tree_;
  std::vector<PickleId> stack_;
  std::vector<size_t> marks_;  // sizes of the stack where groups were opened
  std::vector<PickleId> memo_;
};

Result<PickleTree> Machine::Run() {
  if (bytes_.size() > kStateBytesMax) {
    return Error{Code::kProtocol, Concat("a state of ", HumanBytes(bytes_.size()), ", limit ",
                                         HumanBytes(kStateBytesMax))};
  }
  MUSTER_CHECK_OK(Header());
  while (true) {
    at_ = next_;
    MUSTER_TRY(const auto opcode, TakeInt<uint8_t>());
    if (Op{opcode} == Op::kStop) return Stop();
    MUSTER_CHECK_OK(Step(opcode));
  }
}

Status Machine::Step(uint8_t opcode) {
  switch (Op{opcode}) {
    case Op::kFrame:
      return Frame();
    case Op::kNone:
      return PushPlain(Kind::kNone, 0);
    case Op::kNewTrue:
      return PushPlain(Kind::kBool, 1);
    case Op::kNewFalse:
      return PushPlain(Kind::kBool, 0);
    case Op::kBinInt1:
      return PushInt<uint8_t>();
    case Op::kBinInt2:
      return PushInt<uint16_t>();
    case Op::kBinInt:
      return PushInt<int32_t>();
    case Op::kLong1:
      return PushLong();
    case Op::kBinFloat:
      MUSTER_CHECK_OK(Take(sizeof(double)));
      return PushPlain(Kind::kFloat, 0);
    case Op::kShortBinUnicode:
      return PushContent<uint8_t>(Kind::kText);
    case Op::kBinUnicode:
      return PushContent<uint32_t>(Kind::kText);
    case Op::kShortBinBytes:
      return PushContent<uint8_t>(Kind::kBytes);
    case Op::kBinBytes:
      return PushContent<uint32_t>(Kind::kBytes);
    case Op::kMemoize:
      return Memoize();
    case Op::kBinGet:
      return Get<uint8_t>();
    case Op::kLongBinGet:
      return Get<uint32_t>();
    default:
      return StepContainer(opcode);
  }
}

Status Machine::StepContainer(uint8_t opcode) {
  switch (Op{opcode}) {
    case Op::kMark:
      return Mark();
    case Op::kEmptyTuple:
      return PushContainer(Kind::kTuple);
    case Op::kTuple1:
      return PackTop(1);
    case Op::kTuple2:
      return PackTop(2);
    case Op::kTuple3:
      return PackTop(3);
    case Op::kTuple:
      return PackGroup();
    case Op::kEmptyList:
      return PushContainer(Kind::kList);
    case Op::kAppend:
      return AddTop(Kind::kList);
    case Op::kAppends:
      return AddGroup(Kind::kList);
    case Op::kEmptyDict:
      return PushContainer(Kind::kDict);
    case Op::kSetItem:
      return AddTop(Kind::kDict);
    case Op::kSetItems:
      return AddGroup(Kind::kDict);
    case Op::kEmptySet:
      return PushContainer(Kind::kSet);
    case Op::kAddItems:
      return AddGroup(Kind::kSet);
    default:
      return StepObject(opcode);
  }
}

Status Machine::StepObject(uint8_t opcode) {
  switch (Op{opcode}) {
    case Op::kStackGlobal:
      return Class();
    case Op::kNewObj:
      return NewObject();
    case Op::kBuild:
      return Build();
    case Op::kReduce:
      return Reduce();
    default:
      return Error{Code::kProtocol, Concat("opcode ", OpcodeName(opcode), " at byte ", at_,
                                           " is not part of a rendezvous state")};
  }
}

// --- Reading the bytes

Result<std::string_view> Machine::Take(size_t count) {
  if (bytes_.size() - next_ < count) {
    return Fail("the state ends after ", bytes_.size(), " bytes, ", count,
                " more were expected from byte ", next_, " on, for the opcode");
  }
  next_ += count;
  return bytes_.substr(next_ - count, count);
}

template <typename Int>
Result<Int> Machine::TakeInt() {
  MUSTER_TRY(const std::string_view raw, Take(sizeof(Int)));
  return LoadInt<Int>(raw.data());
}

Status Machine::Header() {
  MUSTER_TRY(const auto opcode, TakeInt<uint8_t>());
  if (Op{opcode} != Op::kProto) return Fail("no protocol number, but ", opcode);
  MUSTER_TRY(const auto protocol, TakeInt<uint8_t>());
  if (protocol < kPickleProtocol || protocol > kPickleProtocolMax) {
    return Fail("pickle protocol ", protocol, " instead of 4 or 5");
  }
  return Ok();
}

Status Machine::Frame() {
  MUSTER_TRY(const auto size, TakeInt<uint64_t>());
  if (size <= bytes_.size() - next_) return Ok();
  return Fail("a frame of ", size, " bytes where ", bytes_.size() - next_, " are left");
}

Result<PickleTree> Machine::Stop() {
  if (!marks_.empty() || stack_.size() != 1) {
    return Fail("the end, with ", stack_.size(), " values and ", marks_.size(),
                " open groups instead of one state");
  }
  if (next_ != bytes_.size()) return Fail(bytes_.size() - next_, " bytes after the end");
  tree_.root = stack_.back();
  return std::move(tree_);
}

// --- The stack

Status Machine::Need(size_t count) const {
  if (stack_.size() - floor() >= count) return Ok();
  return Fail("an opcode that takes ", count, " values where there are ", stack_.size() - floor());
}

Status Machine::Push(PickleId id) {
  if (stack_.size() >= kStateStackMax) return Fail("more than ", kStateStackMax, " pending values");
  stack_.push_back(id);
  return Ok();
}

Status Machine::PushNew(PickleValue value) {
  if (tree_.value_count() >= kStateValuesMax) return Fail("more than ", kStateValuesMax, " values");
  value.at = static_cast<uint32_t>(at_);
  return Push(tree_.Add(value));
}

PickleId Machine::Pop() {
  MUSTER_ASSERT(stack_.size() > floor());
  const PickleId top = stack_.back();
  stack_.pop_back();
  return top;
}

Status Machine::Mark() {
  // More than values can be nested, because those lie in groups of the state's own.
  constexpr size_t kMost = 2 * kStateDepthMax;
  if (marks_.size() >= kMost) return Fail("more than ", kMost, " open groups");
  marks_.push_back(stack_.size());
  return Ok();
}

/// Where on the stack the innermost group starts; it is no longer open. At least `below` values
/// that may be used lie below it.
Result<size_t> Machine::CloseGroup(size_t below) {
  if (marks_.empty()) return Fail("the end of a group that was not opened");
  const size_t start = marks_.back();
  marks_.pop_back();
  if (start - floor() < below) return Fail("a group that belongs to nothing");
  return start;
}

Status Machine::Memoize() {
  MUSTER_CHECK_OK(Need(1));
  if (memo_.size() >= kStateValuesMax) return Fail("more than ", kStateValuesMax, " memo entries");
  memo_.push_back(stack_.back());
  return Ok();
}

template <typename Index>
Status Machine::Get() {
  MUSTER_TRY(const auto index, TakeInt<Index>());
  if (index < memo_.size()) return Push(memo_[index]);
  return Fail("memo entry ", index, " of ", memo_.size());
}

// --- Values that stand for themselves

Status Machine::PushPlain(Kind kind, int64_t number) {
  return PushNew({.kind = kind, .size = static_cast<uint32_t>(next_ - at_), .number = number});
}

template <typename Int>
Status Machine::PushInt() {
  MUSTER_TRY(const auto number, TakeInt<Int>());
  return PushPlain(Kind::kInt, number);
}

Status Machine::PushLong() {
  MUSTER_TRY(const auto size, TakeInt<uint8_t>());
  MUSTER_TRY(const std::string_view digits, Take(size));
  uint64_t bits = !digits.empty() && digits.back() < 0 ? ~uint64_t{0} : 0;
  const bool fits = size <= sizeof bits;
  for (size_t i = fits ? size : 0; i > 0; --i) {
    bits = bits << 8 | static_cast<unsigned char>(digits[i - 1]);
  }
  return PushNew({.kind = Kind::kInt,
                  .fits = fits,
                  .size = static_cast<uint32_t>(next_ - at_),
                  .number = static_cast<int64_t>(bits)});
}

template <typename Length>
Status Machine::PushContent(Kind kind) {
  MUSTER_TRY(const auto length, TakeInt<Length>());
  MUSTER_TRY(const std::string_view content, Take(length));
  if (kind == Kind::kText && !IsUtf8(content)) return Fail("a text that is not UTF-8");
  return PushNew(
      {.kind = kind, .header = 1 + sizeof(Length), .size = static_cast<uint32_t>(next_ - at_)});
}

// --- Containers

Status Machine::PackTop(size_t count) {
  MUSTER_CHECK_OK(Need(count));
  return Pack(stack_.size() - count);
}

Status Machine::PackGroup() {
  MUSTER_TRY(const size_t start, CloseGroup(0));
  return Pack(start);
}

/// Makes a tuple of the stack's end.
Status Machine::Pack(size_t from) {
  MUSTER_CHECK_OK(PushContainer(Kind::kTuple));
  const PickleId tuple = Pop();
  MUSTER_CHECK_OK(AddItems(tuple, Kind::kTuple, from));
  return Push(tuple);
}

Status Machine::AddTop(Kind kind) {
  const size_t count = kind == Kind::kDict ? 2 : 1;
  MUSTER_CHECK_OK(Need(count + 1));
  return AddItems(stack_[stack_.size() - count - 1], kind, stack_.size() - count);
}

Status Machine::AddGroup(Kind kind) {
  MUSTER_TRY(const size_t start, CloseGroup(1));
  return AddItems(stack_[start - 1], kind, start);
}

/// Moves the stack's end into the container, which must be of that kind.
Status Machine::AddItems(PickleId container, Kind kind, size_t from) {
  const PickleValue& owner = tree_[container];
  if (owner.kind != kind) {
    return Fail("items for ", Describe(kind), " are given to ", Describe(owner.kind));
  }
  if (owner.sealed) return Fail("attributes that change after they were given to an object");
  const size_t step = kind == Kind::kDict ? 2 : 1;
  if ((stack_.size() - from) % step != 0) return Fail("a key without its value");
  if (tree_.item_count() + (stack_.size() - from) > kStateItemsMax) {
    return Fail("more than ", kStateItemsMax, " items");
  }
  for (size_t i = from; i < stack_.size(); i += step) {
    const PickleId first = stack_[i];
    // Python would refuse these as keys, and we would hand them on to it.
    if ((kind == Kind::kDict || kind == Kind::kSet) && IsMutable(tree_[first].kind)) {
      return Fail(Describe(tree_[first].kind), " as key or as member of a set");
    }
    tree_.Append(container, step == 2 ? first : kNoPickleId, stack_[i + step - 1]);
  }
  stack_.resize(from);
  return Ok();
}

// --- Objects

Status Machine::Class() {
  MUSTER_CHECK_OK(Need(2));
  const PickleId name = Pop();
  const PickleId module = Pop();
  if (tree_[name].kind != Kind::kText || tree_[module].kind != Kind::kText) {
    return Fail("a class that is named by ", Describe(tree_[module].kind), " and ",
                Describe(tree_[name].kind));
  }
  for (size_t i = 0; i < kPickleClasses.size(); ++i) {
    if (tree_.Content(module) == kPickleClasses[i].module &&
        tree_.Content(name) == kPickleClasses[i].name) {
      return PushNew({.kind = Kind::kClass, .of = static_cast<PickleClass>(i)});
    }
  }
  return Error{Code::kProtocol,
               Concat("class ", Printable(tree_.Content(module), 80), '.',
                      Printable(tree_.Content(name), 80), " at byte ", at_, " is not allowed")};
}

Status Machine::NewObject() {
  MUSTER_CHECK_OK(Need(2));
  const PickleValue& arguments = tree_[Pop()];
  const PickleValue& made = tree_[Pop()];
  if (made.kind != Kind::kClass) return Fail("a new object of ", Describe(made.kind));
  if (made.of != PickleClass::kState && made.of != PickleClass::kNode) {
    return Fail("NEWOBJ on ", NameOf(made.of).name, ", which is made by REDUCE");
  }
  if (arguments.kind != Kind::kTuple || arguments.size != 0) {
    return Fail("a new ", NameOf(made.of).name, " with arguments");
  }
  return PushNew({.kind = Kind::kInstance, .of = made.of});
}

Status Machine::Build() {
  MUSTER_CHECK_OK(Need(2));
  const PickleId attributes = Pop();
  PickleValue& object = tree_[stack_.back()];
  if (object.kind != Kind::kInstance) return Fail("attributes for ", Describe(object.kind));
  if (object.first != kNoPickleId) return Fail("attributes for an object that has some");
  if (tree_[attributes].kind != Kind::kDict) {
    return Fail("attributes in ", Describe(tree_[attributes].kind), " instead of a dict");
  }
  // Shared attributes are nothing that Python writes, but would let few bytes stand for much work.
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

Status Machine::Reduce() {
  MUSTER_CHECK_OK(Need(2));
  const PickleId arguments = Pop();
  const PickleValue& callee = tree_[Pop()];
  if (callee.kind != Kind::kClass) return Fail("a call of ", Describe(callee.kind));
  const std::string_view name = NameOf(callee.of).name;
  if (tree_[arguments].kind != Kind::kTuple) {
    return Fail(name, " with ", Describe(tree_[arguments].kind), " as arguments");
  }
  constexpr size_t kMost = 3;
  if (tree_[arguments].size > kMost) return Fail(name, " with more than ", kMost, " arguments");
  PickleId list[kMost];
  size_t count = 0;
  for (const PickleItem& item : tree_.ItemsOf(arguments)) list[count++] = item.value;
  PickleValue made{.of = callee.of, .first = arguments};
  if (callee.of == PickleClass::kState || callee.of == PickleClass::kNode)
    return Fail("REDUCE on ", name, ", which is made by NEWOBJ");
  if (const Status time = MakeTime(tree_, {list, count}, made); !time)
    return Fail(time.error().message);
  return PushNew(made);
}

}  // namespace

Result<PickleTree> RunPickle(std::string_view bytes) { return Machine(bytes).Run(); }

}  // namespace muster::wire
