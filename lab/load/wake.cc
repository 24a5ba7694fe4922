#include "load/wake.h"

#include <array>
#include <chrono>
#include <memory>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "load/descriptor.h"
#include "load/dialect.h"
#include "load/opener.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_dialer.h"
#include "store/wire/request_reader.h"

namespace muster::load {

namespace {

constexpr Duration kPatience = 30s;
constexpr size_t kWaitersMax = 1'000'000;
constexpr size_t kWakesMax = 1'000'000;

/// A blocking client, for the two that are measured.
class Peer {
 public:
  Status Open(const Endpoint& server) {
    MUSTER_TRY(stream_, dialer_.Dial(server, clock_.Now() + kPatience));
    return Ask(Hello(Protocol::kTcpStore), HelloAnswer(Protocol::kTcpStore));
  }

  Status Send(const std::string& request) {
    return stream_->Send(request, clock_.Now() + kPatience);
  }

  /// The next bytes must be exactly these.
  Status Expect(const std::string& wanted) {
    std::array<char, 64> bytes;
    std::string got;
    while (got.size() < wanted.size()) {
      MUSTER_TRY(const size_t count, stream_->Receive({bytes.data(), wanted.size() - got.size()},
                                                      clock_.Now() + kPatience));
      got.append(bytes.data(), count);
    }
    if (got == wanted) return Ok();
    return Error{Code::kProtocol, Concat("the server answered '", Printable(got), "'")};
  }

  Status Ask(const std::string& request, const std::string& wanted) {
    MUSTER_CHECK_OK(Send(request));
    return Expect(wanted);
  }

 private:
  PosixClock clock_;
  PosixDialer dialer_{clock_};
  std::unique_ptr<BlockingStream> stream_;
};

std::string Ping() { return Hello(Protocol::kEcho); }
std::string Pong() { return HelloAnswer(Protocol::kTcpStore); }

/// A WAIT, and a PING whose answer shows that the wait has begun.
std::string WaitThenPing(std::string_view key) {
  const std::string_view keys[] = {key};
  std::string out;
  wire::AppendRequest(out, {.op = Op::kWait, .keys = keys});
  return out + Ping();
}

/// The measured waiter, the setter, and the other waiters: one pass over the numbers of waiters.
class Pass {
 public:
  explicit Pass(const WakeOptions& options)
      : options_(options), key_(Concat("/bench/", options.tag, "/wake")) {
    wire::AppendRequest(set_, {.op = Op::kSet, .key = key_, .value = "1"});
    wire::AppendRequest(delete_, {.op = Op::kDeleteKey, .key = key_});
    AppendInt<int64_t>(deleted_, 1);
    wait_ = WaitThenPing(key_);
  }

  Status Run(std::vector<WakePoint>& points) {
    // Opened first, so that later connections make no difference to them.
    MUSTER_CHECK_OK(setter_.Open(options_.server));
    MUSTER_CHECK_OK(waiter_.Open(options_.server));
    for (WakePoint& point : points) {
      MUSTER_CHECK_OK(GrowCrowd(point.waiters));
      for (size_t i = 0; i < options_.wakes; ++i) MUSTER_CHECK_OK(Wake(point.latency));
    }
    return Ok();
  }

 private:
  Status GrowCrowd(size_t size) {
    if (size <= crowd_.size()) {
      crowd_.resize(size);
      return Ok();
    }
    const size_t first = crowd_.size();
    MUSTER_TRY(Opened opened,
               OpenConnections({.server = options_.server,
                                .count = size - first,
                                .hello = [&](size_t i) { return CrowdHello(first + i); },
                                .answer = Pong(),
                                .patience = kPatience}));
    for (Descriptor& socket : opened.sockets) crowd_.push_back(std::move(socket));
    return Ok();
  }

  std::string CrowdHello(size_t number) const {
    const std::string key = Concat("/bench/", options_.tag, "/other/", number);
    // A greeting without its PING, then the wait and a PING.
    const std::string hello = Hello(Protocol::kTcpStore);
    return hello.substr(0, hello.size() - Ping().size()) + WaitThenPing(key);
  }

  Status Wake(Histogram& latency) {
    MUSTER_CHECK_OK(waiter_.Ask(wait_, Pong()));
    const auto start = std::chrono::steady_clock::now();
    MUSTER_CHECK_OK(setter_.Send(set_));
    MUSTER_CHECK_OK(waiter_.Expect(std::string(1, '\0')));
    latency.Add(std::chrono::steady_clock::now() - start);
    return setter_.Ask(delete_, deleted_);
  }

  const WakeOptions& options_;
  const std::string key_;
  std::string set_, delete_, deleted_, wait_;
  Peer setter_;
  Peer waiter_;
  std::vector<Descriptor> crowd_;
};

}  // namespace

Status WakeOptions::Validate() const {
  if (waiters.empty()) return Error{Code::kInvalid, "no numbers of waiters given"};
  for (const size_t number : waiters) {
    if (number > kWaitersMax)
      return Error{Code::kInvalid, Concat(number, " waiters, at most ", kWaitersMax)};
  }
  if (wakes < 1 || wakes > kWakesMax) {
    return Error{Code::kInvalid,
                 Concat("the number of wakes is ", wakes, ", allowed: 1 to ", kWakesMax)};
  }
  if (passes < 1 || passes > 100)
    return Error{Code::kInvalid, "the number of passes must be 1 to 100"};
  return Ok();
}

Result<std::vector<WakePoint>> MeasureWakes(const WakeOptions& options) {
  MUSTER_CHECK_OK(options.Validate());
  std::vector<WakePoint> points;
  size_t most = 0;
  for (const size_t number : options.waiters) {
    points.push_back({.waiters = number, .latency = {}});
    most = std::max(most, number);
  }
  MUSTER_CHECK_OK(AllowConnections(most));
  for (size_t pass = 0; pass < options.passes; ++pass) {
    MUSTER_CHECK_OK(Pass(options).Run(points));
  }
  return points;
}

}  // namespace muster::load
