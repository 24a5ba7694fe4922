#include "load/soak.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/text.h"
#include "load/whole_round.h"
#include "os/posix/posix_clock.h"
#include "os/posix/process.h"
#include "os/uv/uv_loop.h"
#include "rendezvous/session/session_link.h"

namespace muster::load {

namespace {

constexpr Duration kTick = 20ms;
constexpr Duration kLook = 50ms;
// A node that has gone comes back after one to three seconds: sometimes within its grace, mostly
// after the others have formed a new round.
constexpr Duration kAwayMin = 1s;
constexpr uint64_t kAwaySpanMs = 2000;
constexpr Duration kGoodbyeMax = 5s;  // for the server to confirm it
constexpr Duration kJoinMax = 600s;

class SoakNode final : public RendezvousLinkListener {
 public:
  SoakNode(UvLoop& loop, UvConnector& connector, SessionLinkOptions options)
      : link_(loop, connector, std::move(options), *this) {
    link_.Join(kJoinMax);
    link_.Start();
  }

  void Leave(Instant now) {
    leaving_since_ = now;
    joining_ = false;
    link_.Leave();
  }
  bool IsLeaving() const { return leaving_since_.has_value(); }
  bool HasLeft(Instant now) const { return left_ || now - *leaving_since_ > kGoodbyeMax; }

  bool is_open() const { return link_.is_open(); }
  /// In a round, as far as it knows.
  bool InRound() const { return !joining_ && !IsLeaving() && assignment_.round >= 0; }
  const Push& assignment() const { return assignment_; }
  uint64_t given_up() const { return given_up_; }
  const std::string& refusal() const { return refusal_; }

 private:
  void Rejoin() {
    if (IsLeaving()) return;
    joining_ = true;
    link_.Join(kJoinMax);
  }

  void OnPush(const Push& push) override {
    switch (push.kind) {
      case Push::Kind::kOpened:
        if (push.resumed || std::exchange(opened_, true) == false) return;
        ++given_up_;
        if (!joining_) Rejoin();
        return;
      case Push::Kind::kComplete:
        assignment_ = push;
        joining_ = false;
        return;
      case Push::Kind::kLost:
        if (push.round == assignment_.round && !joining_) Rejoin();
        return;
      case Push::Kind::kNodesWaiting:
        if (push.round == assignment_.round && push.count > 0 && !joining_) Rejoin();
        return;
      case Push::Kind::kLeft:
        left_ = true;
        return;
      case Push::Kind::kRefused:
        if (push.refusal == Push::Refusal::kPast) {
          left_ = true;  // it has left the round that it was in
          return;
        }
        refusal_ = push.why;
        return;
      case Push::Kind::kClosed:
      case Push::Kind::kTimedOut:
        refusal_ = push.why.empty() ? "the rendezvous is closed" : push.why;
        return;
      default:
        return;
    }
  }
  void OnReport(std::optional<RunReport>) override {}
  void OnTrouble(const std::string&) override {}
  void OnPlainServer() override {
    refusal_ = "the server has no coordinator: it is a plain TCPStore's";
  }

  bool opened_ = false;
  bool joining_ = true;
  bool left_ = false;
  std::optional<Instant> leaving_since_;
  uint64_t given_up_ = 0;
  std::string refusal_;
  Push assignment_{.round = -1};
  SessionLink link_;
};

/// Lives on its loop; the caller queries its state.
class Fleet {
 public:
  Fleet(const SoakOptions& options, UvLoop& loop)
      : options_(options), loop_(loop), connector_(loop), random_(options.seed) {
    places_.resize(options.nodes);
    began_ = last_ = loop.Now();
    timer_ = loop.Every(kTick, [this] { Tick(); });
  }

  void set_churning(bool churning) { churning_ = churning; }

  SoakState State() const {
    SoakState state{.at = loop_.Now() - began_,
                    .round = Latest(),
                    .died = died_,
                    .left = left_,
                    .came = came_,
                    .given_up = given_up_};
    for (const Place& place : places_) {
      if (!place.node) continue;
      state.connected += place.node->is_open();
      state.in_round += place.node->InRound() && place.node->assignment().round == state.round;
      state.given_up += place.node->given_up();
    }
    return state;
  }

  /// All nodes are in one round, and no other node is.
  bool IsCalm() const {
    const int64_t round = Latest();
    return std::ranges::all_of(places_, [&](const Place& place) {
      return place.node && place.node->InRound() && place.node->assignment().round == round &&
             place.node->assignment().world_size == static_cast<int64_t>(places_.size());
    });
  }

  bool RanksOk() const {
    std::vector<const Push*> assignments;
    for (const Place& place : places_) {
      if (!place.node) return false;
      assignments.push_back(&place.node->assignment());
    }
    return IsWholeRound(assignments);
  }

  const std::string& refusal() const { return refusal_; }

 private:
  int64_t Latest() const {
    int64_t latest = -1;
    for (const Place& place : places_) {
      if (place.node) latest = std::max(latest, place.node->assignment().round);
    }
    return latest;
  }

