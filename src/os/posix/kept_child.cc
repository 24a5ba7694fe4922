#include "os/posix/kept_child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/text.h"
#include "os/posix/process.h"
#include "os/posix/worker_launch.h"

namespace muster {

Result<std::unique_ptr<KeptChild>> KeptChild::Start(const std::vector<std::string>& command,
                                                    const std::string& output_path) {
  std::unique_ptr<KeptChild> child(new KeptChild);
  std::future<Status> is_started = child->started_.get_future();
  MUSTER_TRY(child->thread_, StartThread(Concat("no thread for the program '", command.at(0), "'"),
                                         [&] { child->Run(command, output_path); }));
  MUSTER_CHECK_OK(is_started.get());
  return child;
}

void KeptChild::Run(const std::vector<std::string>& command, const std::string& output_path) {
  NameThisThread("muster child");
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  Result<WorkerLaunch> launch = WorkerLaunch::Prepare({.arguments = command,
                                                       .environment = std::move(environment),
                                                       .output_path = output_path,
                                                       .error_path = output_path},
                                                      Concat("kept.", ProcessId()));
  if (!launch) return started_.set_value(std::move(launch).error());
  const Result<pid_t> pid = launch->Fork(-1);
  if (!pid) return started_.set_value(pid.error());
  pid_ = *pid;
  const Status running = launch->AwaitExec();
  started_.set_value(running);  // this releases the references
  // WNOWAIT: its pid is not reused before it is reaped below, so Signal() cannot hit another
  // process.
  siginfo_t info{};
  while (waitid(P_PID, static_cast<id_t>(*pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  {
    const std::lock_guard lock(mutex_);
    int status = 0;
    while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = status;
  }
  ended_.set_value();
}

KeptChild::~KeptChild() {
  Signal(SIGKILL);
  if (thread_.joinable()) thread_.join();
}

std::optional<std::string> KeptChild::end() const {
  const std::lock_guard lock(mutex_);
  if (!status_) return std::nullopt;
  if (WIFEXITED(*status_)) return Concat("exit status ", WEXITSTATUS(*status_));
  return Concat("signal ", WTERMSIG(*status_));
}

void KeptChild::Signal(int number) {
  const std::lock_guard lock(mutex_);
  if (pid_ > 0 && !status_) kill(pid_, number);
}

void KeptChild::AwaitEnd(Duration grace) {
  if (is_ended_.wait_for(grace) == std::future_status::ready) return;
  Signal(SIGKILL);
  is_ended_.wait();
}

}  // namespace muster
