#include "histories/lying_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "store/wire/request_reader.h"
#include "support/bytes.h"
#include "support/raw_socket.h"
#include "support/whole_reply.h"

namespace muster::test {

namespace {

constexpr std::string_view kNames[] = {"none",        "stale-read",      "lost-set",
                                       "lost-add",    "repeated-add",    "lost-compare-set",
                                       "lost-append", "repeated-append", "delete-only-says-so",
                                       "wrong-check", "false-wake",      "lost-push",
                                       "double-pop",  "torn-multi-set"};
static_assert(std::size(kNames) == std::size(kAllLies));

/// Time stands still: reservations of queue elements end with the next request, or never.
constexpr Instant kNow{};

void SendAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;  // the other side reads to the end
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace

std::string_view Name(Lie lie) { return kNames[static_cast<size_t>(lie)]; }

std::optional<Lie> LieNamed(std::string_view name) {
  for (const Lie lie : kAllLies) {
    if (Name(lie) == name) return lie;
  }
  return std::nullopt;
}

LyingServer::LyingServer(Lie lie, uint64_t seed) : lie_(lie), prng_(seed) {
  const BoundSocket bound = BindLoopback();
  listener_ = bound.fd;
  port_ = bound.port;
  if (listen(listener_, 1024) != 0) throw std::runtime_error("the lying server cannot listen");
  acceptor_ = std::thread([this] { Accept(); });
}

LyingServer::~LyingServer() {
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [client, fd] : sockets_) shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

void LyingServer::Accept() {
  for (uint64_t id = 0;; ++id) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    {
      const std::lock_guard lock(mutex_);
      sockets_.emplace(ClientId{id}, fd);
    }
    threads_.emplace_back([this, id, fd] { Serve(ClientId{id}, fd); });
  }
}

void LyingServer::Serve(ClientId client, int fd) {
  std::string input;
  size_t greeting = ValidateBytes().size();  // assumed without looking
  char bytes[4096];
  for (ssize_t count; (count = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
    input.append(bytes, static_cast<size_t>(count));
    if (input.size() < greeting) continue;
    input.erase(0, std::exchange(greeting, 0));
    const std::optional<size_t> done = Consume(client, fd, input);
    if (!done) break;
    input.erase(0, *done);
  }
  const std::lock_guard lock(mutex_);
  sockets_.erase(client);
  Released released;
  machine_.Drop(client, kNow, released);
  for (const ClientId other : released) SendAll(sockets_.at(other), kStop);
  close(fd);
}

std::optional<size_t> LyingServer::Consume(ClientId client, int fd, std::string_view bytes) {
  wire::RequestDecoder decoder;
  const std::lock_guard lock(mutex_);
  std::string replies;
  size_t done = 0;
  bool refused = false;
  while (done < bytes.size() && !refused) {
    wire::RequestScanner scanner;
    const Result<size_t> size = scanner.Scan(bytes.substr(done), {});
    if (!size) return std::nullopt;
    if (*size == 0) break;
    Released released;
    const Reply reply = Answer(client, decoder.Decode(bytes.substr(done, *size)), released);
    refused = reply.kind == Reply::Kind::kRefused;
    AppendWhole(replies, reply);
    for (const ClientId other : released) SendAll(sockets_.at(other), kStop);
    done += *size;
  }
  SendAll(fd, replies);
  return refused ? std::nullopt : std::optional(done);
}

bool LyingServer::IsThere(ClientId client, std::string_view key) {
  Released released;
  return machine_.Step(client, {.op = Op::kGet, .key = key}, kNow, released).number == 1;
}

Reply LyingServer::Answer(ClientId client, const Request& request, Released& released) {
  if (request.op == Op::kSet && lie_ == Lie::kStaleRead) {
    const Reply now = machine_.Step(client, {.op = Op::kGet, .key = request.key}, kNow, released);
    if (now.number == 1) before_last_[std::string(request.key)] = std::string(now.value);
  }
  const bool honest = lie_ == Lie::kNone || prng_.Below(3) != 0;
  const Reply reply = honest ? machine_.Step(client, request, kNow, released)
                             : AnswerWithLie(client, request, released);
  if (reply.kind == Reply::Kind::kPopped && reply.number > 0) {
    last_popped_[std::string(request.key)] = std::string(reply.value);
  }
  return reply;
}

Reply LyingServer::AnswerWithLie(ClientId client, const Request& request, Released& released) {
  const auto honestly = [&] { return machine_.Step(client, request, kNow, released); };
  const auto is = [&](Lie lie, Op op) { return lie_ == lie && request.op == op; };
  if (is(Lie::kStaleRead, Op::kGet)) {
    const auto old = before_last_.find(request.key);
    if (old != before_last_.end()) return Reply::Value(old->second);
  }
  if (is(Lie::kLostSet, Op::kSet) || is(Lie::kLostAppend, Op::kAppend) ||
      is(Lie::kLostPush, Op::kQueuePush)) {
    return Reply::None();
  }
  if (is(Lie::kRepeatedAdd, Op::kAdd) || is(Lie::kRepeatedAppend, Op::kAppend)) {
    const Reply first = honestly();
    if (first.kind != Reply::Kind::kRefused) honestly();
    return first;
  }
  if (is(Lie::kLostAdd, Op::kAdd)) {
    const Reply sum = honestly();
    Request back = request;
    back.number = -back.number;
    if (sum.kind != Reply::Kind::kRefused) machine_.Step(client, back, kNow, released);
    return sum;
  }
  if (is(Lie::kLostCompareSet, Op::kCompareSet)) return Reply::Value(request.value);
  if (is(Lie::kDeleteOnlySaysSo, Op::kDeleteKey) && IsThere(client, request.key)) {
    return Reply::Number(1);
  }
  if (is(Lie::kWrongCheck, Op::kCheck)) {
    const bool ready = honestly().kind == Reply::Kind::kReady;
    return Reply::Of(ready ? Reply::Kind::kNotReady : Reply::Kind::kReady);
  }
  if (is(Lie::kFalseWake, Op::kWait)) return Reply::Of(Reply::Kind::kStopWaiting);
  if (is(Lie::kDoublePop, Op::kQueuePop)) {
    const auto last = last_popped_.find(request.key);
    if (last != last_popped_.end()) {
      said_ = last->second;
      return {.kind = Reply::Kind::kPopped, .number = 1, .value = said_};
    }
  }
  if (is(Lie::kTornMultiSet, Op::kMultiSet)) {
    Request torn = request;
    torn.keys = torn.keys.first(torn.keys.size() - 1);
    torn.values = torn.values.first(torn.values.size() - 1);
    return machine_.Step(client, torn, kNow, released);
  }
  return honestly();
}

}  // namespace muster::test
