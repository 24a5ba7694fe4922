// The opcodes and classes of a serialized rendezvous state: a small part of Python's pickle format,
// protocols 4 and 5. Everything else is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::wire {

enum class PickleOp : uint8_t {
  kProto = 0x80,  ///< Protocol number: one byte. Comes first.
  kFrame = 0x95,  ///< Bytes of the part that follows: u64. Advice for buffering.
  kStop = '.',
  // Values that stand for themselves.
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
  // Containers. MARK opens a group; the opcode that takes the group closes it.
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
  // Values that were written before.
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

}  // namespace muster::wire
