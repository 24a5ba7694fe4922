// Replies to bytes. A TCPStore reply carries no opcode, no status and no length of its own: the
// client knows what to expect from what it asked.
#pragma once

#include <string>

#include "core/store/request.h"

namespace muster::wire {

/// Appends the reply's bytes; kNone and kRefused have none.
void AppendReply(std::string& out, const Reply& reply);

}  // namespace muster::wire
