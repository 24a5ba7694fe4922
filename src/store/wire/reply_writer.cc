#include "store/wire/reply_writer.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace muster::wire {

namespace {

// With this, a large reply is copied once: a growing buffer would copy it several times.
void ReserveFor(std::string& out, std::span<const ValueView> values) {
  size_t bytes = out.size();
  for (const ValueView& value : values) bytes += sizeof(uint64_t) + value.tail.size();
  if (bytes > out.capacity()) out.reserve(std::max(bytes, 2 * out.capacity()));
}

}  // namespace

void AppendValue(std::string& out, const ValueView& value, std::vector<PieceAt>& pieces) {
  if (value.pieces.empty()) return AppendBlob(out, value.tail);
  AppendInt<uint64_t>(out, value.size());
  for (const Piece& piece : value.pieces) pieces.push_back({out.size(), piece});
  out += value.tail;
}

void AppendReply(std::string& out, const Reply& reply, std::vector<PieceAt>& pieces) {
  switch (reply.kind) {
    case Reply::Kind::kNone:
    case Reply::Kind::kRefused:
      return;
    case Reply::Kind::kReady:
    case Reply::Kind::kStopWaiting:
      out += '\0';
      return;
    case Reply::Kind::kNotReady:
    case Reply::Kind::kCancelled:
      out += '\1';
      return;
    case Reply::Kind::kNumber:
      AppendInt<int64_t>(out, reply.number);
      return;
    case Reply::Kind::kNonce:
      AppendInt<uint32_t>(out, static_cast<uint32_t>(reply.number));
      return;
    case Reply::Kind::kValue:
      AppendValue(out, reply.value, pieces);
      return;
    case Reply::Kind::kKeys:
      AppendInt<int64_t>(out, static_cast<int64_t>(reply.values.size()));
      [[fallthrough]];
    case Reply::Kind::kValues:
      ReserveFor(out, reply.values);
      for (const ValueView& value : reply.values) AppendValue(out, value, pieces);
      return;
    case Reply::Kind::kPopped:
      AppendInt<int64_t>(out, reply.number);
      if (reply.number > 0) AppendValue(out, reply.value, pieces);
      return;
  }
}

}  // namespace muster::wire
