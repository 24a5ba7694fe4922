#include "store/client/store_client.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/interruption.h"
#include "base/text.h"
#include "store/client/backoff.h"
#include "store/wire/layout.h"
#include "store/wire/request_reader.h"

namespace muster {

namespace {

constexpr Duration kFirstRetry = 20ms;
constexpr Duration kLongestRetry = 2s;
// The counter of joined workers: the one key without a leading '/'.
constexpr std::string_view kWorkersKey = "init/";

std::string WireKey(std::string_view key) { return Concat('/', key); }

std::vector<std::string> WireKeys(StoreClient::Keys keys) {
  std::vector<std::string> wire;
  wire.reserve(keys.size());
  for (const std::string& key : keys) wire.push_back(WireKey(key));
  return wire;
}

std::vector<std::string_view> Views(StoreClient::Keys strings) {
  return {strings.begin(), strings.end()};
}

std::string Milliseconds(StoreClient::Timeout timeout) { return Concat(timeout.count(), "ms"); }

}  // namespace

// --- Connecting

Result<std::unique_ptr<StoreClient>> StoreClient::Connect(Dialer& dialer, Clock& clock,
                                                          const Endpoint& server,
                                                          const StoreClientOptions& options,
                                                          Timeout timeout) {
  const Instant began = clock.Now();
  const Instant deadline = DeadlineAfter(began, timeout);
  const auto interrupted = [&] {
    return Interrupted(began, clock.Now(),
                       Concat("trying to connect to (", server.host, ", ", server.port, ")"));
  };
  Backoff backoff(kFirstRetry, kLongestRetry, options.seed);
  bool with_ping = true;
  while (true) {
    auto stream = dialer.Dial(server, deadline);
    std::optional<Error> failure;
    if (stream) {
      std::unique_ptr<StoreClient> client(
          new StoreClient(dialer, clock, server, options, std::move(*stream)));
      Status greeted = client->Handshake(with_ping, deadline);
      client->with_ping_ = with_ping;
      if (greeted) return client;
      failure = greeted.error();
      // Servers of PyTorch 2.4 and older do not know PING and close the connection.
      if (failure->code == Code::kClosed && std::exchange(with_ping, false)) continue;
      with_ping = true;
    } else {
      failure = stream.error();
    }
    if (failure->code == Code::kInterrupted) return interrupted();
    if (failure->code == Code::kInvalid) {
      return Error{Code::kUnavailable,
                   Concat("The client socket has failed to connect to any network address of (",
                          server.host, ", ", server.port, "): ", failure->message)};
    }
    if (clock.Now() >= deadline) {
      return Error{Code::kUnavailable,
                   Concat("The client socket has timed out after ", Milliseconds(timeout),
                          " while trying to connect to (", server.host, ", ", server.port,
                          "). The last attempt failed with: ", failure->message)};
    }
    clock.SleepUntil(std::min(clock.Now() + backoff.Next(), deadline));
    if (IsInterrupted()) return interrupted();
  }
}

StoreClient::StoreClient(Dialer& dialer, Clock& clock, Endpoint server,
                         const StoreClientOptions& options, std::unique_ptr<BlockingStream> stream)
    : dialer_(dialer),
      clock_(clock),
      server_(std::move(server)),
      options_(options),
      stream_(std::move(stream)) {}

Status StoreClient::Reconnect(Instant deadline) {
  MUSTER_TRY(stream_, dialer_.Dial(server_, deadline));
  input_.clear();
  input_at_ = 0;
  if (Status greeted = Handshake(with_ping_, deadline); !greeted) {
    stream_.reset();
    return greeted;
  }
  broken_.reset();
  ended_by_peer_ = false;
  return Ok();
}

Status StoreClient::Handshake(bool with_ping, Instant deadline) {
  std::string greeting;
  // VALIDATE is one write: PyTorch's libuv server does not reassemble a split one.
  wire::AppendRequest(greeting, {.op = Op::kValidate, .number = wire::kMagic});
  // Servers without PING get a request that they know: without a reply there is no proof.
  wire::AppendRequest(greeting, with_ping ? Request{.op = Op::kPing, .number = options_.nonce}
                                          : Request{.op = Op::kGetNumKeys});
  MUSTER_CHECK_OK(stream_->Send(greeting, deadline));
  char answer[8];
  const size_t expected = with_ping ? 4 : 8;
  for (size_t got = 0; got < expected;) {
    MUSTER_TRY(const size_t count,
               stream_->Receive(std::span(answer).subspan(got, expected - got), deadline));
    got += count;
  }
  if (with_ping && LoadInt<uint32_t>(answer) != options_.nonce) {
    return Error{Code::kUnavailable,
                 "the peer answered PING with something else: it is no TCPStore server"};
  }
  return Ok();
}

Status StoreClient::Join(int world_size, bool owns_server, Timeout timeout) {
  const Call call = Begin(Op::kAdd, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kAdd, .key = kWorkersKey, .number = 1}));
  MUSTER_TRY(int64_t joined, ReadNumber(call));
  // PyTorch polls every 10 ms. Here the first polls are closer together.
  Backoff pause(1ms, 10ms, options_.seed);
  while (owns_server && joined < world_size) {
    const Instant next = clock_.Now() + pause.Next();
    if (next >= call.deadline) {
      const int64_t seconds = (timeout.count() + 999) / 1000;
      return Error{Code::kTimeout,
                   Concat("Timed out after ", seconds, " seconds waiting for clients. ", joined,
                          "/", world_size, " clients joined.")};
    }
    clock_.SleepUntil(next);
    if (IsInterrupted()) {
      return InterruptedIn(
          call, Concat("waiting for clients, ", joined, "/", world_size, " clients joined"));
    }
    // At the deadline the count is read once more: the others are late, not the server.
    const Call look{call.op, call.timeout, call.began,
                    std::max(call.deadline, DeadlineAfter(clock_.Now(), options_.answer_grace))};
    MUSTER_CHECK_OK(Send(look, {.op = Op::kAdd, .key = kWorkersKey, .number = 0}));
    MUSTER_TRY(joined, ReadNumber(look));
  }
  return Ok();
}

