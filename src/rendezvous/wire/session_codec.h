// The messages of a session between a node and the coordinator, as bytes.
// docs/reference/protocol.md has them in words and in hex.
//
// In both directions: the opcode, a u32 size, and a body of that size, which starts with its kind.
// Integers are little-endian, texts a u16 size and UTF-8 bytes. A message that does not match its
// kind exactly is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "rendezvous/core/run_report.h"

namespace muster::wire {

/// Far above the opcodes of PyTorch, whose servers close a connection at the first unknown one.
inline constexpr uint8_t kSessionOpcode = 0xA0;
/// A key that no client can create (theirs start with '/'). Every muster server has it, whatever
/// protocol versions it supports; the number at its end never changes.
inline constexpr std::string_view kSessionKey = "muster/session/1";
/// A server's answer to a greeting that requests sessions, if it supports them.
inline constexpr char kSessionsSpoken = 0;
/// ... and PyTorch's, which has none.
inline constexpr char kSessionsUnknown = 1;
/// Larger frames are refused: a label and an address of a KiB each, and room for later versions.
inline constexpr uint32_t kSessionFrameBytesMax = 16 * 1024;

/// A request of a node, or of a client that requests the status.
struct SessionRequest {
  enum class Kind : uint8_t { kOpen, kJoin, kLeave, kClose, kKeepAlive, kStatus };

  Kind kind = Kind::kKeepAlive;
  uint64_t token = 0;                 ///< Of the session; kOpen: of the session to be resumed.
  uint32_t incarnation = 0;           ///< Of the session; kOpen: 0.
  int64_t round = -1;                 ///< The last one that the node was in; -1: none.
  uint8_t version = kSessionVersion;  ///< kOpen: the highest version that the node supports,
  uint8_t version_oldest = kSessionVersionOldest;  ///< and the lowest.
  Hello hello{};                                   ///< kOpen; empty if there is no common version.
  Duration join_timeout{};                         ///< kJoin; whole milliseconds.
  std::string reason{};                            ///< kClose.
  std::string run_id{};    ///< kStatus; empty: all runs, without their nodes,
  std::string after{};     ///< from the one after this on: an answer has a limited number.
  uint32_t names_max = 0;  ///< kStatus: nodes to be named, of each role.

  /// kOpen: whether there is a common version.
  bool IsUnderstood() const {
    return version >= kSessionVersionOldest && version_oldest <= kSessionVersion;
  }
};

/// Part of the answer to kStatus: for each run its head, then its members, then kDone.
struct StatusPart {
  enum class Kind : uint8_t { kRun = 64, kMember = 65, kDone = 66 };

  Kind kind = Kind::kDone;
  RunReport run{};        ///< kRun; without members.
  MemberReport member{};  ///< kMember.
  bool more = false;      ///< kDone: more runs follow; request them.
};

/// The first bytes of a connection: VALIDATE, and if `ask`, a CHECK for the key above.
std::string SessionGreeting(bool ask);

void AppendSessionFrame(std::string& out, const SessionRequest& request);
void AppendSessionFrame(std::string& out, const Push& push);
/// Appends all parts of the answer. `more`: there are further runs that are not in it.
void AppendStatus(std::string& out, std::vector<RunReport> runs, bool more);

/// The size of the frame that `bytes` begin with; 0 while it is unknown; kProtocol if it is not a
/// frame.
Result<size_t> SessionFrameSize(std::string_view bytes);

/// Reads one whole frame. kProtocol says what is wrong.
Result<SessionRequest> ReadSessionRequest(std::string_view frame);
/// Reads a message of a server.
Result<std::variant<Push, StatusPart>> ReadSessionReply(std::string_view frame);

}  // namespace muster::wire
