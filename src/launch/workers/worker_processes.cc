#include "launch/workers/worker_processes.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "os/posix/entropy.h"
#include "os/posix/file_io.h"
#include "os/posix/forking.h"
#include "os/posix/process.h"
#include "os/posix/system_error.h"
#include "os/posix/worker_launch.h"

namespace muster {

namespace {

// No end is reported while the thread kills. Survivors are left to Sweep().
constexpr Duration kKillMax = 200ms;
constexpr pid_t kNoPid = 0;
constexpr int kStuckLookMs = 100;  // as torchrun
constexpr std::chrono::seconds kStuckGapMax{1};

Error CannotRun(std::string_view what) { return SystemError(Concat("cannot run workers: ", what)); }

std::string MakeToken() {
  const std::optional<ProcessFacts> self = FactsOf(getpid());
  return Concat(getpid(), "-", self ? self->started : 0, "-", RandomFromKernel());
}

/// Reports `tag` while `fd` is readable. False: errno says why.
bool AddTo(const OwnedFd& epoll, const OwnedFd& fd, pid_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = tag;
  return epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
}

/// Reaps a zombie child. Nothing happens to a child that is alive.
bool Reap(pid_t pid) { return waitpid(pid, nullptr, WNOHANG) == pid; }

/// The status of a child that has ended, which stays a zombie.
std::optional<int> PeekEnd(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid) {
    return std::nullopt;
  }
  return info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
}

void EndAll(const ProcessFamily& family, const Cgroup* cgroup) {
  using std::chrono::steady_clock;
  const auto give_up = steady_clock::now() + WorkerProcesses::kSweepMax;
  if (cgroup != nullptr) cgroup->Kill();
  EndFamily(family, WorkerProcesses::kSweepMax);
  // All members that can end have been killed; the last may not have ended yet.
  if (cgroup != nullptr) cgroup->End(std::min<Duration>(give_up - steady_clock::now(), 1s));
}

}  // namespace

// ----------------------------------------------------------------------------------------------
// construction and destruction

Result<std::unique_ptr<WorkerProcesses>> WorkerProcesses::Open(
    OnEnd on_end, const WorkerProcessesOptions& options) {
  std::unique_ptr<WorkerProcesses> workers(new WorkerProcesses(std::move(on_end), options));
  MUSTER_CHECK_OK(workers->Prepare());
  return workers;
}

WorkerProcesses::WorkerProcesses(OnEnd on_end, const WorkerProcessesOptions& options)
    : on_end_(std::move(on_end)), options_(options), token_(MakeToken()), session_(getsid(0)) {}

Status WorkerProcesses::Prepare() {
  wake_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.is_open()) return CannotRun("eventfd");
  const sigset_t child = SetOf({SIGCHLD});
  child_signals_ = OwnedFd(signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_signals_.is_open()) return CannotRun("signalfd");
  events_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  if (!events_.is_open() || !AddTo(events_, wake_, kNoPid) ||
      !AddTo(events_, child_signals_, kNoPid))
    return CannotRun("epoll");
  if (options_.use_cgroup)
    cgroup_ = Cgroup::Make(Concat("muster-", getpid(), "-", RandomFromKernel()));

  // Where SIGCHLD is ignored, perhaps by our parent, children leave no exit status.
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &plain, &child_action_before_);
  pthread_sigmask(SIG_BLOCK, &child, &mask_before_);
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  is_prepared_ = true;

  MUSTER_TRY(guardian_, Guardian::Start(token_ + ".", cgroup_.get()));
  const AllSignalsBlocked blocked;  // signals are for threads that wait for them
  MUSTER_TRY(thread_, StartThread("cannot run workers: no thread", [this] { Watch(); }));
  return Ok();
}

WorkerProcesses::~WorkerProcesses() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    Wake();
    thread_.join();
  }
  if (guardian_ != nullptr) EndEverything();
  if (cgroup_ != nullptr) cgroup_->Remove();
  guardian_.reset();
  if (is_prepared_) RestoreProcess();
}

void WorkerProcesses::EndEverything() {
  const std::lock_guard lock(mutex_);
  EndAll(Everything(), cgroup_.get());
  for (const Worker& worker : workers_) Reap(worker.pid);
  for (Remains& remains : remains_) Release(remains);
  workers_.clear();
  remains_.clear();
  ReapOrphans();
}

/// With mutex_ held.
ProcessFamily WorkerProcesses::Everything() const {
  ProcessFamily family{.marks = {token_ + "."}, .orphans = true, .spared = {guardian_->pid()}};
  for (const Worker& worker : workers_) family.leaders.push_back(worker.pid);
  for (const Remains& remains : remains_) {
    if (remains.zombie != 0) family.leaders.push_back(remains.zombie);
  }
  return family;
}

