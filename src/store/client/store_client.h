// A blocking client of a TCPStore server, muster's or PyTorch's. Speaks the plain protocol, in the
// caller's thread.
//
// One thread at a time. Every call is bounded: what a server owes at once (all replies but those to
// WAIT and BARRIER) is awaited for the call's timeout and no longer. A call that leaves the stream
// out of step (no reply in time, connection lost, nonsense received) ends the connection; every
// later call says so. The one exception is a server that hangs up on whoever reads an absent key
// (PyTorch's without libuv): it is connected to again, and asked more carefully from then on.
//
// Any call may be kInterrupted (base/interruption.h). A wait is cancelled, as when its time is up;
// a reply that is due is still taken if it comes soon, and is then the call's result.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.h"
#include "base/limits.h"
#include "base/result.h"
#include "base/time.h"
#include "os/ports/clock.h"
#include "os/ports/dialer.h"
#include "store/core/request.h"

namespace muster {

struct StoreClientOptions {
  uint64_t key_bytes_max = kKeyBytesMax;
  uint64_t value_bytes_max = kValueBytesMax;
  uint64_t reply_bytes_max = kReplyBytesMax;      ///< A peer that promises more is not a store.
  uint64_t request_bytes_max = kRequestBytesMax;  ///< One request as a whole, a MULTI_SET say.
  /// For the answer to a cancel, or to a last question after the deadline: a server that is alive
  /// gives it at once.
  std::chrono::milliseconds answer_grace = 5s;
  uint32_t nonce = 0;  ///< What PING carries: PyTorch sends its process id.
  uint64_t seed = 0;   ///< For the jitter between attempts.
};

class StoreClient {
 public:
  using Timeout = std::chrono::milliseconds;
  using Keys = std::span<const std::string>;

  /// Connects, validates and pings, and tries again until the timeout while nobody answers
  /// properly. kUnavailable when it stays that way.
  static Result<std::unique_ptr<StoreClient>> Connect(Dialer& dialer, Clock& clock,
                                                      const Endpoint& server,
                                                      const StoreClientOptions& options,
                                                      Timeout timeout);

  /// The operations of docs/reference/protocol.md, on application keys (the wire's leading '/' is
  /// added here). kTimeout: a key, element or participant did not come, the client is fine.
  /// kUnavailable: the connection is lost. kInvalid: a key, value or request that the server would
  /// not take; nothing was sent. kProtocol: the peer answered nonsense.
  Status Set(std::string_view key, std::string_view value, Timeout timeout);
  Result<std::string> Get(std::string_view key, Timeout timeout);
  Result<int64_t> Add(std::string_view key, int64_t delta, Timeout timeout);
  Result<std::string> CompareSet(std::string_view key, std::string_view expected,
                                 std::string_view desired, Timeout timeout);
  Result<bool> Check(Keys keys, Timeout timeout);
  Status Wait(Keys keys, Timeout timeout);
  Result<bool> Delete(std::string_view key, Timeout timeout);
  Result<int64_t> Count(Timeout timeout);
  Result<std::vector<std::string>> ListKeys(Timeout timeout);
  Status Append(std::string_view key, std::string_view suffix, Timeout timeout);
  Result<std::vector<std::string>> MultiGet(Keys keys, Timeout timeout);
  Status MultiSet(Keys keys, Keys values, Timeout timeout);
  Status Push(std::string_view key, std::string_view value, Timeout timeout);
  /// kNotFound: empty.
  Result<std::string> TryPop(std::string_view key, Timeout timeout);
  Result<std::string> Pop(std::string_view key, Timeout timeout);
  Result<int64_t> QueueLength(std::string_view key, Timeout timeout);
  Status Barrier(std::string_view key, int64_t world_size, Timeout timeout);
  Status Ping(Timeout timeout);

  /// Counts itself in among the workers; the owner of the server then waits until there are
  /// `world_size`.
  Status Join(int world_size, bool owns_server, Timeout timeout);

  const Endpoint& server() const { return server_; }

 private:
  StoreClient(Dialer& dialer, Clock& clock, Endpoint server, const StoreClientOptions& options,
              std::unique_ptr<BlockingStream> stream);

  Status Handshake(bool with_ping, Instant deadline);
  /// One attempt at a new connection in place of the one that has ended.
  Status Reconnect(Instant deadline);

  /// One call: its deadline, and what it is about, for messages.
  struct Call {
    Op op;
    Timeout timeout;
    Instant began;
    Instant deadline;
  };
  Call Begin(Op op, Timeout timeout);
  Status Judge(const Request& request) const;
  /// Checks the request against the limits and sends it, together with `also` if given.
  Status Send(const Call& call, const Request& request, const Request* also = nullptr);
  /// Waits for the "stop waiting" of the WAIT or BARRIER just sent; cancels it when the time is up.
  /// kTimeout or kInterrupted after a clean cancel; `what` was waited for: "wait", "keys: /k".
  Status AwaitStop(const Call& call, std::string_view what, std::string_view names);
  /// Ends the wait under way. False: its answer and the cancel crossed, it did succeed.
  Result<bool> Cancel(std::chrono::milliseconds grace);
  /// What a caller who no longer wants it is told.
  Error InterruptedIn(const Call& call, std::string_view waiting_for) const;
  Status WaitOnWire(Keys wire_keys, const Call& call);
  /// For a wait that something follows: kTimeout, too, if the time was up when its answer came.
  Status WaitBefore(Keys wire_keys, const Call& call);
  static std::string Late(const Call& call, std::string_view what, std::string_view names);
  static std::string NamesOf(Keys wire_keys);

  /// Asks `read` (GET or MULTI_GET of `wire_keys`) and reads its `count` values. kNotFound: a key
  /// is not there.
  Result<std::vector<std::string>> ReadIfThere(Keys wire_keys, const Request& read, size_t count,
                                               const Call& call);
  /// `values` as they came, if the key of each empty one is there: the wire has one word for
  /// "empty" and "gone", and CHECK and GET may arrive apart. kNotFound: read again.
  Result<std::vector<std::string>> Confirmed(Keys wire_keys, std::vector<std::string> values,
                                             const Call& call);
  /// One key's value, which an absent key does not have. kNotFound: it is not there.
  Result<std::string> ReadForSure(const std::string& wire_key, const Call& call);
  Result<std::string> PopIfThere(const std::string& wire_key, const Call& call);

  Status ReadExactly(char* into, size_t count, const Call& call);
  Result<uint8_t> ReadByte(const Call& call);
  Result<int64_t> ReadNumber(const Call& call);
  Result<std::string> ReadBlob(const Call& call);
  /// One of several in a reply, of which `left` bytes may still come.
  Result<std::string> ReadBlob(const Call& call, uint64_t& left);
  Result<std::vector<std::string>> ReadBlobs(size_t count, const Call& call);

  /// Ends the connection and remembers why.
  Error Break(Error error);

  Dialer& dialer_;
  Clock& clock_;
  const Endpoint server_;
  const StoreClientOptions options_;
  std::unique_ptr<BlockingStream> stream_;
  std::string input_;  // received, not yet asked for
  size_t input_at_ = 0;
  std::optional<std::string> broken_;
  bool ended_by_peer_ = false;  // broken_, because the connection ended where a reply was due
  bool with_ping_ = true;       // how it was greeted
  bool checks_first_ = false;   // it hangs up on those who read what is not there
};

}  // namespace muster
