#include "server/reply_segments.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"

namespace muster {

namespace {
// The stream copies what it cannot send: at most this much of a large piece.
constexpr size_t kChunkBytes = 256 * 1024;
}  // namespace

void ReplySegments::Append(std::string text, Piece piece) {
  segments_.push_back({std::move(text), std::move(piece)});
  bytes_ += BytesOf(segments_.back());
  unsent_ += segments_.back().rest().size();
}

void ReplySegments::Append(std::string& text, std::vector<wire::PieceAt>& pieces) {
  size_t done = 0;
  for (wire::PieceAt& next : pieces) {
    if (next.at > done) Append(text.substr(done, next.at - done));
    done = next.at;
    Append("", std::move(next.piece));
  }
  if (done == 0 && !text.empty()) {
    Append(std::move(text));
  } else if (done < text.size()) {
    Append(text.substr(done));
  }
  text.clear();
  pieces.clear();
}

void ReplySegments::Append(ReplySegments& others) {
  bytes_ += std::exchange(others.bytes_, 0);
  unsent_ += std::exchange(others.unsent_, 0);
  segments_.splice(segments_.end(), others.segments_);
}

bool ReplySegments::SendTo(Stream& stream) {
  size_t left = kSentPerTurn;
  while (!segments_.empty() && stream.queued_bytes() == 0 && left > 0) {
    Segment& next = segments_.front();
    const std::string_view chunk = next.rest().substr(0, kChunkBytes);
    stream.Write(chunk);
    next.sent += chunk.size();
    left -= std::min(left, chunk.size());
    unsent_ -= chunk.size();
    if (!next.rest().empty()) continue;
    bytes_ -= BytesOf(next);
    segments_.pop_front();
  }
  return stream.queued_bytes() == 0;
}

}  // namespace muster
