#include "server/long_request.h"

#include "base/bytes.h"
#include "base/text.h"

namespace muster {

LongRequest::LongRequest(Op op, ClientId client, SharedStore& store,
                         const wire::RequestLimits& limits, HasRoom has_room)
    : client_(client),
      reply_bytes_max_(store.reply_bytes_max()),
      has_room_(std::move(has_room)),
      reader_(limits),
      step_(op, client, store.hasher(), store.account()) {}

Result<size_t> LongRequest::Read(std::string_view bytes, Pairs& pairs) {
  pairs.clear();
  MUSTER_TRY(const size_t read, reader_.Read(bytes, SIZE_MAX, pairs));
  for (const auto& [key, value] : pairs) {
    if (has_room_(key.size() + value.size()) && step_.Add(key, value)) continue;
    return Error{Code::kProtocol, Concat(Name(step_.op()), ": ", Describe(Reply::Why::kNoRoom))};
  }
  return read;
}

bool LongRequest::Advance(SharedStore::Turn& turn, Instant now, bool* wait_ended) {
  const auto take = [this](const ValueView& value) {
    wire::AppendValue(text_, value, pieces_);
    ++values_;
    value_bytes_ += value.size();
    // Two segments for each piece: the piece, and the length before it.
    const size_t bytes = text_.capacity() + ReplySegments::BytesFor(2 * pieces_.size());
    return value_bytes_ <= reply_bytes_max_ && has_room_(bytes);
  };
  return turn.Advance(step_, client_, now, take, wait_ended);
}

void LongRequest::KeepReplies() {
  values_reply_.Append(text_, pieces_);
  std::string().swap(text_);
}

Status LongRequest::TakeReply(ReplySegments& out) {
  const Reply reply = step_.reply();
  if (reply.kind == Reply::Kind::kRefused) {
    return Error{Code::kProtocol, Concat(Name(step_.op()), ": ", Describe(reply.why))};
  }
  if (reply.kind == Reply::Kind::kKeys) {
    AppendInt<int64_t>(text_, values_);
  } else if (reply.kind != Reply::Kind::kValues) {
    wire::AppendReply(text_, reply, pieces_);
  }
  out.Append(text_, pieces_);
  out.Append(values_reply_);
  return Ok();
}

}  // namespace muster
