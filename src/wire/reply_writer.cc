#include "wire/reply_writer.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"

namespace muster::wire {

namespace {

// A large reply is copied once: growing by halves would copy it over and over.
void ReserveFor(std::string& out, std::span<const std::string_view> values) {
  size_t bytes = out.size();
  for (const std::string_view value : values) bytes += sizeof(uint64_t) + value.size();
  if (bytes > out.capacity()) out.reserve(std::max(bytes, 2 * out.capacity()));
}

}  // namespace

void AppendReply(std::string& out, const Reply& reply) {
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
      AppendBlob(out, reply.value);
      return;
    case Reply::Kind::kKeys:
      AppendInt<int64_t>(out, static_cast<int64_t>(reply.values.size()));
      [[fallthrough]];
    case Reply::Kind::kValues:
      ReserveFor(out, reply.values);
      for (const std::string_view value : reply.values) AppendBlob(out, value);
      return;
    case Reply::Kind::kPopped:
      AppendInt<int64_t>(out, reply.number);
      if (reply.number > 0) AppendBlob(out, reply.value);
      return;
  }
}

}  // namespace muster::wire
