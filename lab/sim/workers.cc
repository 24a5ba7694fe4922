#include "sim/workers.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "sim/world.h"

namespace muster::sim {

namespace {

constexpr int kTerminate = 15;
constexpr int kKill = 9;
constexpr int kAbort = 6;

std::string HowItEnds(int code) {
  return code < 0 ? Concat("dies by signal ", -code) : Concat("ends with status ", code);
}

}  // namespace

SimWorkers::SimWorkers(World& world, SimProcess& process, size_t node, size_t count, uint64_t seed)
    : world_(world), process_(process), node_(node), prng_(seed), workers_(count) {}

void SimWorkers::Note(size_t worker, const std::string& line) {
  world_.Note(node_, Concat("worker ", worker, " ", line));
}

Duration SimWorkers::Draw(Duration low, Duration high) {
  return low + Duration(static_cast<int64_t>(
                   prng_.Below(static_cast<uint64_t>((high - low).count()) + 1)));
}

// ----------------------------------------------------------------------------------------------
// what their launcher does

void SimWorkers::BeginAttempt(Duration work) {
  work_ = work;
  was_notified_ = has_refused_ = false;
  for (Worker& worker : workers_) worker = {.has_left = worker.has_left};
}

Result<int64_t> SimWorkers::Start(size_t index, const WorkerCommand&) {
  if (!process_.alive()) return Error{Code::kUnavailable, "the process is dead"};
  if (world_.is_troubled() && world_.plan().faults.close && prng_.Below(40) == 0) {
    has_refused_ = true;
    return Error{Code::kNotFound, "there is no such program"};
  }
  Worker& worker = workers_[index];
  worker = {.pid = next_pid_++, .alive = true, .has_left = worker.has_left};
  DrawLife(worker, index);
  return worker.pid;
}

void SimWorkers::DrawLife(Worker& worker, size_t index) {
  const LaunchPlan& plan = world_.plan().launch;
  const bool is_troubled = world_.is_troubled();
  Duration time =
      plan.ends_together ? work_ + Draw(0ms, 20ms) : Draw(plan.work_max / 20, plan.work_max);
  int code = 0;
  if (is_troubled && Chance(plan.crash)) {
    constexpr int kCodes[] = {1, 3, 134, -11, -kKill, -kAbort, -kTerminate};
    code = kCodes[prng_.Below(std::size(kCodes))];
    time = Draw(0ms, plan.work_max);
  } else if (is_troubled && Chance(plan.hang)) {
    worker.hangs = true;
  }
  worker.falls = is_troubled && Chance(plan.fall);
  worker.leaves = Chance(plan.leave_behind);
  worker.stops_in = Draw(0ms, 30ms);
  if (Chance(plan.stubborn)) {
    worker.is_deaf = prng_.Below(2) == 0;
    worker.stops_in = Draw(0ms, 2 * plan.grace);
  }
  constexpr int kStopCodes[] = {-kTerminate, -kTerminate, 0, 1};
  worker.stop_code = kStopCodes[prng_.Below(std::size(kStopCodes))];
  Note(index,
       Concat("starts, pid ", worker.pid, ", to ",
              worker.hangs ? std::string("hang") : Concat("work for ", Milliseconds(time), " ms"),
              code != 0 ? " and crash" : "", worker.is_deaf ? ", deaf" : ""));
  world_.trace().Note(process_.scheduler().now(), node_, Concat("starts ", index));
  if (!worker.hangs) EndLater(index, time, code);
}

void SimWorkers::Signal(size_t index, int signal) {
  if (!process_.alive()) return;
  was_notified_ = true;
  Worker& worker = workers_[index];
  if (!worker.alive) return;
  Note(index, Concat("is sent signal ", signal));
  const bool is_first = !std::exchange(worker.was_notified, true);
  if (signal == kKill) {
    worker.was_killed = true;
    worker.leaves = false;  // the signal reaches these processes, too
    EndLater(index, Draw(0ms, 20ms), -kKill);
    return;
  }
  worker.signalled_at = process_.scheduler().now();
  ExpectKill(index);
  if (is_first && !worker.is_deaf) EndLater(index, worker.stops_in, worker.stop_code);
}

void SimWorkers::ExpectKill(size_t index) {
  const Duration grace = world_.plan().launch.grace;
  ExpectKill(index, grace + grace / 50 + 10ms);  // its clock may be slow
}

void SimWorkers::ExpectKill(size_t index, Duration in) {
  const Worker& told = workers_[index];
  process_.scheduler().After(in, [this, index, pid = told.pid, signalled_at = told.signalled_at,
                                  slept = process_.suspended_for()] {
    const Worker& worker = workers_[index];
    if (!process_.alive() || process_.paused() || worker.pid != pid ||
        worker.signalled_at != signalled_at || !worker.alive || worker.was_killed)
      return;
    // The rest of its grace is left after the suspension.
    const Duration more = process_.suspended_for() - slept;
    if (more > 0s) return ExpectKill(index, more);
    world_.checkers().Violate(Concat("worker ", index, " of node ", node_,
                                     " was signalled, did not end, and was not killed"));
  });
}

void SimWorkers::Sweep() {
  for (Worker& worker : workers_) {
    if (!worker.alive) worker.has_left = false;
  }
}

std::vector<std::string> SimWorkers::Leftovers(int signal) {
  std::vector<std::string> left(left_behind(), "a process");
  if (signal != 0) Sweep();
  return left;
}

// ----------------------------------------------------------------------------------------------
// what happens to them

void SimWorkers::EndLater(size_t index, Duration in, int code) {
  process_.scheduler().After(in, [this, index, pid = workers_[index].pid, code] {
    if (workers_[index].pid == pid && workers_[index].alive) EndNow(index, code);
  });
}

void SimWorkers::EndNow(size_t index, int code) {
  Worker& worker = workers_[index];
  worker.alive = false;
  worker.code = code;
  worker.has_left = worker.has_left || worker.leaves;
  Note(index, Concat(HowItEnds(code), worker.leaves ? ", and leaves something behind" : ""));
  world_.trace().Note(process_.scheduler().now(), node_, Concat("ends ", index, " ", code));
  const End end{index, worker.pid, code, worker.was_notified};
  on_end(end);
  process_.Do([this, end] { on_end_noticed(end); });
}

void SimWorkers::EndAll() {
  for (Worker& worker : workers_) worker.alive = worker.has_left = false;
}

void SimWorkers::NoticeLoss() {
  for (size_t index = 0; index < workers_.size(); ++index) {
    Worker& worker = workers_[index];
    if (!worker.alive || !worker.falls || std::exchange(worker.is_falling, true)) continue;
    const Duration in = prng_.Below(8) == 0 ? Draw(0ms, 2s) : Draw(0ms, 100ms);
    EndLater(index, in, prng_.Below(4) == 0 ? -kAbort : 1);
  }
}

void SimWorkers::Heal() {
  for (size_t index = 0; index < workers_.size(); ++index) {
    Worker& worker = workers_[index];
    if (!worker.alive || !std::exchange(worker.hangs, false)) continue;
    EndLater(index, Draw(0ms, world_.plan().launch.work_max), 0);
  }
}

size_t SimWorkers::living() const {
  return static_cast<size_t>(std::ranges::count_if(workers_, &Worker::alive));
}

size_t SimWorkers::left_behind() const {
  return static_cast<size_t>(std::ranges::count_if(workers_, &Worker::has_left));
}

bool SimWorkers::AllSucceeded() const {
  return std::ranges::all_of(workers_, [](const Worker& worker) {
    return worker.pid != 0 && !worker.alive && worker.code == 0;
  });
}

}  // namespace muster::sim
