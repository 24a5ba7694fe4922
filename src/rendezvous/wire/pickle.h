// A serialized rendezvous state is a pickle: a small part of Python's format, protocols 4 and 5.
// This header has its opcodes and classes, the values that it contains, and how they are read and
// written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace muster::wire {

enum class PickleOp : uint8_t {
  kProto = 0x80,  ///< Protocol number: one byte. Comes first.
  kFrame = 0x95,  ///< Number of bytes of the following part: u64. A hint for buffering.
  kStop = '.',
  // Simple values.
  kNone = 'N',
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kBinInt1 = 'K',           ///< u8
  kBinInt2 = 'M',           ///< u16
  kBinInt = 'J',            ///< i32
  kLong1 = 0x8a,            ///< u8 count, then as many bytes in two's complement
  kBinFloat = 'G',          ///< 8 bytes
  kShortBinUnicode = 0x8c,  ///< u8 length, UTF-8
  kBinUnicode = 'X',        ///< u32 length, UTF-8
  kShortBinBytes = 'C',     ///< u8 length, bytes
  kBinBytes = 'B',          ///< u32 length, bytes
  // Containers. MARK opens a group; the opcode that uses the group closes it.
  kMark = '(',
  kEmptyTuple = ')',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kTuple = 't',
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  // References to earlier values.
  kMemoize = 0x94,
  kBinGet = 'h',      ///< u8
  kLongBinGet = 'j',  ///< u32
  // Objects.
  kStackGlobal = 0x93,  ///< module, name -> class
  kNewObj = 0x81,       ///< class, () -> object without attributes
  kBuild = 'b',         ///< object, attributes -> object
  kReduce = 'R',        ///< class, arguments -> the result of its constructor
};

inline constexpr uint8_t kPickleProtocol = 4;  ///< Every Python that PyTorch 2 supports reads it.
inline constexpr uint8_t kPickleProtocolMax = 5;
inline constexpr size_t kPickleBatch = 1000;  ///< Items in one group, as Python writes them.

/// The only classes that are allowed.
enum class PickleClass : uint8_t { kState, kNode, kDateTime, kTimeZone, kTimeDelta };

struct PickleClassName {
  std::string_view module;
  std::string_view name;
  bool operator==(const PickleClassName&) const = default;
};

inline constexpr std::string_view kTorchModule =
    "torch.distributed.elastic.rendezvous.dynamic_rendezvous";
inline constexpr std::array<PickleClassName, 5> kPickleClasses = {{
    {kTorchModule, "_RendezvousState"},
    {kTorchModule, "_NodeDesc"},
    {"datetime", "datetime"},
    {"datetime", "timezone"},
    {"datetime", "timedelta"},
}};

constexpr const PickleClassName& NameOf(PickleClass which) {
  return kPickleClasses[static_cast<size_t>(which)];
}

// --- Values before their meaning is known

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kBytes,
  kTuple,
  kList,
  kDict,
  kSet,
  kClass,
  kInstance,   ///< of a state or node
  kDateTime,   ///< These three: a class and the arguments of its constructor.
  kTimeZone,   ///<
  kTimeDelta,  ///<
};

/// "an integer", for messages.
constexpr std::string_view Describe(PickleKind kind) {
  constexpr std::string_view kWords[] = {"none",   "a boolean",   "an integer",       "a float",
                                         "a text", "bytes",       "a tuple",          "a list",
                                         "a dict", "a set",       "a class",          "an object",
                                         "a time", "a time zone", "a time difference"};
  return kWords[static_cast<size_t>(kind)];
}

using PickleId = uint32_t;
inline constexpr uint32_t kNoPickleId = std::numeric_limits<uint32_t>::max();

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  PickleClass of{};              ///< The class, for kinds class, instance and time.
  uint8_t header = 0;            ///< Text, bytes: size of opcode and length.
  bool fits = true;              ///< Int: `number` is its value. Time: it has a zone.
  bool sealed = false;           ///< Dict: the attributes of an object, which no longer change.
  uint32_t at = 0;               ///< Position of its opcode.
  uint32_t size = 0;             ///< Of the opcode and its operand.
  uint32_t first = kNoPickleId;  ///< Containers: items. Instance: attributes. Time: arguments.
  uint32_t last = kNoPickleId;
  /// Bool, int. Container: how many items. Time: microseconds since 1970 in UTC, or of the
  /// difference.
  int64_t number = 0;
};