// --- Operations

Status StoreClient::Set(std::string_view key, std::string_view value, Timeout timeout) {
  return Send(Begin(Op::kSet, timeout), {.op = Op::kSet, .key = WireKey(key), .value = value});
}

Result<std::string> StoreClient::Get(std::string_view key, Timeout timeout) {
  const Call call = Begin(Op::kGet, timeout);
  const std::string wire_key = WireKey(key);
  const Request get{.op = Op::kGet, .key = wire_key};
  while (true) {
    auto values = ReadIfThere(std::span(&wire_key, 1), get, 1, call);
    if (values) return std::move(values->front());
    if (values.error().code != Code::kNotFound) return values.error();
    // A key that vanishes between its wait and its read is waited for again.
    MUSTER_CHECK_OK(WaitBefore(std::span(&wire_key, 1), call));
  }
}

Result<std::vector<std::string>> StoreClient::ReadIfThere(Keys wire_keys, const Request& read,
                                                          size_t count, const Call& call) {
  const auto absent = [] { return Error{Code::kNotFound, "a key is not there"}; };
  const std::vector<std::string_view> keys = Views(wire_keys);
  const Request check{.op = Op::kCheck, .keys = keys};
  if (checks_first_) {
    MUSTER_CHECK_OK(Send(call, check));
    MUSTER_TRY(const uint8_t missing, ReadByte(call));
    if (missing != 0) return absent();
    MUSTER_CHECK_OK(Send(call, read));
    MUSTER_TRY(auto values, ReadBlobs(count, call));
    // Confirmed as well: what looked like such a server may have been a broken connection.
    return Confirmed(wire_keys, std::move(values), call);
  }
  // CHECK and GET in one message: one round trip for a key that is there, where WAIT and GET would
  // be two.
  MUSTER_CHECK_OK(Send(call, check, &read));
  MUSTER_TRY(const uint8_t missing, ReadByte(call));
  auto values = ReadBlobs(count, call);
  if (missing == 0 && values) return Confirmed(wire_keys, *std::move(values), call);
  if (missing == 0) return values;
  if (values) return absent();
  if (!ended_by_peer_) return values.error();
  // The connection was closed in place of a reply: PyTorch's server without libuv. If the server
  // has ended, reconnecting fails, and the error stays.
  if (!Reconnect(call.deadline)) return values.error();
  checks_first_ = true;
  return absent();
}

Result<std::vector<std::string>> StoreClient::Confirmed(Keys wire_keys,
                                                        std::vector<std::string> values,
                                                        const Call& call) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].empty()) continue;
    MUSTER_TRY(std::string found, ReadConfirmed(wire_keys[i], call));
    if (values.size() == 1) return std::vector{std::move(found)};
    if (!found.empty()) return Error{Code::kNotFound, "a key came while others were read"};
  }
  return values;
}

