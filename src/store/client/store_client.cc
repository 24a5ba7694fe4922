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

/// A request on the user's keys, with the '/' that precedes each of them on the wire.
struct OnWire {
  explicit OnWire(const Request& asked) : request(asked), key(Concat('/', asked.key)) {
    texts.reserve(asked.keys.size());
    for (const std::string_view name : asked.keys) texts.push_back(Concat('/', name));
    keys.assign(texts.begin(), texts.end());
    request.key = key;
    request.keys = keys;
  }
  OnWire(const OnWire&) = delete;
  OnWire& operator=(const OnWire&) = delete;

  Request request;
  const std::string key;
  std::vector<std::string> texts;
  std::vector<std::string_view> keys;
};

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
  std::unique_ptr<StoreClient> client(new StoreClient(dialer, clock, server, options));
  while (true) {
    const Status opened = client->Open(deadline);
    if (opened) return client;
    const Error& failure = opened.error();
    // Servers of PyTorch 2.4 and older do not know PING and close the connection.
    if (failure.code == Code::kClosed && std::exchange(client->with_ping_, false)) continue;
    client->with_ping_ = true;
    if (failure.code == Code::kInterrupted) return interrupted();
    if (failure.code == Code::kInvalid) {
      return MakeError(Code::kUnavailable,
                       "The client socket has failed to connect to any network address of (",
                       server.host, ", ", server.port, "): ", failure.message);
    }
    if (clock.Now() >= deadline) {
      return MakeError(Code::kUnavailable, "The client socket has timed out after ",
                       timeout.count(), "ms while trying to connect to (", server.host, ", ",
                       server.port, "). The last attempt failed with: ", failure.message);
    }
    clock.SleepUntil(std::min(clock.Now() + backoff.Next(), deadline));
    if (IsInterrupted()) return interrupted();
  }
}

StoreClient::StoreClient(Dialer& dialer, Clock& clock, Endpoint server,
                         const StoreClientOptions& options)
    : dialer_(dialer), clock_(clock), server_(std::move(server)), options_(options) {}

Status StoreClient::Open(Instant deadline) {
  MUSTER_TRY(std::unique_ptr<BlockingStream> stream, dialer_.Dial(server_, deadline));
  std::string greeting;
  // VALIDATE is one write: PyTorch's libuv server does not reassemble a split one.
  wire::AppendRequest(greeting, {.op = Op::kValidate, .number = wire::kMagic});
  // Servers without PING get a request that they know: only a reply proves that it is a store.
  wire::AppendRequest(greeting, with_ping_ ? Request{.op = Op::kPing, .number = options_.nonce}
                                           : Request{.op = Op::kGetNumKeys});
  MUSTER_CHECK_OK(stream->Send(greeting, deadline));
  char answer[8];
  const size_t expected = with_ping_ ? 4 : 8;
  for (size_t got = 0; got < expected;) {
    MUSTER_TRY(const size_t count,
               stream->Receive(std::span(answer).subspan(got, expected - got), deadline));
    got += count;
  }
  if (with_ping_ && LoadInt<uint32_t>(answer) != options_.nonce) {
    return Error{Code::kUnavailable,
                 "the peer answered PING with something else: it is no TCPStore server"};
  }
  stream_ = std::move(stream);
  input_.clear();
  input_at_ = 0;
  broken_.reset();
  ended_by_peer_ = false;
  return Ok();
}

Status StoreClient::Join(int world_size, bool owns_server, Timeout timeout) {
  const Call call = Begin(Op::kAdd, timeout);
  MUSTER_CHECK_OK(Send(call, {.op = Op::kAdd, .key = kWorkersKey, .number = 1}));
  MUSTER_TRY(int64_t joined, ReadInt<int64_t>(call));
  // PyTorch polls every 10 ms. Here the first polls are closer together.
  Backoff pause(1ms, 10ms, options_.seed);
  while (owns_server && joined < world_size) {
    const Instant next = clock_.Now() + pause.Next();
    if (next >= call.deadline) {
      const int64_t seconds = (timeout.count() + 999) / 1000;
      return MakeError(Code::kTimeout, "Timed out after ", seconds,
                       " seconds waiting for clients. ", joined, "/", world_size,
                       " clients joined.");
    }
    clock_.SleepUntil(next);
    if (IsInterrupted()) {
      return InterruptedIn(
          call, Concat("waiting for clients, ", joined, "/", world_size, " clients joined"));
    }
    // At the deadline the count is read once more: the missing workers are late, not the server.
    const Call look{call.op, call.timeout, call.began,
                    std::max(call.deadline, DeadlineAfter(clock_.Now(), options_.answer_grace))};
    MUSTER_CHECK_OK(Send(look, {.op = Op::kAdd, .key = kWorkersKey, .number = 0}));
    MUSTER_TRY(joined, ReadInt<int64_t>(look));
  }
  return Ok();
}

// --- Operations

Result<Answer> StoreClient::Execute(const Request& asked, Timeout timeout) {
  const Call call = Begin(asked.op, timeout);
  OnWire wire(asked);
  Request& request = wire.request;
  if (call.op == Op::kPing) request.number = options_.nonce;
  switch (call.op) {
    case Op::kGet:
      return Read(request, call);
    case Op::kMultiGet:
      if (request.keys.empty()) return Answer{};
      return Read(request, call);
    case Op::kQueuePop:
      return Pop(request, call);
    case Op::kWait:
      if (!request.keys.empty()) MUSTER_CHECK_OK(WaitOnWire(request.keys, call));
      return Answer{};
    case Op::kBarrier:
      MUSTER_CHECK_OK(Send(call, request));
      MUSTER_CHECK_OK(AwaitStop(call, Concat("key: ", asked.key)));
      return Answer{};
    default:
      MUSTER_CHECK_OK(Send(call, request));
      return ReadAnswer(call);
  }
}