struct PickleItem {
  PickleId key = kNoPickleId;  ///< Only for dicts.
  PickleId value = kNoPickleId;
  uint32_t next = kNoPickleId;
};

/// The values refer to each other by number, possibly in cycles. The tree owns all of them, so
/// building or destroying it never recurses, however deep it is.
struct PickleTree {
  std::string_view bytes;  ///< They outlive the tree, which refers to parts of them.
  std::vector<PickleValue> values{};
  /// Each container's items are a list through this vector: appending is cheap even if the pickle
  /// switches between containers.
  std::vector<PickleItem> items{};
  PickleId root = kNoPickleId;

  void Append(PickleId container, PickleId key, PickleId value) {
    const auto place = static_cast<uint32_t>(items.size());
    items.push_back({.key = key, .value = value});
    PickleValue& owner = values[container];
    (owner.number++ == 0 ? owner.first : items[owner.last].next) = place;
    owner.last = place;
  }

  const PickleValue& operator[](PickleId id) const { return values[id]; }
  PickleValue& operator[](PickleId id) { return values[id]; }

  /// The bytes of a simple value: opcode and operand.
  std::string_view Encoded(PickleId id) const {
    return bytes.substr(values[id].at, values[id].size);
  }
  /// The content of a text or bytes.
  std::string_view Content(PickleId id) const { return Encoded(id).substr(values[id].header); }
  /// For `for`: the items of a container, in order.
  struct Items {
    struct Iterator {
      const std::vector<PickleItem>& items;
      uint32_t place;
      const PickleItem& operator*() const { return items[place]; }
      Iterator& operator++() { return place = items[place].next, *this; }
      bool operator==(const Iterator& other) const { return place == other.place; }
    };
    Iterator begin() const { return {items, first}; }
    Iterator end() const { return {items, kNoPickleId}; }

    const std::vector<PickleItem>& items;
    uint32_t first;
  };
  Items ItemsOf(PickleId container) const { return {items, values[container].first}; }
};

// --- Reading

/// Runs a pickle: a machine with a stack, a memo and an allow-list. It only creates values: no name
/// is looked up, nothing is called, and a class that is not on the list ends the run. Memory and
/// time are proportional to the bytes, and bounded by base/limits.h.
///
/// kProtocol, with what was found and where: the bytes are not such a pickle. Times have been
/// checked and computed; attributes have not been read. The tree refers to parts of `bytes`.
Result<PickleTree> RunPickle(std::string_view bytes);

/// Computes what the constructor of a class of datetime (`made.of`) returns for its arguments, the
/// tuple `made.first`. kProtocol, saying what is wrong with them.
Status MakeTime(const PickleTree& tree, PickleValue& made);

// --- Writing: opcodes with their operands, and copies of values that were read

inline void AppendOp(std::string& out, PickleOp op) { out += static_cast<char>(op); }

/// Appends the opcode and its operand if that fits into an Int; otherwise returns false and appends
/// nothing.
template <typename Int, typename Number>
bool AppendIfFits(std::string& out, PickleOp op, Number number) {
  if (!std::in_range<Int>(number)) return false;
  AppendOp(out, op);
  AppendInt(out, static_cast<Int>(number));
  return true;
}

/// UTF-8; less than 4 GiB.
void AppendText(std::string& out, std::string_view text);

/// In the shortest form, as Python writes it.
void AppendNumber(std::string& out, int64_t number);

/// Appends opcodes that create the same value again at any position: without the memo, so that a
/// shared value is written again at each place. Since few bytes can thus become very many, `budget`
/// is the number of bytes that may still be appended, and is decremented. Numbers and texts keep
/// the form in which they were read. kProtocol: the budget is spent, or the value is nested too
/// deeply (or in itself).
Status AppendCopy(std::string& out, const PickleTree& tree, PickleId id, size_t& budget);

/// The budget is spent.
Error Unfolds(const PickleTree& tree);

}  // namespace muster::wire
