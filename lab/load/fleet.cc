#include "load/fleet.h"

#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "etcd/link.h"
#include "load/whole_round.h"
#include "os/posix/process.h"
#include "os/uv/uv_loop.h"
#include "rendezvous/session/session_link.h"

namespace muster::load {

namespace {

using SteadyClock = std::chrono::steady_clock;

class Fleet;

class FleetNode final : public RendezvousLinkListener {
 public:
  FleetNode(Fleet& fleet, UvLoop& loop, UvConnector& connector, SessionLinkOptions options)
      : fleet_(fleet),
        link_(std::make_unique<SessionLink>(loop, connector, std::move(options), *this)) {}
  FleetNode(Fleet& fleet, UvLoop& loop, EtcdLinkOptions options)
      : fleet_(fleet), link_(std::make_unique<EtcdLink>(loop, std::move(options), *this)) {}

  void Start() {
    link_->Join(kJoinTimeout);
    link_->Start();
  }

  RendezvousLink& link() { return *link_; }
  const Push& assignment() const { return assignment_; }

 private:
  void OnPush(const Push& push) override;
  void OnReport(std::optional<RunReport>) override {}
  void OnTrouble(const std::string& why) override;
  void OnPlainServer() override;
  void OnFailed(const Error& why) override;

  static constexpr Duration kJoinTimeout = 600s;

  Fleet& fleet_;
  Push assignment_{};
  const std::unique_ptr<RendezvousLink> link_;
};

// Lives on a loop of its own; the caller waits for its futures.
class Fleet {
 public:
  Fleet(const FleetOptions& options, UvLoop& loop)
      : options_(options), loop_(loop), connector_(loop) {}

  std::future<Status> Form() {
    awaited_ = options_.nodes;
    for (size_t i = 0; i < options_.nodes; ++i) nodes_.push_back(MakeNode(i));
    StartMore();
    return done_.get_future();
  }

  std::future<Status> Kill() {
    done_ = {};
    finished_ = false;
    awaited_ = options_.nodes - options_.kill;
    round_ = nodes_[0]->assignment().round;
    // Spread over the ranks, and sometimes rank 0, as in production.
    const size_t step = options_.nodes / options_.kill;
    for (size_t i = options_.kill; i-- > 0;)
      nodes_.erase(nodes_.begin() + static_cast<std::ptrdiff_t>(i * step + victim_ % step));
    return done_.get_future();
  }

  void set_victim(size_t victim) { victim_ = victim; }

  void Opened() {
    if (in_flight_ > 0) --in_flight_;  // it may open a second session
    StartMore();
  }
  void Assigned(const Push& push) {
    if (push.round <= round_ || awaited_ == 0) return;
    if (--awaited_ == 0) Finish(Ok());
  }
  void Finish(Status status) {
    if (std::exchange(finished_, true)) return;
    ended_at_ = SteadyClock::now();
    done_.set_value(std::move(status));
  }
  void set_trouble(const std::string& why) { trouble_ = why; }

  SteadyClock::time_point ended_at() const { return ended_at_; }
  std::string Missing() const {
    return Concat(awaited_, " of ", nodes_.size(), " nodes have no assignment",
                  trouble_.empty() ? "" : Concat(" (", trouble_, ")"));
  }

  bool RanksOk() const {
    std::vector<const Push*> assignments;
    for (const auto& node : nodes_) assignments.push_back(&node->assignment());
    return IsWholeRound(assignments);
  }

  double PerNode(uint64_t (RendezvousLink::*count)() const) const {
    uint64_t total = 0;
    for (const auto& node : nodes_) total += (node->link().*count)();
    return static_cast<double>(total) / static_cast<double>(nodes_.size());
  }

  /// All leave, where the backend has a message for it.
  std::future<Status> End() {
    done_ = {};
    finished_ = false;
    awaited_ = 1;  // so that it reaches 0 only after all were asked
    const auto gone = [this] {
      if (--awaited_ == 0) Finish(Ok());
    };
    for (const auto& node : nodes_) {
      ++awaited_;
      if (!node->link().Shutdown(gone)) gone();
    }
    gone();
    return done_.get_future();
  }

