#include "sim/plan.h"

#include <algorithm>
#include <utility>

#include "base/prng.h"
#include "base/text.h"
#include "sim/etcd.h"

namespace muster::sim {

namespace {

struct Switch {
  const char* name;
  bool Faults::*on;
};
constexpr Switch kSwitches[] = {
    {"loss", &Faults::loss},
    {"delay", &Faults::delay},
    {"fragment", &Faults::fragment},
    {"cut", &Faults::cut},
    {"clog", &Faults::clog},
    {"reset", &Faults::reset},
    {"crash", &Faults::crash},
    {"power", &Faults::power},
    {"pause", &Faults::pause},
    {"server-crash", &Faults::server_crash},
    {"server-pause", &Faults::server_pause},
    {"skew", &Faults::skew},
    {"jump", &Faults::jump},
    {"drift", &Faults::drift},
    {"slow-write", &Faults::slow_write},
    {"lost-write", &Faults::lost_write},
    {"same-pid", &Faults::same_pid},
    {"leave", &Faults::leave},
    {"restart", &Faults::restart},
    {"close", &Faults::close},
};
// Drawn separately, so that the seed means the same for everything else.
constexpr Switch kSuspend{"suspend", &Faults::suspend};
constexpr Switch kExodus{"exodus", &Faults::exodus};
// Drawn after all others, and for runs on etcd only, so that other runs' seeds keep their meaning.
constexpr Switch kEtcdSwitches[] = {
    {"election", &Faults::election},
    {"compaction", &Faults::compaction},
    {"watch-delay", &Faults::watch_delay},
    {"meddling", &Faults::meddling},
};
// Drawn last, and rarely: with a history that goes back, less is promised.
constexpr Switch kRestore = {"restore", &Faults::restore};

class Drawer {
 public:
  explicit Drawer(uint64_t seed) : prng_(seed) {}

  bool OneIn(uint64_t n) { return prng_.Below(n) == 0; }
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(prng_.Below(static_cast<uint64_t>(high - low + 1)));
  }
  Duration Ms(int64_t low, int64_t high) { return std::chrono::milliseconds(Between(low, high)); }

 private:
  Prng prng_;
};

Faults DrawFaults(Drawer& draw, Driver driver) {
  Faults faults;
  const bool calm = draw.OneIn(8);  // sometimes almost no faults
  for (const Switch& each : kSwitches) faults.*each.on = draw.OneIn(calm ? 10 : 3);
  faults.close = faults.close && draw.OneIn(2);
  // A document is lost with its store: that ends a rendezvous, with PyTorch as here.
  if (!IsCoordinated(driver)) faults.server_crash = false;
  // PyTorch's nodes compare others' wall clocks with their own, and drop all others if they differ.
  if (driver == Driver::kMixed) faults.skew = faults.jump = false;
  if (driver == Driver::kEtcd) {
    for (const Switch& each : kEtcdSwitches) faults.*each.on = draw.OneIn(calm ? 10 : 3);
    return faults;
  }
  // The coordinator's nodes write no document.
  if (IsCoordinated(driver)) faults.slow_write = faults.lost_write = false;
  return faults;
}

Driver DrawDriver(Drawer& draw) {
  const int64_t die = draw.Between(0, 9);
  if (die < 7) return Driver::kCoordinator;
  return die < 9 ? Driver::kDocument : Driver::kMixed;
}

int64_t Ms(Duration time) { return Milliseconds(time); }

std::string ToText(const LaunchPlan& launch) {
  return Concat(" workers=1-", launch.workers_max, " roles=", launch.roles,
                launch.are_identical ? " identical" : "", " max_restarts=", launch.max_restarts,
                " stop=", Ms(launch.grace), "ms barrier=", Ms(launch.barrier_max),
                "ms contact=", Ms(launch.contact_max), "ms verdict=", Ms(launch.verdict_patience),
                "ms others=", Ms(launch.others_patience), "ms work=", Ms(launch.work_max),
                launch.ends_together ? "ms,together" : "ms", launch.starts_again ? " again" : "",
                " crash=", launch.crash, "% hang=", launch.hang, "% stubborn=", launch.stubborn,
                "% fall=", launch.fall, "% leave_behind=", launch.leave_behind, "%");
}

}  // namespace

const char* NameOf(Driver driver) {
  switch (driver) {
    case Driver::kCoordinator:
      return "coordinator";
    case Driver::kDocument:
      return "document";
    case Driver::kMixed:
      return "mixed";
    case Driver::kLauncher:
      return "launcher";
    case Driver::kEtcd:
      return "etcd";
  }
  return "";
}

