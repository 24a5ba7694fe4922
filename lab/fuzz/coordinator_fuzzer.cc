// The coordinator against nodes that send anything, in any order: they come, vanish, come back,
// join twice, forge tokens, name other rounds and stay silent. These checks follow every event: the
// coordinator's counts are consistent; a message of another session or time changes nothing; a node
// can read every message. Ranks of a round are distinct and below its size, and all of its members
// receive the same size and address. Rounds only grow, and closed stays closed.
//
// An input is options and a story, four bytes for each event.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/prng.h"
#include "base/text.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "rendezvous/core/coordinator.h"
#include "rendezvous/wire/session_codec.h"

namespace muster::fuzz {
namespace {

constexpr size_t kNodes = 7;
constexpr std::string_view kRunIds[] = {"run", "other", "third"};
constexpr std::string_view kRuns[] = {"run", "run", "run", "other", "third"};  // of nodes
constexpr std::string_view kAddresses[] = {"10.0.0.2", "10.0.0.10", "127.0.0.1", "node-a"};
constexpr Duration kTimes[] = {0ms, 1ms, 99ms, 300ms, 1s, 3s, 30s, 600s, 24h};

/// One node, and what it has received.
struct FuzzNode {
  Node node;
  std::string run;
  std::optional<SessionId> connection;
  uint64_t token = 0;
  uint32_t incarnation = 0;
  int64_t round = -1;
  int64_t said = -1;   ///< the last round that it was in, as it sent when it came,
  int64_t floor = -1;  ///< and as the server has sent: it never gets that number again
};

/// A complete round, as its members were notified of it.
struct Announced {
  int64_t world_size = 0;
  std::string where;
  std::map<int64_t, Node> ranks;
};

class World {
 public:
  explicit World(Input& input)
      : coordinator_({.runs_max = 2,
                      .nodes_per_run_max = 5,
                      .entropy = [prng = Prng(input.Byte())]() mutable { return prng.Next(); }}),
        settings_{
            .min_nodes = 1 + input.Byte() % 3, .max_nodes = 1, .last_call = input.OneOf(kTimes)} {
    settings_.max_nodes = settings_.min_nodes + input.Byte() % 3;
    settings_.grace = input.OneOf(kTimes);
    if (!settings_.Impossible().empty()) settings_.grace = 300ms;
    settings_.policy = static_cast<RankPolicy>(input.Byte() % 4);
    for (size_t i = 0; i < kNodes; ++i)
      nodes_[i].node = {std::string(kAddresses[i % 4]), static_cast<int64_t>(i / 4), 0};
  }

  void Happen(Input& input) {
    closed_before_ = ClosedRuns();
    FuzzNode& node = nodes_[input.Byte() % kNodes];
    const uint8_t what = input.Byte();
    const uint8_t detail = input.Byte();
    const uint8_t forged = input.Byte();
    Pushes out;
    switch (what % 10) {
      case 0:
      case 1:
        Open(node, detail, forged, out);
        break;
      case 7:
        Disconnect(node);
        break;
      case 8:
        Pass(kTimes[detail % std::size(kTimes)], (forged & 1) != 0, out);
        break;
      case 9:
        CheckReport(kRuns[detail % std::size(kRuns)], forged % 4);
        break;
      default:
        Speak(node, what % 10, detail, forged, out);
        break;
    }
    Deliver(out);
    for (const std::string_view id : kRunIds) {
      if (const Coordinator::Run* run = coordinator_.Find(id)) CheckRun(*run);
    }
  }

 private:
  void Open(FuzzNode& node, uint8_t detail, uint8_t forged, Pushes& out) {
    Disconnect(node);
    node.connection = SessionId{++connections_};
    node.run = kRuns[detail % std::size(kRuns)];
    owners_[*node.connection] = node;
    Hello hello{.run_id = node.run, .node = node.node, .settings = settings_};
    hello.label = Concat("rack", detail % 2);
    hello.bootstrap_port = detail;
    if ((forged & 1) == 0) hello.resume = node.token;
    if ((forged & 2) == 0) hello.round = node.round;
    node.said = hello.round;
    if ((forged & 12) == 12) hello.settings.max_nodes += 1;
    if ((forged & 48) == 48) hello.server_addr = "10.0.0.1";
    if (forged == 255) hello.node.addr = "not\nprintable";
    coordinator_.Open(*node.connection, hello, now_, out);
  }

