#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"
#include "cli/process.h"
#include "os/posix/line_writer.h"
#include "rendezvous/wait_report.h"

namespace muster::cli {

namespace {

constexpr std::chrono::milliseconds kWorthALine{300};
constexpr std::chrono::milliseconds kRefresh{100};
constexpr std::string_view kEraseLine = "\r\x1b[K";

/// Lists of names may be long; the text around them matters more.
std::string WithoutMiddle(const std::string& line, size_t width) {
  constexpr std::string_view kGap = "...";
  if (width <= kGap.size()) return "";
  const size_t tail = std::min<size_t>(24, width / 3);
  const auto [begin, end] = EndsOf(line, width - kGap.size() - tail, tail);
  return Concat(begin, kGap, end);
}

}  // namespace

Progress::Progress() : on_terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::Show(const WaitReport& report, std::string_view note) {
  if (report.phase == WaitReport::Phase::kIdle) return;
  WaitReport timeless = report;
  timeless.last_call_left.reset();
  timeless.time_left.reset();
  timeless.held_for.reset();
  if (timeless.held_left) timeless.held_left.emplace(0);
  Show(Concat(report.ToString(), note), Concat(timeless.ToString(), note));
}

void Progress::Show(const std::string& line, const std::string& timeless) {
  if (on_terminal_) return Redraw(line);
  if (timeless == last_) return;
  last_ = timeless;
  PrintNotice(line);
}

void Progress::Clear() {
  if (!drawn_.empty()) StandardError().Write(kEraseLine);
  drawn_.clear();
}

// A line that is wider than the terminal could not be erased.
void Progress::Redraw(std::string line) {
  line = OneLine(line);
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  const size_t width = (known ? size.ws_col : 80u) - 1;
  if (line.size() > width) line = WithoutMiddle(line, width);
  if (line == drawn_) return;
  StandardError().Write(Concat(kEraseLine, line));
  drawn_ = std::move(line);
}

void WaitLine::Begin() {
  End();
  is_over_ = false;
  thread_ = std::thread([this] { Look(); });
}

void WaitLine::End() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    over_.notify_all();
  }
  if (!thread_.joinable()) return;
  thread_.join();
  is_again_ = true;
}

void WaitLine::Look() {
  Progress progress;
  std::unique_lock lock(mutex_);
  auto patience = kWorthALine;
  while (!over_.wait_for(lock, std::exchange(patience, kRefresh), [this] { return is_over_; })) {
    WaitReport report = handler_.DescribeWait();
    // The launcher itself gives up earlier than the join.
    if (is_again_ && report.phase == WaitReport::Phase::kContact) report.time_left.reset();
    if (report.phase != WaitReport::Phase::kComplete) {
      // A running round that this node has not been in may be another job's.
      const bool is_surplus = report.phase == WaitReport::Phase::kNextRound ||
                              report.phase == WaitReport::Phase::kSpare;
      progress.Show(report, is_surplus && !is_again_ ? NoteOnSharedId(report.run_id) : "");
    } else if (report.here > 1) {
      const std::string line = Concat("round ", report.round, " is complete with ", report.here,
                                      " nodes; waiting for their ranks");
      progress.Show(line, line);
    }
  }
}

}  // namespace muster::cli