void WorkerProcesses::RestoreProcess() {
  prctl(PR_SET_CHILD_SUBREAPER, static_cast<unsigned long>(was_subreaper_));
  if (sigismember(&mask_before_, SIGCHLD) == 0) {
    const sigset_t child = SetOf({SIGCHLD});
    pthread_sigmask(SIG_UNBLOCK, &child, nullptr);
  }
  sigaction(SIGCHLD, &child_action_before_, nullptr);
}

// ----------------------------------------------------------------------------------------------
// requests of the caller

Result<int64_t> WorkerProcesses::Start(size_t worker, const WorkerCommand& command) {
  const std::lock_guard turn(turn_);
  std::string mark;
  int cgroup = -1;
  {
    const std::lock_guard lock(mutex_);
    for (const Worker& other : workers_) {
      if (other.number == worker && !other.was_killed) {
        return MakeError(Code::kInvalid, "worker ", worker, " still runs as process ", other.pid);
      }
    }
    mark = Concat(token_, ".", ++starts_);
    if (cgroup_ != nullptr && cgroup_works_) cgroup = cgroup_->members_fd();
  }
  MUSTER_TRY(WorkerLaunch launch, WorkerLaunch::Prepare(command, mark));
  pid_t pid = 0;
  {
    // With the lock, so that ReapOrphans() does not treat the new process as an orphan.
    const std::lock_guard lock(mutex_);
    MUSTER_TRY(pid, launch.Fork(cgroup));
    starting_ = pid;
    guardian_->Watch(pid);
  }
  Status running = launch.AwaitExec();
  OwnedFd handle = OpenProcess(pid);
  if (running && !handle.is_open()) running = CannotRun("pidfd_open");
  {
    const std::lock_guard lock(mutex_);
    starting_ = 0;
    if (launch.was_refused_by_cgroup()) cgroup_works_ = false;
    if (running && !AddTo(events_, handle, pid)) running = CannotRun("epoll");
    if (running) {
      workers_.push_back(
          {.number = worker, .pid = pid, .mark = std::move(mark), .handle = std::move(handle)});
    } else {
      kill(-pid, SIGKILL);
      while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
      guardian_->Forget(pid);
    }
  }
  if (!running) return running.error();
  return pid;
}

void WorkerProcesses::Signal(size_t worker, int signal) {
  {
    const std::lock_guard lock(mutex_);
    for (Worker& candidate : workers_) {
      if (candidate.number != worker) continue;
      // Its pid cannot be reused before it is reaped.
      if (signal != SIGKILL) kill(-candidate.pid, signal);
      if (signal == SIGKILL) candidate.was_killed = candidate.is_to_be_killed = true;
    }
  }
  // Finding a whole tree takes time, and one search serves all workers that are killed together:
  // the thread does it.
  if (signal == SIGKILL) Wake();
}

void WorkerProcesses::Sweep() {
  const std::lock_guard turn(turn_);
  ProcessFamily family;
  bool all_ended = true;
  size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    family.spared.push_back(guardian_->pid());
    for (const Worker& worker : workers_) {
      // Waiting does not help to end a worker that was killed and is still alive.
      family.spared.push_back(worker.pid);
      if (worker.was_killed) {
        family.leaders.push_back(worker.pid);
        family.marks.push_back(worker.mark);
      } else {
        all_ended = false;
      }
    }
    for (const Remains& remains : remains_) {
      if (remains.zombie != 0) family.leaders.push_back(remains.zombie);
      family.marks.push_back(remains.mark);
    }
    count = remains_.size();
  }
  if (all_ended) {
    family.marks = {token_ + "."};
    family.orphans = true;
  }
  EndAll(family, all_ended ? cgroup_.get() : nullptr);
  const std::lock_guard lock(mutex_);
  // Workers that ended during the sweep come after the first `count`.
  for (size_t i = 0; i < count; ++i) Release(remains_[i]);
  remains_.erase(remains_.begin(), remains_.begin() + static_cast<ptrdiff_t>(count));
  ReapOrphans();
}

std::vector<std::string> WorkerProcesses::Leftovers(int signal) {
  std::unique_lock lock(mutex_);
  const ProcessFamily family = Everything();
  lock.unlock();
  std::vector<std::string> names;
  for (const ProcessFacts& process : FindFamily(family)) {
    std::string command = ReadUpTo(Concat("/proc/", process.pid, "/cmdline"), 4096).value_or("");
    std::ranges::replace(command, '\0', ' ');
    names.push_back(Concat(Printable(Trim(command), 80), " (pid ", process.pid, ")"));
    if (signal != 0) SignalProcess(process, signal);
  }
  return names;
}

// ----------------------------------------------------------------------------------------------
// what the thread does

void WorkerProcesses::Wake() {
  eventfd_write(wake_.get(), 1);  // it fails only while an earlier one is still to be read
}