std::optional<Driver> DriverOf(std::string_view name) {
  for (const Driver driver : {Driver::kCoordinator, Driver::kDocument, Driver::kMixed,
                              Driver::kLauncher, Driver::kEtcd}) {
    if (name == NameOf(driver)) return driver;
  }
  return std::nullopt;
}

namespace {

// PyTorch's nodes check once a second: they need a longer last call, and more than a second between
// two heartbeats. With spares, they may form rounds without end (docs/guide/elastic-jobs.md).
void MakeRoomForTorchNodes(Plan& plan, Drawer& draw) {
  plan.torch_nodes = draw.Between(1, plan.nodes - 1);
  plan.settings.max_nodes = std::max(plan.settings.max_nodes, plan.nodes);
  plan.settings.last_call = draw.Ms(1'500, 3'000);
  plan.settings.keep_alive_interval = draw.Ms(1'000, 2'000);
  plan.settings.keep_alive_max_attempt = draw.Between(3, 4);
  plan.join_timeout = std::max<Duration>(plan.join_timeout, draw.Ms(8'000, 20'000));
}

// To tell causes apart, half of the runs have only faults of workers and dead nodes.
void LeaveBlameClear(Faults& faults) {
  faults = {.fragment = faults.fragment,
            .crash = faults.crash,
            .skew = faults.skew,
            .jump = faults.jump,
            .drift = faults.drift,
            .same_pid = faults.same_pid,
            .restart = faults.restart,
            .close = faults.close};
}

void DrawLaunch(Plan& plan, Drawer& draw, bool faults) {
  LaunchPlan& launch = plan.launch;
  launch.workers_max = draw.Between(1, 3);
  launch.roles = draw.Between(1, 2);
  launch.are_identical = draw.OneIn(4);
  launch.max_restarts = draw.Between(0, 3);
  launch.grace = draw.OneIn(3) ? draw.Ms(1'000, 4'000) : draw.Ms(50, 1'000);
  launch.barrier_max = draw.Ms(500, 4'000);
  launch.contact_max = draw.Ms(1'000, 4'000);
  // Longer than the server waits for a node whose connection broke.
  launch.verdict_patience = plan.settings.grace + draw.Ms(300, 700);
  launch.others_patience = launch.verdict_patience + draw.Ms(300, 1'500);
  launch.work_max = draw.Ms(200, 6'000);
  launch.ends_together = draw.OneIn(2);
  launch.starts_again = draw.OneIn(2);
  constexpr uint64_t kShares[] = {0, 5, 20, 50};
  const auto share = [&] { return kShares[draw.Between(0, 3)]; };
  const LaunchPlan trouble{.crash = share(),
                           .hang = share() / 2,
                           .stubborn = share(),
                           .fall = 2 * share(),
                           .leave_behind = share()};
  const bool is_clear = draw.OneIn(2);
  if (!faults) return;
  launch.crash = trouble.crash;
  launch.hang = trouble.hang;
  launch.stubborn = trouble.stubborn;
  launch.fall = trouble.fall;
  launch.leave_behind = trouble.leave_behind;
  if (!is_clear) return;
  // Where the first node that fails joins late, and others fail because of it.
  LeaveBlameClear(plan.faults);
  launch.crash = std::max<uint64_t>(launch.crash, 5);
  launch.stubborn = std::max<uint64_t>(launch.stubborn, 50);
  launch.workers_max = std::max<int64_t>(launch.workers_max, 2);
  launch.fall = std::max<uint64_t>(launch.fall, 40);
}

// Drawn separately: what the seed means for everything else stays.
Forming DrawForming(uint64_t seed, const RunSettings& settings) {
  Drawer draw(seed ^ 0xf0c41);
  Forming forming{.reform_timeout = draw.Ms(0, 300), .rejoin_window = 0s};
  if (draw.OneIn(2)) forming.rejoin_window = draw.Ms(1, 500);
  if (draw.OneIn(3)) forming.expected = draw.Between(settings.min_nodes, settings.max_nodes);
  return forming;
}

// Thousands of nodes, as in a cluster: all come within seconds, and every second one in two hundred
// has a fault.
Plan DrawMany(uint64_t seed, const Constraints& constraints) {
  Drawer draw(seed);
  Plan plan{.seed = seed, .driver = constraints.driver.value_or(Driver::kCoordinator)};
  plan.nodes = *constraints.nodes;
  plan.settings = {.min_nodes = plan.nodes - plan.nodes / 20,
                   .max_nodes = plan.nodes,
                   .last_call = draw.Ms(400, 800),
                   .keep_alive_interval = 1s,
                   .keep_alive_max_attempt = 3,
                   .grace = 300ms,
                   .forming = Forming{.reform_timeout = 300ms, .rejoin_window = 500ms}};
  plan.join_timeout = 60s;
  plan.server_loops = 2;
  plan.arrival = 2s;
  plan.trouble = 5s;
  plan.fault_every = 1s;
  plan.faults_at_once = std::max<int64_t>(1, plan.nodes / 200);
  plan.network = {.latency = 100us, .jitter = 2ms};
  if (plan.driver == Driver::kMixed) MakeRoomForTorchNodes(plan, draw);
  if (plan.driver == Driver::kLauncher) DrawLaunch(plan, draw, constraints.faults);
  if (!constraints.faults) return plan;
  plan.network.loss_ppm = 1'000;
  plan.network.fragment = plan.faults.fragment = true;
  plan.faults.loss = plan.faults.cut = plan.faults.clog = plan.faults.reset = true;
  plan.faults.crash = plan.faults.power = plan.faults.pause = plan.faults.drift = true;
  return plan;
}

}  // namespace

Plan Draw(uint64_t seed, const Constraints& constraints) {
  if (constraints.nodes.value_or(0) > kFewNodes) return DrawMany(seed, constraints);
  Drawer draw(seed);
  Plan plan{.seed = seed};
  const Driver drawn = DrawDriver(draw);
  plan.driver = constraints.driver.value_or(drawn);
  const int64_t nodes = draw.Between(2, 7);
  plan.nodes = constraints.nodes.value_or(nodes);
  plan.settings.max_nodes = draw.OneIn(4) ? std::max<int64_t>(1, plan.nodes - draw.Between(1, 2))
                                          : plan.nodes + (draw.OneIn(3) ? 1 : 0);
  plan.settings.min_nodes = draw.Between(1, std::min(plan.nodes, plan.settings.max_nodes));
  plan.settings.last_call = draw.Ms(50, 1'000);
  plan.settings.keep_alive_interval = draw.Ms(200, 1'000);
  plan.settings.keep_alive_max_attempt = draw.Between(2, 4);
  plan.settings.grace = draw.OneIn(4) ? 0ms : draw.Ms(50, 800);
  plan.settings.policy = static_cast<RankPolicy>(draw.Between(0, 3));
  plan.settings.forming = DrawForming(seed, plan.settings);
  plan.join_timeout = draw.Ms(2'000, 12'000);
  plan.server_loops = static_cast<size_t>(draw.Between(1, 3));
  plan.arrival = draw.Ms(0, 2'000);
  plan.trouble = draw.Ms(3'000, 12'000);
  plan.fault_every = draw.Ms(100, 1'500);
  if (plan.driver == Driver::kMixed) MakeRoomForTorchNodes(plan, draw);
  // Each node that gives up and tries again cancels a last call. If all of them give up more often
  // than a last call lasts, no round can ever form.
  plan.join_timeout =
      std::max<Duration>(plan.join_timeout, plan.settings.last_call * (plan.nodes + 2));
  Faults faults = DrawFaults(draw, plan.driver);
  Drawer aside(seed ^ 0x5133b);
  // PyTorch's nodes do not survive it.
  faults.suspend = aside.OneIn(4) && plan.driver != Driver::kMixed;
  if (aside.OneIn(2) && constraints.faults && plan.driver == Driver::kCoordinator) {
    plan.looks_every = aside.Ms(200, 5'000);
    // So that nodes stop waiting for a round whose members have not checked yet.
    plan.join_timeout =
        std::max<Duration>(aside.Ms(300, 3'000), plan.settings.last_call * (plan.nodes + 2));
  }
  const bool forgets = plan.driver == Driver::kCoordinator || plan.driver == Driver::kLauncher;
  faults.exodus = aside.OneIn(4) && forgets;
  if (constraints.faults) plan.faults = faults;
  if (plan.faults.exodus) plan.run_kept = aside.Ms(50, 1'500);
  if (plan.driver == Driver::kLauncher) DrawLaunch(plan, draw, constraints.faults);
  plan.network.fragment = plan.faults.fragment;
  if (plan.faults.delay) {
    plan.network.latency = draw.Ms(1, 20);
    plan.network.jitter = draw.Ms(1, 300);
  }
  if (plan.faults.loss) plan.network.loss_ppm = draw.Between(1'000, 100'000);
  if (plan.driver == Driver::kEtcd && constraints.faults) plan.faults.restore = draw.OneIn(5);
  return plan;
}

std::string Plan::ToString() const {
  std::string text = Concat(
      "seed=", seed, " driver=", NameOf(driver), " nodes=", nodes, " torch_nodes=", torch_nodes,
      " min=", settings.min_nodes, " max=", settings.max_nodes,
      " last_call=", Ms(settings.last_call), "ms reform=", Ms(settings.forming->reform_timeout),
      "ms rejoin=", Ms(settings.forming->rejoin_window), "ms expected=", settings.forming->expected,
      " keep_alive=", Ms(settings.keep_alive_interval), "ms*", settings.keep_alive_max_attempt);
  if (IsCoordinated(driver))
    text += Concat(" grace=", Ms(settings.grace), "ms policy=", Name(settings.policy));
  text += Concat(" join_timeout=", Ms(join_timeout), "ms loops=", server_loops,
                 " arrival=", Ms(arrival), "ms trouble=", Ms(trouble),
                 "ms looks_every=", Ms(looks_every), "ms faults_at_once=", faults_at_once,
                 " fault_every=", Ms(fault_every), "ms latency=", network.latency.count() / 1000,
                 "us+", network.jitter.count() / 1000, "us loss=", network.loss_ppm, "ppm faults=");
  const char* comma = "";
  const auto add = [&](const Switch& each) {
    if (!(faults.*each.on)) return;
    text += Concat(comma, each.name);
    comma = ",";
  };
  std::ranges::for_each(kSwitches, add);
  add(kSuspend);
  std::ranges::for_each(kEtcdSwitches, add);
  add(kExodus);
  add(kRestore);
  if (driver == Driver::kLauncher) text += ToText(launch);
  return text;
}

// A node that waits for a lost one waits until that one is declared lost. A node that tried to join
// meanwhile times out first, and tries again. Then a last call runs, and perhaps another one for
// nodes that came during the first. The document's nodes check once a second, and some wait for
// rank 0 to publish (3 s, then twice that).
Duration Plan::HealBound() const {
  const Duration held = settings.forming->rejoin_window;
  const Duration once = MissedWithin() + settings.last_call + held + 2s;
  const Duration looks = IsCoordinated(driver) ? Duration(2s) : Duration(20s);
  return join_timeout + 4 * once + looks;
}

// A launcher that comes or ends after healing costs the others a round: they are notified, stop
// their workers, join again and work as long as before. Most do so at the same time, so there are
// few such rounds. A launcher that then has too few others waits until its join times out; one at
// the exit, until its barrier does.
Duration Plan::EndBound() const {
  const Duration stop = launch.grace + launch.kill_patience + launch.others_patience;
  const Duration once = settings.dead_after() + settings.grace + settings.last_call +
                        settings.forming->rejoin_window + stop + launch.work_max + 1s;
  return 2 * join_timeout + launch.contact_max + launch.barrier_max + launch.farewell_max +
         3 * once;
}

NodeRole Plan::RoleOf(size_t node) const {
  if (launch.are_identical) return {"default", launch.workers_max};
  Drawer draw(seed ^ (0x401e + node));
  const int64_t workers = draw.Between(1, launch.workers_max);
  return {Concat("role", draw.Between(1, launch.roles)), workers};
}

bool Plan::BlameIsClear() const {
  return !faults.loss && !faults.delay && !faults.cut && !faults.clog && !faults.reset &&
         !faults.power && !faults.pause && !faults.suspend && !faults.exodus &&
         !faults.server_crash && !faults.server_pause && !faults.leave;
}

Duration Plan::RestFor() const { return MissedWithin() + settings.last_call + 1s; }

// In etcd a lease of whole seconds has to end. It may have started again with a new leader of the
// cluster, and leases are checked twice a second. If the lost node was the leader, another one has
// to notice and to read everything.
Duration Plan::MissedWithin() const {
  if (driver != Driver::kEtcd) return settings.dead_after() + settings.grace;
  const Duration lease = std::max<Duration>(
      std::chrono::ceil<std::chrono::seconds>(settings.dead_after()), kEtcdLeaseMin);
  return lease + kEtcdElection + SimEtcd::kLookAtLeases + 500ms;
}

}  // namespace muster::sim
