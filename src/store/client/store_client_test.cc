// The client on a stream whose replies the test has prepared, and a clock that the test advances.
#include "store/client/store_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"

namespace muster {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_literals;  // NOLINT: zero bytes

namespace {

constexpr auto kTimeout = 1000ms;

class HandClock final : public Clock {
 public:
  Instant Now() const override { return now_; }
  WallTime Wall() const override { return WallTime{0}; }
  void SleepUntil(Instant when) override { now_ = std::max(now_, when + late_); }
  void WakeLate(Duration by) { late_ = by; }

 private:
  Instant now_{1h};
  Duration late_ = 0s;
};

/// What the peer sends, and how long it takes.
struct Say {
  std::string bytes;
  Duration after = 0s;
};

struct Peer {
  std::deque<Say> script;
  std::string heard;
};

class ScriptedStream final : public BlockingStream {
 public:
  ScriptedStream(Peer& peer, Clock& clock) : peer_(peer), clock_(clock) {}

  Status Send(std::string_view bytes, Instant) override {
    peer_.heard += bytes;
    return Ok();
  }
  Result<size_t> Receive(std::span<char> into, Instant deadline) override {
    if (peer_.script.empty() || clock_.Now() + peer_.script.front().after > deadline) {
      clock_.SleepUntil(deadline);
      return Error{Code::kTimeout, "timed out"};
    }
    Say& say = peer_.script.front();
    clock_.SleepUntil(clock_.Now() + std::exchange(say.after, 0s));
    const size_t count = std::min(into.size(), say.bytes.size());
    std::copy_n(say.bytes.begin(), count, into.begin());
    say.bytes.erase(0, count);
    if (say.bytes.empty()) peer_.script.pop_front();
    return count;
  }

 private:
  Peer& peer_;
  Clock& clock_;
};

class ScriptedDialer final : public Dialer {
 public:
  ScriptedDialer(Peer& peer, Clock& clock) : peer_(peer), clock_(clock) {}
  Result<std::unique_ptr<BlockingStream>> Dial(const Endpoint&, Instant) override {
    return std::unique_ptr<BlockingStream>(std::make_unique<ScriptedStream>(peer_, clock_));
  }

 private:
  Peer& peer_;
  Clock& clock_;
};

std::string Number(int64_t number) {
  std::string out;
  AppendInt<int64_t>(out, number);
  return out;
}

std::string Blob(std::string_view bytes) {
  return Number(static_cast<int64_t>(bytes.size())) + std::string(bytes);
}

}  // namespace

class StoreClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    peer_.script.push_back({"\0\0\0\0"s});  // the echo of PING
    auto client = StoreClient::Connect(
        dialer_, clock_, {"peer", 1}, {.reply_bytes_max = 100, .request_bytes_max = 200}, kTimeout);
    ASSERT_TRUE(client) << client.error().message;
    client_ = std::move(*client);
    peer_.heard.clear();
  }

  Result<Answer> Execute(const Request& request) { return client_->Execute(request, kTimeout); }

  Duration Elapsed() const { return clock_.Now() - start_; }

  HandClock clock_;
  const Instant start_ = clock_.Now();
  Peer peer_;
  ScriptedDialer dialer_{peer_, clock_};
  std::unique_ptr<StoreClient> client_;
};

TEST_F(StoreClientTest, AListOfKeysMayBeAsLargeAsOneReplyAndNoLarger) {
  const std::string key = "/" + std::string(49, 'k');
  peer_.script = {{Number(2) + Blob(key) + Blob(key)}};
  EXPECT_THAT(Execute({.op = Op::kListKeys})->values, ElementsAre(key.substr(1), key.substr(1)));
  peer_.script = {{Number(3) + Blob(key) + Blob(key) + Number(1)}};
  const auto keys = Execute({.op = Op::kListKeys});
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code, Code::kProtocol);
  EXPECT_THAT(keys.error().message,
              HasSubstr("LIST_KEYS: the peer announces a reply of 101 bytes"));
  EXPECT_FALSE(Execute({.op = Op::kPing}));
}

