// The workers of a simulated node: no code, only lives. When a worker starts, its life is drawn: it
// ends with 0, crashes, hangs, is slow to stop or ignores SIGTERM, and may leave a process behind.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/prng.h"
#include "os/ports/worker_runner.h"
#include "sim/process.h"

namespace muster::sim {

class World;

class SimWorkers final : public WorkerRunner {
 public:
  /// They are children of `process`, and end with it: see EndAll().
  SimWorkers(World& world, SimProcess& process, size_t node, size_t count, uint64_t seed);

  struct End {
    size_t worker;
    int64_t pid;
    int code;
    bool was_notified;  ///< Asked to end, before it did.
  };
  /// Called when it happens; launchers may see it later.
  std::function<void(const End&)> on_end{};
  /// Called when its process is notified of it.
  std::function<void(const End&)> on_end_noticed{};

  /// Begins a new attempt. `work`: how long its workers work, if all work for the same time.
  void BeginAttempt(Duration work);
  Result<int64_t> Start(size_t worker, const WorkerCommand& command) override;
  void Signal(size_t worker, int signal) override;
  void Sweep() override;
  std::vector<std::string> Leftovers(int signal) override;

  /// The process is gone; the guardian ends its workers.
  void EndAll();
  /// Workers of another node that they work with are gone.
  void NoticeLoss();
  /// Workers that hang continue.
  void Heal();

  size_t living() const;
  /// The number of processes that ended workers have left behind.
  size_t left_behind() const;
  /// All workers of the attempt were started, and have ended with 0.
  bool AllSucceeded() const;
  /// A worker of the attempt has received a signal, or should have.
  bool was_notified() const { return was_notified_; }
  /// One of the attempt could not be started.
  bool has_refused() const { return has_refused_; }

 private:
  struct Worker {
    int64_t pid = 0;
    bool alive = false;
    bool hangs = false;
    bool was_notified = false;
    bool was_killed = false;
    WorldTime signalled_at{};  ///< When the last signal came.
    bool falls = false;        ///< It fails if others are gone.
    bool leaves = false;       ///< It leaves a process behind.
    bool is_falling = false;
    bool has_left = false;
    int code = 0;
    Duration stops_in{};
    int stop_code = 0;
    bool is_deaf = false;
  };

  void DrawLife(Worker& worker, size_t index);
  void EndLater(size_t worker, Duration in, int code);
  /// Workers that do not end in time after the signal must be killed.
  void ExpectKill(size_t worker);
  void ExpectKill(size_t worker, Duration in);
  void EndNow(size_t worker, int code);
  void Note(size_t worker, const std::string& line);
  Duration Draw(Duration low, Duration high);
  bool Chance(uint64_t percent) { return prng_.Below(100) < percent; }

  World& world_;
  SimProcess& process_;
  const size_t node_;
  Prng prng_;
  std::vector<Worker> workers_;
  Duration work_{};
  bool was_notified_ = false;
  bool has_refused_ = false;
  int64_t next_pid_ = 1;
};

}  // namespace muster::sim