Result<std::string> StoreClient::ReadConfirmed(const std::string& wire_key, const Call& call) {
  // A comparison that fails changes nothing, and returns the value. If the value is this text, it
  // is written again, and the next GET reads it.
  constexpr std::string_view kUnusedValue = "muster asks whether this key is there";
  MUSTER_CHECK_OK(Send(
      call,
      {.op = Op::kCompareSet, .key = wire_key, .expected = kUnusedValue, .value = kUnusedValue}));
  MUSTER_TRY(std::string found, ReadBlob(call));
  if (found != kUnusedValue) return found;
  // A queue satisfies CHECK, and has no value. Not every server has queues, hence CHECK first.
  const std::string_view key = wire_key;
  MUSTER_CHECK_OK(Send(call, {.op = Op::kCheck, .keys = std::span(&key, 1)}));
  MUSTER_TRY(const uint8_t missing, ReadByte(call));
  if (missing == 0) {
    MUSTER_CHECK_OK(Send(call, {.op = Op::kQueueLen, .key = wire_key}));
    MUSTER_TRY(const int64_t length, ReadNumber(call));
    if (length > 0) return std::string();
  }
  return Error{Code::kNotFound, "a key has gone while it was read"};
}

Result<int64_t> StoreClient::Add(std::string_view key, int64_t delta, Timeout timeout) {
  const Call call = Begin(Op::kAdd, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kAdd, .key = WireKey(key), .number = delta}));
  return ReadNumber(call);
}

Result<std::string> StoreClient::CompareSet(std::string_view key, std::string_view expected,
                                            std::string_view desired, Timeout timeout) {
  const Call call = Begin(Op::kCompareSet, timeout);
  MUSTER_CHECK_OK(Send(
      call, {.op = Op::kCompareSet, .key = WireKey(key), .expected = expected, .value = desired}));
  return ReadBlob(call);
}

Result<bool> StoreClient::Check(Keys keys, Timeout timeout) {
  const Call call = Begin(Op::kCheck, timeout);
  const std::vector<std::string> wire_keys = WireKeys(keys);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kCheck, .keys = Views(wire_keys)}));
  MUSTER_TRY(const uint8_t answer, ReadByte(call));
  if (answer > 1) return Break({Code::kProtocol, Concat("CHECK was answered with byte ", answer)});
  return answer == 0;
}

Status StoreClient::Wait(Keys keys, Timeout timeout) {
  if (keys.empty()) return Ok();
  return WaitOnWire(WireKeys(keys), Begin(Op::kWait, timeout));
}

Status StoreClient::WaitOnWire(Keys wire_keys, const Call& call) {
  MUSTER_CHECK_OK(Send(call, {.op = Op::kWait, .keys = Views(wire_keys)}));
  return AwaitStop(call, "wait", NamesOf(wire_keys));
}

Status StoreClient::WaitBefore(Keys wire_keys, const Call& call) {
  MUSTER_CHECK_OK(WaitOnWire(wire_keys, call));
  if (clock_.Now() < call.deadline) return Ok();
  // The reply crossed with the cancel. There is no time left for another request.
  return Error{Code::kTimeout, TimeoutMessage(call, "wait", NamesOf(wire_keys))};
}

std::string StoreClient::NamesOf(Keys wire_keys) {
  std::string names = "keys: ";
  for (size_t i = 0; i < wire_keys.size(); ++i)
    names += Concat(i == 0 ? "" : ", ", Printable(wire_keys[i]));
  return names;
}

std::string StoreClient::TimeoutMessage(const Call& call, std::string_view what,
                                        std::string_view names) {
  return Concat(what, " timeout after ", Milliseconds(call.timeout), ", ", names);
}

Result<bool> StoreClient::Delete(std::string_view key, Timeout timeout) {
  const Call call = Begin(Op::kDeleteKey, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kDeleteKey, .key = WireKey(key)}));
  MUSTER_TRY(const int64_t removed, ReadNumber(call));
  return removed > 0;
}

Result<int64_t> StoreClient::Count(Timeout timeout) {
  const Call call = Begin(Op::kGetNumKeys, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kGetNumKeys}));
  return ReadNumber(call);
}