Result<Answer> StoreClient::Read(const Request& read, const Call& call) {
  const bool is_one = read.op == Op::kGet;
  const Keys keys = is_one ? Keys(&read.key, 1) : read.keys;
  // MULTI_GET waits first: if one value is missing, the others would be sent in vain.
  for (bool waits = !is_one;; waits = true) {
    // If a key is deleted between its wait and its read, the call waits for it again.
    if (waits) MUSTER_CHECK_OK(WaitBefore(keys, call));
    auto values = ReadIfThere(keys, read, call);
    if (values && is_one) return Answer{.value = std::move(values->front())};
    if (values) return Answer{.values = std::move(*values)};
    if (values.error().code != Code::kNotFound) return std::move(values).error();
  }
}

Result<std::vector<std::string>> StoreClient::ReadIfThere(Keys keys, const Request& read,
                                                          const Call& call) {
  const auto absent = [] { return Error{Code::kNotFound, "a key is not there"}; };
  const Request check{.op = Op::kCheck, .keys = keys};
  // CHECK and GET in one message: one round trip for an existing key; WAIT and GET would take two.
  MUSTER_CHECK_OK(Send(call, check, checks_first_ ? nullptr : &read));
  MUSTER_TRY(const uint8_t missing, ReadInt<uint8_t>(call));
  if (checks_first_) {
    if (missing != 0) return absent();
    MUSTER_CHECK_OK(Send(call, read));
  }
  auto values = ReadBlobs(keys.size(), call);
  // With `checks_first_`, too: its cause may have been a broken connection and not such a server.
  if (missing == 0 && values) return Confirmed(keys, *std::move(values), call);
  if (missing == 0) return values;
  if (values) return absent();
  if (!ended_by_peer_) return values.error();
  // The connection was closed in place of a reply: PyTorch's server without libuv. If the server
  // has ended, reconnecting fails, and the first error is returned.
  if (!Open(call.deadline)) return values.error();
  checks_first_ = true;
  return absent();
}

Result<std::vector<std::string>> StoreClient::Confirmed(Keys keys, std::vector<std::string> values,
                                                        const Call& call) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].empty()) continue;
    MUSTER_TRY(std::string found, ReadConfirmed(keys[i], call));
    if (values.size() == 1) return std::vector{std::move(found)};
    if (!found.empty()) return Error{Code::kNotFound, "a key came while others were read"};
  }
  return values;
}

Result<std::string> StoreClient::ReadConfirmed(std::string_view key, const Call& call) {
  // A comparison that fails changes nothing, and returns the value. If the value is this text, it
  // is written again, and the next GET reads it.
  constexpr std::string_view kUnusedValue = "muster asks whether this key is there";
  MUSTER_CHECK_OK(Send(
      call, {.op = Op::kCompareSet, .key = key, .expected = kUnusedValue, .value = kUnusedValue}));
  MUSTER_TRY(auto found, ReadBlobs(1, call));
  if (found[0] != kUnusedValue) return std::move(found[0]);
  // A queue satisfies CHECK, but has no value. Not every server supports queues, so CHECK comes
  // first.
  MUSTER_CHECK_OK(Send(call, {.op = Op::kCheck, .keys = Keys(&key, 1)}));
  MUSTER_TRY(const uint8_t missing, ReadInt<uint8_t>(call));
  if (missing == 0) {
    MUSTER_CHECK_OK(Send(call, {.op = Op::kQueueLen, .key = key}));
    MUSTER_TRY(const int64_t length, ReadInt<int64_t>(call));
    if (length > 0) return std::string();
  }
  return Error{Code::kNotFound, "a key has gone while it was read"};
}

Status StoreClient::WaitOnWire(Keys keys, const Call& call) {
  MUSTER_CHECK_OK(Send(call, {.op = Op::kWait, .keys = keys}));
  return AwaitStop(call, NamesOf(keys));
}

Status StoreClient::WaitBefore(Keys keys, const Call& call) {
  MUSTER_CHECK_OK(WaitOnWire(keys, call));
  if (clock_.Now() < call.deadline) return Ok();
  // The reply and the cancel crossed. There is no time left for another request.
  return Error{Code::kTimeout, TimeoutMessage(call, NamesOf(keys))};
}

Result<Answer> StoreClient::Pop(const Request& pop, const Call& call) {
  while (true) {
    // Tries first: if there is an element, this takes one round trip. No waiting client is
    // overtaken, because its element is reserved.
    MUSTER_CHECK_OK(Send(call, pop));
    MUSTER_TRY(const int64_t length, ReadInt<int64_t>(call));
    if (length > 0) {
      MUSTER_TRY(auto element, ReadBlobs(1, call));
      return Answer{.value = std::move(element[0])};
    }
    if (pop.number == 0) {
      return MakeError(Code::kNotFound, "queue is empty: ", Printable(pop.key.substr(1)));
    }
    MUSTER_CHECK_OK(WaitBefore(Keys(&pop.key, 1), call));
  }
}

}  // namespace muster
