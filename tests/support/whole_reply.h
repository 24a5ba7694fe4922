// A reply of the store machine as a client receives it, in one text.
#pragma once

#include <string>
#include <vector>

#include "store/wire/reply_writer.h"

namespace muster::test {

/// Appends the reply with the pieces of large values, which the server sends without a copy.
inline void AppendWhole(std::string& out, const Reply& reply) {
  std::string text;
  std::vector<wire::PieceAt> pieces;
  wire::AppendReply(text, reply, pieces);
  for (size_t i = pieces.size(); i-- > 0;) text.insert(pieces[i].at, pieces[i].piece->bytes());
  out += text;
}

}  // namespace muster::test
