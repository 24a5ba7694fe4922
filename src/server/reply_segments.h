// Unsent replies: texts, and pieces of large values, which are shared with the store instead of
// copied.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_account.h"
#include "os/ports/transport.h"
#include "store/core/value.h"
#include "store/wire/reply_writer.h"

namespace muster {

class ReplySegments {
  struct Segment {
    std::string text;
    Piece piece;
    size_t sent = 0;

    std::string_view rest() const {
      return (piece != nullptr ? piece->bytes() : std::string_view(text)).substr(sent);
    }
  };
  // Includes its links in the list.
  static constexpr size_t kBytesEach = AllocatedBytes(sizeof(Segment) + 2 * sizeof(void*));
  static size_t BytesOf(const Segment& segment) { return kBytesEach + HeapBytes(segment.text); }

 public:
  bool empty() const { return segments_.empty(); }
  /// Memory of the segments, without the pieces: those are charged when they are created.
  size_t bytes() const { return bytes_; }
  /// Bytes that are still to be sent, with the pieces.
  size_t unsent() const { return unsent_; }
  /// Memory of `count` segments without texts.
  static constexpr size_t BytesFor(size_t count) { return count * kBytesEach; }

  void Append(std::string text, Piece piece = nullptr);
  /// Cuts a text at its pieces. Both are empty afterwards.
  void Append(std::string& text, std::vector<wire::PieceAt>& pieces);
  /// Moves all segments of `others` to the end.
  void Append(ReplySegments& others);

  /// Writes until the stream does not take everything, at most kSentPerTurn bytes. Returns whether
  /// the stream would take more.
  bool SendTo(Stream& stream);

 private:
  std::list<Segment> segments_;
  size_t bytes_ = 0;
  size_t unsent_ = 0;
};

}  // namespace muster