void WorkerProcesses::Watch() {
  NameThisThread("muster-workers");
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(events_.get(), events.data(), events.size(),
                                 options_.stuck_after > 0s ? kStuckLookMs : -1);
    // In the order in which they became ready: the worker that ended first is reported first,
    // however late this thread runs.
    std::vector<pid_t> ready;
    for (int i = 0; i < count; ++i) ready.push_back(events[static_cast<size_t>(i)].data.fd);
    std::array<char, sizeof(signalfd_siginfo)> ignored;
    while (read(wake_.get(), ignored.data(), sizeof(uint64_t)) > 0) {
    }
    while (read(child_signals_.get(), ignored.data(), ignored.size()) > 0) {
    }
    {
      // Checked after the wake-up is consumed: the destructor sets it before it wakes this thread.
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    for (const End& end : TakeEnds(ready)) on_end_(end.number, end.pid, end.code);
    if (options_.stuck_after > 0s) ReportStuck();
    KillRequested();
    const std::lock_guard lock(mutex_);
    ReleaseEmptySessions();
    ReapOrphans();
  }
}

std::vector<WorkerProcesses::End> WorkerProcesses::TakeEnds(const std::vector<pid_t>& ready) {
  const std::lock_guard lock(mutex_);
  std::vector<End> ends;
  if (stopping_) return ends;
  for (const pid_t pid : ready) {
    const auto worker = std::ranges::find(workers_, pid, &Worker::pid);
    const std::optional<int> code = worker == workers_.end() ? std::nullopt : PeekEnd(pid);
    if (!code) continue;
    ends.push_back({.number = worker->number, .pid = pid, .code = *code});
    remains_.push_back({.zombie = pid, .mark = std::move(worker->mark)});
    // A fork that has not reached its exec may hold a copy, which would stay ready.
    epoll_ctl(events_.get(), EPOLL_CTL_DEL, worker->handle.get(), nullptr);
    workers_.erase(worker);
  }
  return ends;
}

void WorkerProcesses::KillRequested() {
  ProcessFamily family;
  {
    const std::lock_guard lock(mutex_);
    for (Worker& worker : workers_) {
      if (!std::exchange(worker.is_to_be_killed, false)) continue;
      family.leaders.push_back(worker.pid);
      family.marks.push_back(worker.mark);
    }
  }
  if (!family.leaders.empty()) EndFamily(family, kKillMax);
}

void WorkerProcesses::ReportStuck() {
  std::vector<std::pair<size_t, pid_t>> stuck;
  {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    // After a gap nobody knows how the workers slept meanwhile.
    const bool has_gap = now - looked_at_ > kStuckGapMax;
    looked_at_ = now;
    for (Worker& worker : workers_) {
      const std::optional<ProcessFacts> facts = FactsOf(worker.pid);
      if (has_gap || !facts || facts->state != 'D') {
        worker.stuck_since.reset();
      } else if (!worker.stuck_since) {
        worker.stuck_since = now;
      } else if (now - *worker.stuck_since >= options_.stuck_after) {
        stuck.emplace_back(worker.number, worker.pid);
      }
    }
  }
  for (const auto& [number, pid] : stuck) options_.on_stuck(number, pid);
}

// ----------------------------------------------------------------------------------------------
// reaping

void WorkerProcesses::ReleaseEmptySessions() {
  const auto is_fresh = [](const Remains& remains) { return remains.is_fresh; };
  if (std::ranges::none_of(remains_, is_fresh)) return;
  std::unordered_set<pid_t> inhabited;
  for (const ProcessFacts& process : AllProcesses()) {
    if (process.IsDead()) continue;
    if (process.pid != process.session) inhabited.insert(process.session);
    if (process.pid != process.group) inhabited.insert(process.group);
  }
  for (Remains& remains : remains_) {
    if (std::exchange(remains.is_fresh, false) && !inhabited.contains(remains.zombie))
      Release(remains);
  }
}

void WorkerProcesses::Release(Remains& remains) {
  if (remains.zombie == 0) return;
  Reap(remains.zombie);
  guardian_->Forget(std::exchange(remains.zombie, 0));
}

void WorkerProcesses::ReapOrphans() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;
    const pid_t pid = info.si_pid;
    if (pid == 0) return;  // no child has ended
    if (pid == guardian_->pid() && guardian_->ReapIfEnded()) continue;
    const std::optional<ProcessFacts> child = FactsOf(pid);
    if (!child || !IsOrphan(*child) || !Reap(pid)) break;
  }
  // The kernel always returns the same child first, and that child must not be reaped here: check
  // the others one by one.
  for (const ProcessFacts& child : AllProcesses()) {
    if (child.parent == getpid() && child.IsDead() && IsOrphan(child)) Reap(child.pid);
  }
}

bool WorkerProcesses::IsOrphan(const ProcessFacts& child) const {
  const auto is_worker = [&](const Worker& worker) { return worker.pid == child.pid; };
  const auto is_held = [&](const Remains& remains) { return remains.zombie == child.pid; };
  return child.session != session_ && child.pid != starting_ && child.pid != guardian_->pid() &&
         std::ranges::none_of(workers_, is_worker) && std::ranges::none_of(remains_, is_held);
}

}  // namespace muster
