// A blocking client of a TCPStore server, muster's or PyTorch's. Speaks the plain protocol, in the
// caller's thread.
//
// One thread at a time. Every call is bounded: replies that a server sends at once (all but those
// to WAIT and BARRIER) are awaited for the call's timeout. A call after which the stream is out of
// step (no reply in time, connection lost, protocol error) ends the connection; every later call
// returns that error. The exception is a server that closes the connection when an absent key is
// read (PyTorch's without libuv): the client connects again, and sends CHECK before each read from
// then on.
//
// Any call may be kInterrupted (base/interruption.h). A wait is cancelled, as after its timeout; a
// reply that is due is still read if it arrives soon, and is then the call's result.
#pragma once

#include <concepts>
#include <memory>
#include <optional>

#include "base/endpoint.h"
#include "base/limits.h"
#include "base/time.h"
#include "os/ports/clock.h"
#include "os/ports/dialer.h"
#include "store/store_backend.h"

namespace muster {

struct StoreClientOptions {
  uint64_t key_bytes_max = kKeyBytesMax;
  uint64_t value_bytes_max = kValueBytesMax;
  uint64_t reply_bytes_max = kReplyBytesMax;      ///< A peer that announces more is not a store.
  uint64_t request_bytes_max = kRequestBytesMax;  ///< The whole request.
  /// How long to wait for the reply to a cancel, or to a last request after the deadline: a live
  /// server sends it immediately.
  std::chrono::milliseconds answer_grace = 5s;
  uint32_t nonce = 0;  ///< The number in PING: PyTorch sends its process id.
  uint64_t seed = 0;   ///< For the jitter between attempts.
};

class StoreClient final : public StoreBackend {
 public:
  /// Connects, validates and pings; repeats this until there is a valid reply or the timeout passes
  /// (kUnavailable).
  static Result<std::unique_ptr<StoreClient>> Connect(Dialer& dialer, Clock& clock,
                                                      const Endpoint& server,
                                                      const StoreClientOptions& options,
                                                      Timeout timeout);

  /// The operations of docs/reference/protocol.md, on application keys (the wire's leading '/' is
  /// added here). kTimeout: a key, element or participant is still missing; the client can be used
  /// again. kUnavailable: the connection is lost. kInvalid: a key, value or request that the server
  /// would not accept; nothing was sent. kProtocol: an invalid reply.
  Result<Answer> Execute(const Request& request, Timeout timeout) override;
  bool Supports(Op) const override { return true; }

  /// Increments the count of workers; the owner of the server then waits until there are
  /// `world_size`.
  Status Join(int world_size, bool owns_server, Timeout timeout);

 private:
  using Keys = std::span<const std::string_view>;  // as on the wire

  StoreClient(Dialer& dialer, Clock& clock, Endpoint server, const StoreClientOptions& options);

  /// One attempt at a connection, the first one or a new one in place of one that has ended.
  Status Open(Instant deadline);

  /// One call: its deadline and, for messages, its request.
  struct Call {
    Op op;
    Timeout timeout;
    Instant began;
    Instant deadline;
  };
  Call Begin(Op op, Timeout timeout);
  Status CheckLimits(const Request& request) const;
  /// Checks the request against the limits and sends it, together with `also` if given.
  Status Send(const Call& call, const Request& request, const Request* also = nullptr);
  /// Waits for the "stop waiting" of the WAIT or BARRIER just sent; cancels the request at the
  /// deadline. kTimeout or kInterrupted after a clean cancel; `names`: "keys: /k".
  Status AwaitStop(const Call& call, std::string_view names);
  /// Cancels the wait. False: the reply and the cancel crossed, and the wait has succeeded.
  Result<bool> Cancel(std::chrono::milliseconds grace);
  /// The error of an interrupted call.
  Error InterruptedIn(const Call& call, std::string_view waiting_for) const;
  Status WaitOnWire(Keys keys, const Call& call);
  /// For a wait that is followed by a request: kTimeout also if the reply arrived at the deadline.
  Status WaitBefore(Keys keys, const Call& call);
  static std::string TimeoutMessage(const Call& call, std::string_view names);

  /// GET and MULTI_GET.
  Result<Answer> Read(const Request& read, const Call& call);
  /// Sends `read` and reads the values of `keys`. kNotFound: a key is absent.
  Result<std::vector<std::string>> ReadIfThere(Keys keys, const Request& read, const Call& call);
  /// `values`, if the key of each empty one exists: the wire has one form for "empty" and "absent",
  /// and the key may have been deleted between CHECK and GET. kNotFound: read again.
  Result<std::vector<std::string>> Confirmed(Keys keys, std::vector<std::string> values,
                                             const Call& call);
  /// One key's value. kNotFound: the key is absent, not empty.
  Result<std::string> ReadConfirmed(std::string_view key, const Call& call);
  Result<Answer> Pop(const Request& pop, const Call& call);

  /// The reply to a request that does not wait.
  Result<Answer> ReadAnswer(const Call& call);
  Result<Answer> ReadKeys(const Call& call);
  Status ReadExactly(char* into, size_t count, const Call& call);
  template <std::integral T>
  Result<T> ReadInt(const Call& call);
  /// The values or keys of a reply.
  Result<std::vector<std::string>> ReadBlobs(size_t count, const Call& call);

  /// Ends the connection and remembers why.
  Error Break(Error error);

  Dialer& dialer_;
  Clock& clock_;
  const Endpoint server_;
  const StoreClientOptions options_;
  std::unique_ptr<BlockingStream> stream_;
  std::string input_;  // received, not yet read
  size_t input_at_ = 0;
  std::optional<std::string> broken_;
  bool ended_by_peer_ = false;  // broken_, because the connection ended where a reply was due
  bool with_ping_ = true;       // the handshake has a PING
  bool checks_first_ = false;   // the server closes the connection when an absent key is read
};

}  // namespace muster