  /// The place of a node, present or future.
  struct Place {
    std::unique_ptr<SoakNode> node;
    Instant due{};  ///< When the next node comes, if there is none.
  };

  void Tick() {
    const Instant now = loop_.Now();
    size_t connecting = 0;
    for (Place& place : places_) {
      if (!place.node) continue;
      if (place.node->IsLeaving() && place.node->HasLeft(now)) {
        Empty(place, now);
        continue;
      }
      if (!place.node->is_open()) ++connecting;
      if (!place.node->refusal().empty()) refusal_ = place.node->refusal();
    }
    Churn(now);
    for (Place& place : places_) {
      if (connecting >= options_.in_flight_max) break;
      if (place.node || now < place.due) continue;
      Fill(place);
      ++connecting;
    }
    last_ = now;
  }

  void Churn(Instant now) {
    if (!churning_) return;
    const double seconds = std::chrono::duration<double>(now - last_).count();
    owed_ += options_.churn_per_second * seconds * static_cast<double>(places_.size());
    for (; owed_ >= 1; owed_ -= 1) {
      Place& place = places_[random_.Below(places_.size())];
      if (!place.node || place.node->IsLeaving()) continue;
      if (random_.Below(2) == 0) {
        ++died_;
        Empty(place, now);
      } else {
        ++left_;
        place.node->Leave(now);
      }
    }
  }

  void Empty(Place& place, Instant now) {
    given_up_ += place.node->given_up();
    place.node.reset();
    place.due = now + kAwayMin + random_.Below(kAwaySpanMs) * 1ms;
  }

  void Fill(Place& place) {
    // A restarted process is another node.
    const auto id = static_cast<int64_t>(came_++);
    place.node =
        std::make_unique<SoakNode>(loop_, connector_,
                                   SessionLinkOptions{.server = options_.server,
                                                      .hello = {.run_id = options_.run_id,
                                                                .node = {"", ProcessId(), id},
                                                                .settings = options_.settings},
                                                      .attempt_max = 20s,
                                                      .seed = random_.Next()});
  }

  const SoakOptions& options_;
  UvLoop& loop_;
  UvConnector connector_;
  Prng random_;
  std::vector<Place> places_;
  Instant began_{};
  Instant last_{};   // tick
  double owed_ = 0;  // nodes that should have gone by now and have not
  bool churning_ = false;
  uint64_t died_ = 0;
  uint64_t left_ = 0;
  uint64_t came_ = 0;
  uint64_t given_up_ = 0;  // of nodes that have gone
  std::string refusal_;
  std::unique_ptr<Timer> timer_;
};

/// The caller's end of a fleet on its loop.
class Soak {
 public:
  Soak(const SoakOptions& options, UvThread& thread) : options_(options), thread_(thread) {
    thread_.RunAndWait([&] { fleet_ = std::make_unique<Fleet>(options, thread.loop()); });
  }
  ~Soak() {
    thread_.RunAndWait([&] { fleet_.reset(); });
  }

  Result<SoakReport> Play() {
    MUSTER_CHECK_OK(AwaitCalm());
    SetChurning(true);
    const Instant until = clock_.Now() + options_.length;
    while (clock_.Now() < until) {
      clock_.SleepUntil(std::min(until, clock_.Now() + options_.sample_every));
      MUSTER_TRY(const SoakState state, Look());
      options_.sample(state, false);
    }
    SetChurning(false);
    MUSTER_CHECK_OK(AwaitCalm());
    SoakReport report;
    thread_.RunAndWait([&] { report = {fleet_->State(), fleet_->RanksOk()}; });
    return report;
  }

 private:
  void SetChurning(bool churning) {
    thread_.RunAndWait([&] { fleet_->set_churning(churning); });
  }

  Result<SoakState> Look(bool* calm = nullptr) {
    SoakState state;
    std::string refusal;
    thread_.RunAndWait([&] {
      state = fleet_->State();
      refusal = fleet_->refusal();
      if (calm != nullptr) *calm = fleet_->IsCalm();
    });
    if (!refusal.empty()) return Error{Code::kUnavailable, Concat("a node was refused: ", refusal)};
    return state;
  }

  Status AwaitCalm() {
    const Instant until = clock_.Now() + options_.patience;
    while (true) {
      bool calm = false;
      MUSTER_TRY(const SoakState state, Look(&calm));
      if (calm) {
        options_.sample(state, true);
        return Ok();
      }
      if (clock_.Now() >= until) {
        return Error{Code::kTimeout,
                     Concat("no round of all ", options_.nodes, " nodes: ", state.connected,
                            " are connected, ", state.in_round, " in round ", state.round)};
      }
      clock_.SleepUntil(clock_.Now() + kLook);
    }
  }

  const SoakOptions& options_;
  UvThread& thread_;
  PosixClock clock_;
  std::unique_ptr<Fleet> fleet_;
};

}  // namespace

Result<SoakReport> RunSoak(const SoakOptions& options) {
  MUSTER_TRY(const std::unique_ptr<UvThread> thread, UvThread::Open());
  Soak soak(options, *thread);
  return soak.Play();
}

}  // namespace muster::load
