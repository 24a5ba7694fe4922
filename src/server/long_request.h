// A request on so many keys that it is decoded while it arrives, executed in short steps, and
// answered in segments, so that no client holds the store's lock for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "base/time.h"
#include "server/reply_segments.h"
#include "server/shared_store.h"
#include "store/core/long_step.h"
#include "store/wire/reply_writer.h"
#include "store/wire/request_reader.h"

namespace muster {

class LongRequest {
 public:
  using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;
  /// Whether the client may hold `bytes` more.
  using HasRoom = std::function<bool(size_t bytes)>;

  LongRequest(Op op, ClientId client, SharedStore& store, const wire::RequestLimits& limits,
              HasRoom has_room);

  /// Whether `bytes` begin a request that is better decoded while it arrives.
  static bool IsLong(std::string_view bytes, const wire::RequestLimits& limits) {
    const std::optional<uint64_t> count = wire::ListReader::CountIn(bytes);
    // The scanner refuses a request with too many keys.
    if (!count || *count > limits.keys_max) return false;
    return *count > kKeysPerPiece || bytes.size() > kLongRequestBytes;
  }

  /// Reads the keys that have arrived; `pairs` is memory for them. Returns how many bytes are
  /// consumed. kProtocol: not acceptable, or no room.
  Result<size_t> Read(std::string_view bytes, Pairs& pairs);
  bool is_complete() const { return reader_.is_complete(); }
  Op op() const { return step_.op(); }

  /// The request is complete: steps may begin.
  void Run() { runs_ = true; }
  bool runs() const { return runs_; }

  /// Executes one short step. True: it was the last one.
  bool Advance(SharedStore::Turn& turn, Instant now, bool* wait_ended);
  /// Stores the reply of the last step; to be called outside the turn.
  void KeepReplies();
  /// After the last step: moves the reply to `out`, or returns why the request is refused.
  Status TakeReply(ReplySegments& out);
  /// Undoes what was prepared, in short steps. True: there is more to undo.
  bool Abandon(SharedStore::Turn& turn) { return turn.Abandon(step_); }

  /// Memory of the request, and of its reply so far.
  size_t bytes() const { return step_.bytes(); }
  size_t reply_bytes() const { return values_reply_.bytes(); }

 private:
  const ClientId client_;
  const uint64_t reply_bytes_max_;
  const HasRoom has_room_;
  wire::ListReader reader_;
  LongStep step_;
  bool runs_ = false;
  // The values or keys of the reply; its head follows from their number.
  std::string text_;
  std::vector<wire::PieceAt> pieces_;
  ReplySegments values_reply_;
  int64_t values_ = 0;
  uint64_t value_bytes_ = 0;
};

}  // namespace muster
