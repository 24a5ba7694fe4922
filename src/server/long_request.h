// A request on so many keys that it is taken apart while it arrives, executed in short steps, and
// answered in segments: no client holds the store's lock for long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  /// Whether the client may hold so many more bytes.
  using HasRoom = std::function<bool(size_t bytes)>;

  LongRequest(Op op, ClientId client, SharedStore& store, const wire::RequestLimits& limits,
              HasRoom has_room);

  /// Whether `bytes` begin a request that is better taken apart while it arrives.
  static bool IsLong(std::string_view bytes, const wire::RequestLimits& limits);

  /// Takes over the keys that have come; `pairs` is room for them. Returns how many bytes are done
  /// with. kProtocol: not acceptable, or no room.
  Result<size_t> Read(std::string_view bytes, Pairs& pairs);
  bool is_complete() const { return reader_.is_complete(); }
  Op op() const { return step_.op(); }

  /// Nothing more is to be read: steps may begin.
  void Run() { runs_ = true; }
  bool runs() const { return runs_; }

  /// Executes one short step. True: it was the last one.
  bool Advance(SharedStore::Turn& turn, Instant now, bool* wait_ended);
  /// Takes over what the last step answered with; outside the turn.
  void KeepReplies();
  /// After the last step: moves the reply to `out`, or returns why the request is refused.
  Status TakeReply(ReplySegments& out);
  /// Takes back what was prepared, in short steps. True: there is more to take back.
  bool Abandon(SharedStore::Turn& turn) { return turn.Abandon(step_); }

  /// What the request holds, and what its reply holds so far.
  size_t bytes() const { return step_.bytes(); }
  size_t reply_bytes() const { return values_reply_.bytes(); }

 private:
  bool TakeValue(const ValueView& value);

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
