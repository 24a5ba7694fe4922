// Sending and receiving for all operations of StoreClient.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/interruption.h"
#include "base/text.h"
#include "store/client/store_client.h"
#include "store/wire/request_reader.h"

namespace muster {

namespace {

constexpr size_t kReceiveBytes = 4 * 1024;  // larger values are received in place

StoreClient::Timeout InterruptionGrace(const StoreClientOptions& options) {
  return std::min(options.answer_grace,
                  std::chrono::duration_cast<StoreClient::Timeout>(kInterruptionGrace));
}

}  // namespace

StoreClient::Call StoreClient::Begin(Op op, Timeout timeout) {
  const Instant now = clock_.Now();
  return {op, timeout, now, DeadlineAfter(now, timeout)};
}

Status StoreClient::CheckLimits(const Request& request) const {
  const auto check = [&](std::string_view what, std::string_view bytes,
                         uint64_t allowed) -> Status {
    if (bytes.size() <= allowed) return Ok();
    return MakeError(Code::kInvalid, Name(request.op), ": ", what, " of ", bytes.size(),
                     " bytes, limit ", allowed, ": ", Printable(bytes, 40));
  };
  MUSTER_CHECK_OK(check("key", request.key, options_.key_bytes_max));
  MUSTER_CHECK_OK(check("value", request.value, options_.value_bytes_max));
  MUSTER_CHECK_OK(check("expected value", request.expected, options_.value_bytes_max));
  for (const std::string_view key : request.keys)
    MUSTER_CHECK_OK(check("key", key, options_.key_bytes_max));
  for (const std::string_view value : request.values) {
    MUSTER_CHECK_OK(check("value", value, options_.value_bytes_max));
  }
  if (request.keys.size() > kKeysPerRequestMax) {
    return MakeError(Code::kInvalid, Name(request.op), ": ", request.keys.size(), " keys, limit ",
                     kKeysPerRequestMax, ": split the call");
  }
  const uint64_t total = wire::RequestBytes(request);
  if (total > options_.request_bytes_max) {
    return MakeError(Code::kInvalid, Name(request.op), ": ", total, " bytes in ",
                     request.keys.size(), " keys and their values, limit ",
                     options_.request_bytes_max, " for one request: split the call");
  }
  return Ok();
}

Status StoreClient::Send(const Call& call, const Request& request, const Request* also) {
  MUSTER_CHECK_OK(CheckLimits(request));
  if (broken_) {
    return MakeError(Code::kUnavailable, "the connection to ", server_.ToString(),
                     " was lost earlier: ", *broken_);
  }
  std::string bytes;
  wire::AppendRequest(bytes, request);
  if (also != nullptr) wire::AppendRequest(bytes, *also);
  Status sent = stream_->Send(bytes, call.deadline);
  if (sent) return sent;
  if (sent.error().code == Code::kInterrupted) {
    // It is unknown how much of the request the server has received.
    Error why =
        InterruptedIn(call, Concat("sending ", Name(call.op), ": the connection is closed"));
    return Break(std::move(why));
  }
  return Break(sent.error().code == Code::kTimeout
                   ? MakeError(Code::kUnavailable, Name(call.op), ": the server took no bytes for ",
                               call.timeout.count(), "ms")
                   : sent.error());
}

Error StoreClient::InterruptedIn(const Call& call, std::string_view waiting_for) const {
  return Interrupted(call.began, clock_.Now(),
                     Concat(waiting_for, " (server ", server_.ToString(), ")"));
}

std::string StoreClient::TimeoutMessage(const Call& call, std::string_view names) {
  return Concat(call.op == Op::kBarrier ? "barrier" : "wait", " timeout after ",
                call.timeout.count(), "ms, ", names);
}

Status StoreClient::AwaitStop(const Call& call, std::string_view names) {
  char answer = 0;
  if (input_at_ < input_.size()) return Break({Code::kProtocol, "bytes came without a request"});
  const Result<size_t> in_time = stream_->Receive({&answer, 1}, call.deadline);
  if (in_time && answer == 0) return Ok();
  if (in_time)
    return Break(MakeError(Code::kProtocol, Name(call.op), " was answered with byte ",
                           static_cast<uint8_t>(answer)));
  const Code code = in_time.error().code;
  if (code != Code::kTimeout && code != Code::kInterrupted) return Break(in_time.error());
  if (code == Code::kTimeout) {
    MUSTER_TRY(const bool cancelled, Cancel(options_.answer_grace));
    if (!cancelled) return Ok();
    return MakeError(code, TimeoutMessage(call, names), " (server ", server_.ToString(), ")");
  }
  const ScopedUninterrupted once;
  Error why = InterruptedIn(
      call, Concat(call.op == Op::kBarrier ? "waiting at the barrier, " : "waiting for ", names));
  const Result<bool> cancelled = Cancel(InterruptionGrace(options_));
  if (!cancelled) return MakeError(code, why.message, "; ", cancelled.error().message);
  if (!*cancelled) return Ok();
  return why;
}

Result<bool> StoreClient::Cancel(std::chrono::milliseconds grace) {
  const Call cancel = Begin(Op::kCancelWait, grace);
  MUSTER_CHECK_OK(Send(cancel, {.op = Op::kCancelWait}));
  MUSTER_TRY(uint8_t first, ReadInt<uint8_t>(cancel));
  // The reply and the cancel crossed: the wait has succeeded.
  const bool crossed = first == 0;
  if (crossed) {
    MUSTER_TRY(first, ReadInt<uint8_t>(cancel));
  }
  if (first != 1)
    return Break(MakeError(Code::kProtocol, "CANCEL_WAIT was answered with byte ", first));
  return !crossed;
}

Status StoreClient::ReadExactly(char* into, size_t count, const Call& call) {
  Instant deadline = call.deadline;
  std::optional<ScopedUninterrupted> once;
  while (count > 0) {
    if (input_at_ < input_.size()) {
      const size_t part = std::min(count, input_.size() - input_at_);
      std::memcpy(into, input_.data() + input_at_, part);
      input_at_ += part;
      into += part;
      count -= part;
      continue;
    }
    const bool direct = count >= kReceiveBytes;
    input_.clear();
    input_at_ = 0;
    if (!direct) input_.resize(kReceiveBytes);
    Result<size_t> got =
        stream_->Receive(direct ? std::span(into, count) : std::span(input_), deadline);
    if (!direct) input_.resize(got ? *got : 0);
    if (!got && got.error().code == Code::kInterrupted) {
      // The reply is about to come, and may hold an element of a queue.
      once.emplace();
      deadline = std::min(deadline, clock_.Now() + InterruptionGrace(options_));
      continue;
    }
    if (!got && got.error().code == Code::kTimeout && once) {
      return Break(InterruptedIn(call, Concat("waiting for the reply to ", Name(call.op),
                                              ", which may have happened: the connection is "
                                              "closed")));
    }
    if (!got && got.error().code == Code::kTimeout) {
      return Break(MakeError(Code::kUnavailable, "no reply to ", Name(call.op), " from ",
                             server_.ToString(), " within ", call.timeout.count(),
                             "ms: the connection is closed"));
    }
    if (!got) {
      ended_by_peer_ = true;
      return Break(got.error());
    }
    if (direct) {
      into += *got;
      count -= *got;
    }
  }
  return Ok();
}

template <std::integral T>
Result<T> StoreClient::ReadInt(const Call& call) {
  char raw[sizeof(T)];
  MUSTER_CHECK_OK(ReadExactly(raw, sizeof raw, call));
  return LoadInt<T>(raw);
}
template Result<uint8_t> StoreClient::ReadInt<uint8_t>(const Call& call);
template Result<int64_t> StoreClient::ReadInt<int64_t>(const Call& call);

Result<Answer> StoreClient::ReadAnswer(const Call& call) {
  switch (call.op) {
    case Op::kSet:
    case Op::kAppend:
    case Op::kMultiSet:
    case Op::kQueuePush:
      return Answer{};
    case Op::kCompareSet: {
      MUSTER_TRY(auto value, ReadBlobs(1, call));
      return Answer{.value = std::move(value[0])};
    }
    case Op::kCheck: {
      MUSTER_TRY(const uint8_t missing, ReadInt<uint8_t>(call));
      if (missing <= 1) return Answer{.number = 1 - missing};
      return Break(MakeError(Code::kProtocol, "CHECK was answered with byte ", missing));
    }
    case Op::kListKeys:
      return ReadKeys(call);
    case Op::kPing: {
      MUSTER_TRY(const uint32_t echo, ReadInt<uint32_t>(call));
      if (echo == options_.nonce) return Answer{};
      return Break({Code::kProtocol, "PING was answered with another number"});
    }
    default: {
      MUSTER_TRY(const int64_t number, ReadInt<int64_t>(call));
      return Answer{.number = number};
    }
  }
}

Result<Answer> StoreClient::ReadKeys(const Call& call) {
  MUSTER_TRY(const int64_t count, ReadInt<int64_t>(call));
  const uint64_t most = options_.reply_bytes_max;  // a key has at least one byte
  if (count < 0 || static_cast<uint64_t>(count) > most) {
    return Break(MakeError(Code::kProtocol, "LIST_KEYS: the peer announces ", count,
                           " keys, limit ", most, ": it is no TCPStore server"));
  }
  MUSTER_TRY(std::vector<std::string> keys, ReadBlobs(static_cast<size_t>(count), call));
  std::erase_if(keys, [](const std::string& key) { return !key.starts_with('/'); });  // internal
  for (std::string& key : keys) key.erase(0, 1);
  return Answer{.values = std::move(keys)};
}

Result<std::vector<std::string>> StoreClient::ReadBlobs(size_t count, const Call& call) {
  const uint64_t most = options_.reply_bytes_max;
  uint64_t before = 0;  // bytes of the earlier ones
  std::vector<std::string> blobs;
  // Memory grows with what arrives, not with the announced count and lengths.
  constexpr uint64_t kStep = 4u << 20;
  while (blobs.size() < count) {
    MUSTER_TRY(const uint64_t size, ReadInt<uint64_t>(call));
    if (size > most - before) {
      const uint64_t total = size > UINT64_MAX - before ? UINT64_MAX : before + size;
      return Break(MakeError(Code::kProtocol, Name(call.op), ": the peer announces a reply of ",
                             HumanBytes(total), ", limit ", HumanBytes(most)));
    }
    before += size;
    std::string& blob = blobs.emplace_back();
    while (blob.size() < size) {
      const size_t at = blob.size();
      blob.resize(std::min<uint64_t>(size, at + kStep));
      MUSTER_CHECK_OK(ReadExactly(blob.data() + at, blob.size() - at, call));
    }
  }
  return blobs;
}

Error StoreClient::Break(Error error) {
  if (!broken_) broken_ = error.message;
  stream_.reset();
  if (error.code != Code::kProtocol && error.code != Code::kInterrupted)
    error.code = Code::kUnavailable;
  return error;
}

}  // namespace muster