  /// A message in a session. If it is of another session or time, it is refused, and changes
  /// nothing.
  void Speak(const FuzzNode& node, int what, uint8_t detail, uint8_t forged, Pushes& out) {
    const SessionKey key = KeyOf(node, forged);
    const bool is_past = key.token != node.token || key.incarnation != node.incarnation;
    const std::vector<RendezvousState> before = is_past ? States() : std::vector<RendezvousState>();
    if (what == 2 || what == 3)
      coordinator_.Join(key, kTimes[detail % std::size(kTimes)], now_, out);
    if (what == 4) coordinator_.Leave(key, now_, out);
    // Closing ends a story, so it is rare; some reasons are not valid text.
    if (what == 5 && detail < 32) coordinator_.Close(key, "\xff\nworn out", now_, out);
    if (what == 6) coordinator_.KeepAlive(key, now_, out);
    if (!is_past) return;
    FUZZ_CHECK(States() == before, "a message of the past has changed something");
    for (const Push& push : out) FUZZ_CHECK(push.kind == Push::Kind::kRefused);
  }

  std::vector<RendezvousState> States() const {
    std::vector<RendezvousState> states;
    for (const std::string_view id : kRunIds) {
      const Coordinator::Run* run = coordinator_.Find(id);
      states.push_back(run == nullptr ? RendezvousState{} : run->state);
    }
    return states;
  }

  /// Mostly what the node knows; sometimes another session, time or round.
  SessionKey KeyOf(const FuzzNode& node, uint8_t forged) const {
    SessionKey key{.session = node.connection.value_or(SessionId{0}),
                   .token = node.token,
                   .incarnation = node.incarnation,
                   .round = node.round};
    if ((forged & 0x07) == 0x07) ++key.token;
    if ((forged & 0x38) == 0x38) --key.incarnation;
    if ((forged & 0x40) != 0) --key.round;
    if ((forged & 0xc0) == 0xc0) key.round += 2;
    return key;
  }

  void Disconnect(FuzzNode& node) {
    if (node.connection) coordinator_.Disconnect(*node.connection, now_);
    node.connection.reset();
  }

  void Pass(Duration time, bool deaf, Pushes& out) {
    now_ = now_ + time;
    if (deaf) coordinator_.ForgiveSilence(time, now_);
    coordinator_.Tick(now_, out);
    FUZZ_CHECK(coordinator_.NextDue() > now_);
  }

  void Deliver(const Pushes& out) {
    for (const Push& push : out) {
      std::string frame;
      wire::AppendSessionFrame(frame, push);
      const auto read = wire::ReadSessionReply(frame);
      FUZZ_CHECK(read.has_value(), read ? "" : read.error().message);
      if (push.to == SessionId{0}) continue;  // requested without a connection
      const auto owner = owners_.find(push.to);
      FUZZ_CHECK(owner != owners_.end());
      if (push.kind == Push::Kind::kComplete) CheckComplete(owner->second, push);
      for (FuzzNode& node : nodes_) {
        if (node.connection == push.to) Hear(node, push);
      }
    }
  }

  void Hear(FuzzNode& node, const Push& push) {
    if (push.kind == Push::Kind::kOpened) {
      node.token = push.token;
      node.incarnation = push.incarnation;
      if (!push.resumed) node.floor = node.said;
    }
    if (push.kind == Push::Kind::kComplete) {
      FUZZ_CHECK(push.round > node.floor, "round ", push.round, " again");
      node.round = push.round;
    }
    if (push.kind == Push::Kind::kEnded) Disconnect(node);  // the server ends the connection
  }

