// A loop of the server with streams that take nothing: what it queues for them is bounded.
#include "server/server_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "support/fake_cell.h"

namespace muster {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

/// Runs what is posted, and all timers, when the test says so.
class FakeLoop final : public Loop {
 public:
  Instant Now() const override { return Instant{1h}; }
  bool IsCurrent() const override { return true; }
  void Post(std::function<void()> work) override { posted_.push_back(std::move(work)); }
  std::unique_ptr<Timer> Every(Duration, std::function<void()> tick) override {
    auto timer = std::make_unique<Repeated>(*this, std::move(tick));
    timers_.push_back(timer.get());
    return timer;
  }
  std::unique_ptr<Timer> After(Duration, std::function<void()> work) override {
    return Every({}, std::move(work));
  }
  std::unique_ptr<Timer> At(Instant, std::function<void()> ring) override {
    return Every({}, std::move(ring));
  }

  void Run() {
    while (!posted_.empty()) {
      const std::function<void()> work = std::move(posted_.front());
      posted_.pop_front();
      work();
    }
  }
  void Tick() {
    for (Repeated* timer : std::vector<Repeated*>(timers_)) {
      if (std::ranges::find(timers_, timer) == timers_.end()) continue;
      const std::function<void()> tick = timer->tick;  // it may end the timer
      tick();
    }
    Run();
  }

 private:
  struct Repeated final : Timer {
    Repeated(FakeLoop& of, std::function<void()> what) : loop(of), tick(std::move(what)) {}
    ~Repeated() override { std::erase(loop.timers_, this); }
    FakeLoop& loop;
    const std::function<void()> tick;
  };
  std::list<std::function<void()>> posted_;
  std::vector<Repeated*> timers_;
};

/// The other side of a connection.
struct Peer {
  std::string name;
  bool reads = true;
  StreamHandler* handler = nullptr;  // null: the server has ended the connection
  size_t queued = 0;
  std::string last{};  // the last message
};

class FakeStream final : public Stream {
 public:
  explicit FakeStream(Peer& peer) : peer_(peer) {}
  ~FakeStream() override { peer_.handler = nullptr; }
  void Start(StreamHandler& handler) override { peer_.handler = &handler; }
  void Write(std::string_view bytes) override {
    peer_.last = bytes;
    if (!peer_.reads) peer_.queued += bytes.size();
  }
  void WriteLarge(std::string& bytes) override { Write(std::exchange(bytes, {})); }
  size_t queued_bytes() const override { return peer_.queued; }
  uint64_t taken_bytes() const override { return 0; }
  void PauseReading() override {}
  void ResumeReading() override {}
  std::string peer() const override { return peer_.name; }
  std::string local() const override { return "127.0.0.1:1"; }

 private:
  Peer& peer_;
};

class ServerLoopTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kStoreBytes = 1 << 20;

  Peer& Connect(const std::string& name, bool reads) {
    Peer& peer = peers_.emplace_back(Peer{.name = name + ":1", .reads = reads});
    server_.Serve(std::make_unique<FakeStream>(peer));
    Say(peer, wire::SessionGreeting(false));
    return peer;
  }
  void Say(Peer& peer, std::string_view bytes) {
    peer.handler->OnBytes(bytes);
    loop_.Run();
  }
  void Say(Peer& peer, wire::SessionRequest request) {
    std::string frame;
    wire::AppendSessionFrame(frame, request);
    Say(peer, frame);
  }
  static wire::SessionRequest Opening(const std::string& addr, const RunSettings& settings) {
    return {.kind = wire::SessionRequest::Kind::kOpen,
            .hello = {.run_id = "run", .node = {.addr = addr, .pid = 1}, .settings = settings}};
  }
  uint64_t TokenOf(const Peer& peer) {
    const auto reply = wire::ReadSessionReply(peer.last);
    return reply ? std::get<Push>(*reply).token : 0;
  }

  testing::FakeClock clock_;
  FakeLoop loop_;
  SharedStore store_{
      {}, kStoreBytes, 1, [this](size_t) { loop_.Post([this] { server_.Collect(); }); }};
  SessionHub sessions_{{},
                       1,
                       clock_,
                       [](ClientId) { return size_t{0}; },
                       [this](size_t) { loop_.Post([this] { server_.CollectPushes(); }); }};
  std::vector<std::string> warnings_;
  std::list<Peer> peers_;
  ServerLoop server_{loop_,
                     store_,
                     sessions_,
                     0,
                     {},
                     [this](LogLevel level, std::string_view line) {
                       if (level >= LogLevel::kWarning) warnings_.emplace_back(line);
                     },
                     [] { return false; }};
};

TEST_F(ServerLoopTest, WhatMembersDoNotReadIsWithinTheBoundOnMemory) {
  constexpr int kMembers = 24;
  const RunSettings settings{.min_nodes = 1,
                             .max_nodes = 100,
                             .keep_alive_interval = 24h,
                             .forming = Forming{.expected = kMembers}};
  using Kind = wire::SessionRequest::Kind;
  std::vector<Peer*> members;
  const auto enter = [&](int number, bool reads) {
    const std::string addr = "10.0.0." + std::to_string(number);
    Peer& peer = Connect(addr, reads);
    Say(peer, Opening(addr, settings));
    const uint64_t token = TokenOf(peer);
    Say(peer, {.kind = Kind::kJoin, .token = token, .incarnation = 1, .join_timeout = 24h});
    return std::pair(&peer, token);
  };
  for (int i = 1; i <= kMembers; ++i) members.push_back(enter(i, /*reads=*/false).first);
  // A node that joins and leaves again and again; each time the members are notified twice.
  const auto [restless, token] = enter(200, /*reads=*/true);
  const auto queued = [&] {
    size_t all = 0;
    for (const Peer* member : members) all += member->handler == nullptr ? 0 : member->queued;
    return all;
  };
  size_t most = 0;
  for (int i = 0; i < 3'000; ++i) {
    for (const Kind kind : {Kind::kLeave, Kind::kJoin}) {
      clock_.now = clock_.now + 101ms;
      loop_.Tick();
      Say(*restless, {.kind = kind, .token = token, .incarnation = 1, .join_timeout = 24h});
      ASSERT_NE(restless->handler, nullptr) << "it reads, and is served";
      most = std::max(most, queued());
      ASSERT_LT(most, kStoreBytes + kStoreBytes / 8);
    }
  }
  EXPECT_GT(most, kStoreBytes / 2) << "or else nothing was tried";
  EXPECT_THAT(warnings_, SizeIs(::testing::Gt(0u)));
  EXPECT_THAT(warnings_, Each(HasSubstr("closed 10.0.0.")));
}

}  // namespace
}  // namespace muster
