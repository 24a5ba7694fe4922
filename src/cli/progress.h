// Shows on stderr what a command waits for.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "muster/rendezvous_handler.h"

namespace muster::cli {

/// One line that is rewritten on a terminal, otherwise a line for each change. The passing of time
/// alone is not a change.
class Progress {
 public:
  Progress();
  ~Progress() { Clear(); }

  /// `note` is added to the line.
  void Show(const WaitReport& report, std::string_view note = "");
  /// `timeless`: the same line without the parts that change only with time.
  void Show(const std::string& line, const std::string& timeless);
  void Clear();

 private:
  void Redraw(std::string line);

  const bool on_terminal_;
  std::string drawn_;
  std::string last_;
};

/// Shows the progress of a launcher's handler between Begin() and End(), on a thread of its own.
/// Short waits are not shown.
class WaitLine {
 public:
  explicit WaitLine(const RendezvousHandler& handler) : handler_(handler) {}
  ~WaitLine() { End(); }
  WaitLine(WaitLine&&) = delete;

  void Begin();
  void End();

 private:
  void Look();

  const RendezvousHandler& handler_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = true;    // guarded by the mutex
  bool is_again_ = false;  ///< It is not the first wait.
  std::thread thread_;
};

}  // namespace muster::cli
