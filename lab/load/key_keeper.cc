#include "load/key_keeper.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"

namespace muster::load {

namespace {
constexpr Duration kPatience = 30s;
// Requests sent before their replies are read: few enough for the socket buffers of both sides.
constexpr uint32_t kKeysInFlight = 64;
constexpr size_t kBytesInFlight = 1 << 20;
}  // namespace

Result<std::unique_ptr<KeyKeeper>> KeyKeeper::Open(const Endpoint& server, Protocol protocol,
                                                   const KeySpace& space) {
  std::unique_ptr<KeyKeeper> keeper(new KeyKeeper(protocol, space));
  const Instant deadline = keeper->clock_.Now() + kPatience;
  MUSTER_TRY(keeper->stream_, keeper->dialer_.Dial(server, deadline));
  MUSTER_CHECK_OK(keeper->stream_->Send(Hello(protocol), deadline));
  const std::string wanted = HelloAnswer(protocol);
  MUSTER_TRY(const std::string answer, keeper->Take(wanted.size()));
  if (answer != wanted) {
    return Error{Code::kUnavailable, Concat(server.ToString(), ": the greeting was answered with '",
                                            Printable(answer), "'")};
  }
  return keeper;
}

Status KeyKeeper::Create() {
  MUSTER_CHECK_OK(ForAll(Chore::kStoreValue));
  MUSTER_CHECK_OK(ForAll(Chore::kStoreCounter));
  return Ok();
}

Result<int64_t> KeyKeeper::CountCounters() { return ForAll(Chore::kReadCounter); }

Status KeyKeeper::Delete() {
  MUSTER_CHECK_OK(ForAll(Chore::kDeleteValue));
  MUSTER_CHECK_OK(ForAll(Chore::kDeleteCounter));
  return Ok();
}

Result<int64_t> KeyKeeper::ForAll(Chore chore) {
  if (protocol_ == Protocol::kEcho) return int64_t{0};  // it has no keys
  const ReplyShape shape = ShapeOf(protocol_, chore);
  int64_t sum = 0;
  std::string request;
  uint32_t asked = 0;
  for (uint32_t key = 0; key < space_.keys(); ++key) {
    AppendChore(request, protocol_, chore, space_, key);
    ++asked;
    if (asked < kKeysInFlight && request.size() < kBytesInFlight && key + 1 < space_.keys())
      continue;
    MUSTER_TRY(const int64_t part, Exchange(request, shape, asked));
    sum += part;
    request.clear();
    asked = 0;
  }
  return sum;
}

Result<int64_t> KeyKeeper::Exchange(const std::string& request, ReplyShape shape, size_t replies) {
  const Instant deadline = clock_.Now() + kPatience;
  MUSTER_CHECK_OK(stream_->Send(request, deadline));
  if (shape == ReplyShape::kNothing) {
    // An answered PING shows that all requests before it have been executed.
    const std::string hello = Hello(Protocol::kEcho);
    MUSTER_CHECK_OK(stream_->Send(hello, deadline));
    MUSTER_TRY(const std::string answer, Take(HelloAnswer(Protocol::kTcpStore).size()));
    if (answer != HelloAnswer(Protocol::kTcpStore))
      return Error{Code::kProtocol, "a PING came back changed"};
    return int64_t{0};
  }
  int64_t sum = 0;
  for (size_t i = 0; i < replies; ++i) {
    if (shape == ReplyShape::kNumber) {
      MUSTER_TRY(const std::string bytes, Take(sizeof(int64_t)));
      sum += LoadInt<int64_t>(bytes.data());
      continue;
    }
    MUSTER_TRY(const std::string line, TakeLine());
    if (line.starts_with('-')) return Error{Code::kProtocol, Printable(line)};
    int64_t number = 0;
    std::from_chars(line.data() + 1, line.data() + line.size(), number);
    sum += number;
  }
  return sum;
}

Result<std::string> KeyKeeper::Take(size_t bytes) {
  while (input_.size() < bytes) MUSTER_CHECK_OK(Fill());
  std::string taken = input_.substr(0, bytes);
  input_.erase(0, bytes);
  return taken;
}

Result<std::string> KeyKeeper::TakeLine() {
  size_t end = 0;
  while ((end = input_.find("\r\n")) == std::string::npos) MUSTER_CHECK_OK(Fill());
  std::string taken = input_.substr(0, end);
  input_.erase(0, end + 2);
  return taken;
}

Status KeyKeeper::Fill() {
  std::array<char, 4096> buffer;
  MUSTER_TRY(const size_t count, stream_->Receive(buffer, clock_.Now() + kPatience));
  input_.append(buffer.data(), count);
  return Ok();
}

}  // namespace muster::load
