// Whom we wait for, told on stderr while we wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "muster/rendezvous_handler.h"

namespace muster::cli {

/// One line that is rewritten on a terminal, else a line for each change. Nothing about the passing
/// of time alone.
class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }

  void Show(const WaitReport& report);
  /// `timeless`: the same, without what the passing of time alone changes.
  void Show(const std::string& line, const std::string& timeless);
  void Clear();

 private:
  void Redraw(std::string line);

  const bool on_terminal_;
  std::string drawn_;
  std::string last_;
};

/// Looks at a launcher's handler, and shows how it gets on, on a thread of its own between Begin()
/// and End(): until the ranks of the round's workers are known.
/// Waits that are over at once are not worth a line.
class WaitLine {
 public:
  explicit WaitLine(const RendezvousHandler& handler) : handler_(handler) {}
  ~WaitLine() { End(); }
  WaitLine(const WaitLine&) = delete;
  WaitLine& operator=(const WaitLine&) = delete;

  void Begin();
  void End();

 private:
  void Look();

  const RendezvousHandler& handler_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = true;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace muster::cli
