// Encodes replies. A TCPStore reply has no opcode, status or length: the client knows what to
// expect from its request.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "store/core/request.h"

namespace muster::wire {

/// A piece of a large value, which belongs into the reply before the byte `at`.
struct PieceAt {
  size_t at;
  Piece piece;
};

/// Appends the reply's bytes; kNone and kRefused have none. Pieces of large values are not copied
/// but added to `pieces`.
void AppendReply(std::string& out, const Reply& reply, std::vector<PieceAt>& pieces);

/// Appends one value of a reply.
void AppendValue(std::string& out, const ValueView& value, std::vector<PieceAt>& pieces);

}  // namespace muster::wire