  void CheckComplete(const FuzzNode& to, const Push& push) {
    const Coordinator::Run* run = coordinator_.Find(to.run);
    // A node that resumes in a closed run, whose name another run may have now, receives its round
    // again. That round was checked when it was complete. Tokens begin with the bits of their run.
    if (run == nullptr || (run->generation.run ^ to.token) >> 40 != 0) return;
    auto [entry, is_new] = rounds_.try_emplace({run->serial, push.round});
    Announced& told = entry->second;
    if (is_new) {
      told = {.world_size = push.world_size, .where = Concat(push.addr, ' ', push.port)};
      FUZZ_CHECK(std::next(entry) == rounds_.end() || std::next(entry)->first.first != run->serial,
                 "round ", push.round, " after a later one");
    }
    FUZZ_CHECK(told.world_size == push.world_size, told.world_size, " and ", push.world_size);
    FUZZ_CHECK(told.where == Concat(push.addr, ' ', push.port));
    FUZZ_CHECK(push.rank >= 0 && push.rank < push.world_size);
    FUZZ_CHECK(push.world_size >= run->settings.min_nodes);
    FUZZ_CHECK(push.world_size <= run->settings.max_nodes);
    const Node& first = told.ranks.try_emplace(push.rank, to.node).first->second;
    FUZZ_CHECK(first == to.node, first.ToString(), " and ", to.node.ToString(), " are rank ",
               push.rank);
  }

  void CheckRun(const Coordinator::Run& run) const {
    const RendezvousState& state = run.state;
    std::set<Node> present;
    size_t places = 0;
    const auto enter = [&](const Node& node) {
      present.insert(node);
      ++places;
      FUZZ_CHECK(run.members.contains(node), node.ToString());
      FUZZ_CHECK(state.last_heartbeats.contains(node), node.ToString());
    };
    for (const auto& [node, rank] : state.participants) enter(node);
    for (const Node& node : state.wait_list) enter(node);
    for (const Node& node : state.redundancy_list) enter(node);
    FUZZ_CHECK(present.size() == places, "a node has two places");
    FUZZ_CHECK(state.last_heartbeats.size() == places);
    FUZZ_CHECK(static_cast<int64_t>(state.participants.size()) <= run.settings.max_nodes);
    FUZZ_CHECK(run.by_silence.size() + run.broken.size() == run.members.size());
    size_t with_deadline = 0;
    for (const auto& [node, member] : run.members) {
      FUZZ_CHECK(member.joining || member.join_by == Instant::Never());
      with_deadline += member.join_by != Instant::Never() ? 1 : 0;
    }
    FUZZ_CHECK(run.deadlines.size() == with_deadline);
    const auto closed = closed_before_.find(run.serial);
    if (closed == closed_before_.end()) return;
    FUZZ_CHECK(state.closed);
    FUZZ_CHECK(run.completed_round == closed->second, "a round of a closed run");
  }

  void CheckReport(std::string_view run_id, size_t names_max) const {
    const Coordinator::Run* run = coordinator_.Find(run_id);
    const std::optional<RunReport> report = coordinator_.Report(run_id, names_max, now_);
    FUZZ_CHECK(report.has_value() == (run != nullptr));
    if (!report) return;
    const int64_t counted = report->participants + report->waiting + report->spares + report->idle;
    FUZZ_CHECK(counted == static_cast<int64_t>(run->members.size()));
    FUZZ_CHECK(report->members.size() <= 4 * names_max);
    std::string status;
    wire::AppendStatus(status, {*report}, false);
    for (std::string_view rest = status; !rest.empty();) {
      const auto size = wire::SessionFrameSize(rest);
      const auto part = wire::ReadSessionReply(rest.substr(0, *size));
      FUZZ_CHECK(part.has_value(), part ? "" : part.error().message);
      rest.remove_prefix(*size);
    }
  }

  /// The closed runs, and the last round that each has completed.
  std::map<uint64_t, int64_t> ClosedRuns() const {
    std::map<uint64_t, int64_t> closed;
    for (const std::string_view id : kRunIds) {
      const Coordinator::Run* run = coordinator_.Find(id);
      if (run != nullptr && run->state.closed) closed[run->serial] = run->completed_round;
    }
    return closed;
  }

  Coordinator coordinator_;
  RunSettings settings_;
  Instant now_{1000s};
  FuzzNode nodes_[kNodes];
  uint64_t connections_ = 0;
  std::map<SessionId, FuzzNode> owners_;  // who opened a connection, and for which run
  std::map<std::pair<uint64_t, int64_t>, Announced> rounds_;  // by run and number
  std::map<uint64_t, int64_t> closed_before_;                 // the present event
};

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::Input input(data, size);
  muster::fuzz::World world(input);
  while (!input.empty()) world.Happen(input);
  return 0;
}