Result<std::vector<std::string>> StoreClient::ListKeys(Timeout timeout) {
  const Call call = Begin(Op::kListKeys, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kListKeys}));
  MUSTER_TRY(const int64_t count, ReadNumber(call));
  uint64_t left = options_.reply_bytes_max;
  // A key has at least one byte.
  if (count < 0 || static_cast<uint64_t>(count) > left) {
    return Break({Code::kProtocol, Concat("LIST_KEYS: the peer announces ", count, " keys, limit ",
                                          left, ": it is no TCPStore server")});
  }
  std::vector<std::string> keys;
  for (int64_t i = 0; i < count; ++i) {
    MUSTER_TRY(std::string key, ReadBlob(call, left));
    if (key.starts_with('/')) keys.push_back(key.substr(1));  // the others are internal
  }
  return keys;
}

Status StoreClient::Append(std::string_view key, std::string_view suffix, Timeout timeout) {
  return Send(Begin(Op::kAppend, timeout),
              {.op = Op::kAppend, .key = WireKey(key), .value = suffix});
}

Result<std::vector<std::string>> StoreClient::MultiGet(Keys keys, Timeout timeout) {
  if (keys.empty()) return std::vector<std::string>();
  const Call call = Begin(Op::kMultiGet, timeout);
  const std::vector<std::string> wire_keys = WireKeys(keys);
  const std::vector<std::string_view> views = Views(wire_keys);
  const Request multi_get{.op = Op::kMultiGet, .keys = views};
  while (true) {
    // Waits first: where one value is missing, the others would be sent for nothing. A key that is
    // deleted in between is waited for again, as in Get.
    MUSTER_CHECK_OK(WaitBefore(wire_keys, call));
    auto values = ReadIfThere(wire_keys, multi_get, keys.size(), call);
    if (values || values.error().code != Code::kNotFound) return values;
  }
}

Status StoreClient::MultiSet(Keys keys, Keys values, Timeout timeout) {
  if (keys.size() != values.size()) {
    return Error{Code::kInvalid, Concat("multiSet keys and values vectors must be of same size: ",
                                        keys.size(), " keys, ", values.size(), " values")};
  }
  const std::vector<std::string> wire_keys = WireKeys(keys);
  return Send(Begin(Op::kMultiSet, timeout),
              {.op = Op::kMultiSet, .keys = Views(wire_keys), .values = Views(values)});
}

Status StoreClient::Push(std::string_view key, std::string_view value, Timeout timeout) {
  return Send(Begin(Op::kQueuePush, timeout),
              {.op = Op::kQueuePush, .key = WireKey(key), .value = value});
}

Result<std::string> StoreClient::TryPop(std::string_view key, Timeout timeout) {
  return PopIfThere(WireKey(key), Begin(Op::kQueuePop, timeout));
}

Result<std::string> StoreClient::PopIfThere(const std::string& wire_key, const Call& call) {
  MUSTER_CHECK_OK(Send(call, {.op = Op::kQueuePop, .key = wire_key}));
  MUSTER_TRY(const int64_t length, ReadNumber(call));
  if (length > 0) return ReadBlob(call);
  const std::string_view key = std::string_view(wire_key).substr(1);
  return Error{Code::kNotFound, Concat("queue is empty: ", Printable(key))};
}

Result<std::string> StoreClient::Pop(std::string_view key, Timeout timeout) {
  const Call call = Begin(Op::kQueuePop, timeout);
  const std::string wire_key = WireKey(key);
  while (true) {
    // Tried first: an element that is there costs one round trip. Where other clients wait already,
    // the server has no free element, so that none of them is overtaken.
    Result<std::string> element = PopIfThere(wire_key, call);
    if (element || element.error().code != Code::kNotFound) return element;
    MUSTER_CHECK_OK(WaitBefore(std::span(&wire_key, 1), call));
  }
}

Result<int64_t> StoreClient::QueueLength(std::string_view key, Timeout timeout) {
  const Call call = Begin(Op::kQueueLen, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kQueueLen, .key = WireKey(key)}));
  return ReadNumber(call);
}

Status StoreClient::Barrier(std::string_view key, int64_t world_size, Timeout timeout) {
  const Call call = Begin(Op::kBarrier, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kBarrier, .key = WireKey(key), .number = world_size}));
  return AwaitStop(call, "barrier", Concat("key: ", key));
}

Status StoreClient::Ping(Timeout timeout) {
  const Call call = Begin(Op::kPing, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kPing, .number = options_.nonce}));
  char echo[4];
  MUSTER_CHECK_OK(ReadExactly(echo, sizeof echo, call));
  if (LoadInt<uint32_t>(echo) != options_.nonce) {
    return Break({Code::kProtocol, "PING was answered with another number"});
  }
  return Ok();
}

}  // namespace muster
