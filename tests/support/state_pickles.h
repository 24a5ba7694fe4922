// Serialized rendezvous states, written independently of src/rendezvous/wire: what PyTorch writes,
// byte for byte, and the parts to build what no writer would write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/core/state.h"

namespace muster::test {

/// The test vectors of the specification: the initial state, one node that waits for others, three
/// nodes; the first two once more without frame and memo.
std::string Vector1();
std::string Vector2();
std::string Vector3();
std::string Vector4();
std::string Vector5();

/// The meaning of the first three.
RendezvousState State1();
RendezvousState State2();
RendezvousState State3();

/// 2026-01-02 03:04:05.000006 UTC.
inline constexpr WallTime kMorning{1'767'323'045'000'006};

/// Opcodes that push one value, without the memo.
namespace pickle {

using Pieces = std::vector<std::string>;
using Named = std::vector<std::pair<std::string, std::string>>;

inline const std::string kNone = "N";
inline const std::string kTrue = "\x88";
inline const std::string kFalse = "\x89";
inline const std::string kEmptyDict = "}";
inline const std::string kEmptySet = "\x8f";
inline const std::string kMorningBytes = {"C\x0a\x07\xea\x01\x02\x03\x04\x05\0\0\x06", 12};

std::string Text(std::string_view text);
std::string Long(std::string_view digits);
std::string Int(uint8_t number);
std::string Class(std::string_view module, std::string_view name);
std::string Tuple(const Pieces& items);  ///< 0 to 3
std::string Set(const Pieces& items);
std::string List(const Pieces& items);
std::string Dict(const std::vector<std::pair<std::string, std::string>>& items);
std::string Attributes(const Named& items);  ///< a dict, with names that are not opcodes yet
std::string Reduce(const std::string& callee, const std::string& arguments);
std::string TimeDelta(const Pieces& arguments);
std::string TimeZone(const Pieces& arguments);
std::string DateTime(const Pieces& arguments);
std::string Utc();
std::string StateClass();
std::string NodeClass();
std::string NewObject(const std::string& of, const Named& attributes);
std::string Node(std::string_view addr, uint8_t pid, uint8_t local_id);

/// Protocol 4 and the end around it.
std::string Whole(const std::string& value);
/// The initial state with these attributes replaced or added; an attribute without opcodes is left
/// out.
std::string StateWith(const Named& changes);

}  // namespace pickle

}  // namespace muster::test