 private:
  std::unique_ptr<FleetNode> MakeNode(size_t index) {
    Hello hello{.run_id = options_.run_id,
                .node = {"", ProcessId(), static_cast<int64_t>(index)},
                .settings = options_.settings};
    if (options_.etcd) {
      hello.node.addr = "127.0.0.1";
      return std::make_unique<FleetNode>(
          *this, loop_,
          EtcdLinkOptions{
              .connect = options_.etcd, .hello = hello, .run_kept = 10s, .seed = index});
    }
    return std::make_unique<FleetNode>(
        *this, loop_, connector_,
        SessionLinkOptions{
            .server = options_.server, .hello = hello, .attempt_max = 20s, .seed = index});
  }

  void StartMore() {
    while (started_ < nodes_.size() && in_flight_ < options_.in_flight_max) {
      ++in_flight_;
      nodes_[started_++]->Start();
    }
  }

  const FleetOptions& options_;
  UvLoop& loop_;
  UvConnector connector_;
  std::vector<std::unique_ptr<FleetNode>> nodes_;
  size_t started_ = 0;
  size_t in_flight_ = 0;
  size_t awaited_ = 0;
  size_t victim_ = 0;
  int64_t round_ = -1;
  bool finished_ = false;
  std::string trouble_;
  SteadyClock::time_point ended_at_;
  std::promise<Status> done_;
};

void FleetNode::OnPush(const Push& push) {
  switch (push.kind) {
    case Push::Kind::kOpened:
      if (!push.resumed) fleet_.Opened();
      return;
    case Push::Kind::kComplete:
      assignment_ = push;
      return fleet_.Assigned(push);
    case Push::Kind::kLost:
      if (push.round == assignment_.round) link_->Join(kJoinTimeout);
      return;
    case Push::Kind::kRefused:
    case Push::Kind::kClosed:
    case Push::Kind::kTimedOut:
      return fleet_.Finish(Error{Code::kUnavailable, Concat("a node was refused: ", push.why)});
    default:
      return;
  }
}

void FleetNode::OnTrouble(const std::string& why) { fleet_.set_trouble(why); }

void FleetNode::OnFailed(const Error& why) { fleet_.Finish(why); }

void FleetNode::OnPlainServer() {
  fleet_.Finish(Error{Code::kInvalid, "the server has no coordinator: it is a plain TCPStore's"});
}

}  // namespace

Result<FleetReport> RunFleet(const FleetOptions& options) {
  MUSTER_TRY(const std::unique_ptr<UvThread> thread, UvThread::Open());
  std::unique_ptr<Fleet> fleet;
  // Everything in the fleet happens on its loop.
  const auto on_loop = [&](const auto& work) { thread->RunAndWait(work); };
  const auto await = [&](std::future<Status> done) -> Status {
    if (done.wait_for(options.patience) == std::future_status::ready) return done.get();
    std::string missing;
    on_loop([&] { missing = fleet->Missing(); });
    return Error{Code::kTimeout, missing};
  };
  FleetReport report;
  const auto play = [&]() -> Status {
    std::future<Status> done;
    auto began = SteadyClock::now();
    on_loop([&] { done = fleet->Form(); });
    MUSTER_CHECK_OK(await(std::move(done)));
    on_loop([&] {
      report.formed = fleet->ended_at() - began;
      report.ranks_ok = fleet->RanksOk();
      report.messages_per_node = fleet->PerNode(&RendezvousLink::messages);
      report.bytes_per_node = fleet->PerNode(&RendezvousLink::bytes);
    });
    if (options.hold) options.hold();
    if (options.kill == 0) return Ok();
    on_loop([&] {
      fleet->set_victim(std::hash<std::string>{}(options.run_id));
      began = SteadyClock::now();
      done = fleet->Kill();
    });
    MUSTER_CHECK_OK(await(std::move(done)));
    on_loop([&] {
      report.reformed = fleet->ended_at() - began;
      report.ranks_ok = report.ranks_ok && fleet->RanksOk();
    });
    return Ok();
  };
  on_loop([&] { fleet = std::make_unique<Fleet>(options, thread->loop()); });
  const Status played = play();
  std::future<Status> ended;
  on_loop([&] { ended = fleet->End(); });
  const Status gone = await(std::move(ended));
  on_loop([&] { fleet.reset(); });
  MUSTER_CHECK_OK(played);
  MUSTER_CHECK_OK(gone);
  return report;
}

}  // namespace muster::load