TEST_F(StoreClientTest, TheValuesOfAMultiGetMayBeAsLargeAsOneReplyAndNoLarger) {
  const std::vector<std::string_view> keys = {"a", "b"};
  const std::string half(50, 'v');
  peer_.script = {{"\0"s}, {"\0"s + Blob(half) + Blob(half)}};
  EXPECT_THAT(Execute({.op = Op::kMultiGet, .keys = keys})->values, ElementsAre(half, half));
  peer_.script = {{"\0"s}, {"\0"s + Blob(half) + Number(51)}};
  const auto values = Execute({.op = Op::kMultiGet, .keys = keys});
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().code, Code::kProtocol);
  EXPECT_THAT(values.error().message, HasSubstr("limit 100 bytes"));
}

TEST_F(StoreClientTest, ARequestLargerThanTheServerTakesIsNotSent) {
  const std::vector<std::string_view> keys = {"a", "b"};
  // opcode, count, and for each pair two lengths and the key
  const size_t rest = 200 - 1 - 8 - 2 * (8 + 2 + 8);
  const std::string longest(rest, 'v');
  const std::vector<std::string_view> largest = {longest, ""};
  EXPECT_TRUE(Execute({.op = Op::kMultiSet, .keys = keys, .values = largest}));
  EXPECT_EQ(peer_.heard.size(), 200u);
  const std::vector<std::string_view> larger = {longest, "v"};
  const auto refused = Execute({.op = Op::kMultiSet, .keys = keys, .values = larger});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("MULTI_SET: 201 bytes"));
  EXPECT_THAT(refused.error().message, HasSubstr("limit 200"));
  EXPECT_EQ(peer_.heard.size(), 200u);
}

TEST_F(StoreClientTest, WaitAndReadOfAMultiGetShareOneDeadline) {
  peer_.script = {{"\0"s, 900ms}};
  const std::string_view key = "a";
  EXPECT_FALSE(Execute({.op = Op::kMultiGet, .keys = {&key, 1}}));
  EXPECT_EQ(Elapsed(), 1000ms);
}

TEST_F(StoreClientTest, AttemptsAndWaitOfAPopShareOneDeadline) {
  peer_.script = {{Number(0), 400ms}, {"\0"s, 400ms}, {Number(1), 400ms}};
  EXPECT_FALSE(Execute({.op = Op::kQueuePop, .key = "q", .number = 1}));
  EXPECT_EQ(Elapsed(), 1000ms);
}

TEST_F(StoreClientTest, ACancelIsAnsweredWithinTheGraceOrTheConnectionIsGivenUp) {
  const std::string_view key = "k";
  const Request wait{.op = Op::kWait, .keys = {&key, 1}};
  peer_.script = {{"\1"s, 4900ms}};
  const auto late = Execute(wait);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_EQ(Elapsed(), 5900ms);
  peer_.script = {{"\1"s, 6100ms}};
  const auto lost = Execute(wait);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
  EXPECT_EQ(Elapsed(), 5900ms + 6000ms) << "the wait and the grace of 5 s";
}

TEST_F(StoreClientTest, AnOwnerThatSleepsPastItsDeadlineBlamesTheOthersAndNotTheServer) {
  clock_.WakeLate(2s);
  peer_.script = {{Number(1)}, {Number(1)}};
  const Status joined = client_->Join(2, true, 3000ms);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Code::kTimeout);
  EXPECT_THAT(joined.error().message, HasSubstr("1/2 clients joined"));
  EXPECT_THAT(peer_.script, ::testing::IsEmpty());
}

TEST_F(StoreClientTest, AGetWhoseKeyComesWithTheCancelTimesOutAndTheClientIsFine) {
  // The key is missing; its wait is answered after the cancel was sent: too late to read the key.
  peer_.script = {{"\1"s + Blob("")}, {"\0\1"s, 1001ms}};
  const auto value = Execute({.op = Op::kGet, .key = "k"});
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, Code::kTimeout);
  EXPECT_THAT(value.error().message, HasSubstr("wait timeout after 1000ms, keys: /k"));
  peer_.script = {{Number(7)}};
  EXPECT_EQ(Execute({.op = Op::kGetNumKeys})->number, 7);
}

}  // namespace muster
