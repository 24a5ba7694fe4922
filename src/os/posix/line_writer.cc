#include "os/posix/line_writer.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "os/posix/forking.h"

namespace muster {

struct LineWriter::State {
  explicit State(int to) : fd(to) {}

  const int fd;
  std::mutex mutex;
  std::condition_variable changed;
  // All guarded by the mutex.
  std::string queue{};
  size_t in_flight = 0;  ///< Bytes that the thread has taken and not written yet.
  uint64_t written = 0;  ///< Bytes since the start: grows as long as the reader reads.
  uint64_t dropped = 0;  ///< Lines since the last report of them.
  bool started = false;
  bool ended = false;

  bool is_idle() const { return queue.empty() && in_flight == 0 && dropped == 0; }
  void Run();
  bool Send(std::string_view batch);
  void WriteAtOnce(std::string_view text);
};

namespace {

uint64_t LinesIn(std::string_view text) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(std::ranges::count(text, '\n')));
}

/// Up to the last line end within what a pipe takes whole: such a write is never mixed with those
/// of other processes.
size_t NextWrite(std::string_view rest) {
  const size_t size = std::min<size_t>(rest.size(), PIPE_BUF);
  const size_t end = rest.substr(0, size).rfind('\n');
  return end == std::string_view::npos ? size : end + 1;
}

}  // namespace

/// False: what is left of it is lost, because there is no reader any more, or no room on the disk.
bool LineWriter::State::Send(std::string_view rest) {
  while (!rest.empty()) {
    const ssize_t count = write(fd, rest.data(), NextWrite(rest));
    if (count < 0 &&
        (errno == EAGAIN || errno == EWOULDBLOCK)) {  // another process made it non-blocking
      pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
      poll(&room, 1, -1);
    } else if (count == 0 || (count < 0 && errno != EINTR)) {
      return false;
    }
    const auto done = static_cast<size_t>(std::max<ssize_t>(count, 0));
    rest.remove_prefix(done);
    const std::lock_guard lock(mutex);
    in_flight -= done;
    written += done;
    changed.notify_all();
  }
  return true;
}

/// For want of a thread: what a pipe has room for now. Others are counted, and reported by the
/// thread once there is one.
void LineWriter::State::WriteAtOnce(std::string_view text) {
  pollfd room{.fd = fd, .events = POLLOUT, .revents = 0};
  const bool fits = text.size() <= PIPE_BUF && poll(&room, 1, 0) == 1;
  if (!fits || write(fd, text.data(), text.size()) < 0) dropped += LinesIn(text);
}

void LineWriter::State::Run() {
  uint64_t lost = 0;
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return !queue.empty() || dropped > 0 || ended; });
    if (queue.empty() && dropped == 0) return;
    std::string batch = std::exchange(queue, {});
    // After what had found room, before what finds it now.
    lost += std::exchange(dropped, 0);
    if (lost > 0) batch += Concat("muster: ", lost, " lines dropped: they could not be written\n");
    in_flight = batch.size();
    lock.unlock();
    const bool sent = Send(batch);
    lock.lock();
    in_flight = 0;
    lost = sent ? 0 : lost + LinesIn(batch);
    changed.notify_all();
  }
}

LineWriter::LineWriter(int fd) : state_(std::make_shared<State>(fd)) {}

LineWriter::~LineWriter() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->changed.notify_all();
}

void LineWriter::Write(std::string_view text) {
  if (text.empty()) return;
  const std::lock_guard lock(state_->mutex);
  if (!std::exchange(state_->started, true)) {
    // No signal is for this thread; SIGPIPE becomes an error of its write.
    const AllSignalsBlocked none;
    try {
      std::thread([state = state_] { state->Run(); }).detach();
    } catch (const std::system_error&) {
      state_->started = false;
      return state_->WriteAtOnce(text);
    }
  }
  if (state_->queue.size() + state_->in_flight + text.size() > kQueuedLogBytesMax) {
    state_->dropped += LinesIn(text);
  } else {
    state_->queue += text;
  }
  state_->changed.notify_all();
}

bool LineWriter::Flush(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  while (!state_->is_idle()) {
    const uint64_t before = state_->written;
    const bool moved = state_->changed.wait_for(
        lock, patience, [&] { return state_->is_idle() || state_->written != before; });
    if (!moved) return false;
  }
  return true;
}

namespace {

std::atomic<LineWriter*> the_writer = nullptr;  // of standard error

void FlushAtExit() {
  constexpr std::chrono::milliseconds kPatience{200};
  if (LineWriter* made = the_writer) made->Flush(kPatience);
}

/// A forked child has neither the thread nor, perhaps, the lock.
void ForgetInChild() { the_writer = nullptr; }

}  // namespace

LineWriter& StandardError() {
  if (LineWriter* made = the_writer) return *made;
  [[maybe_unused]] static const bool registered =
      std::atexit(&FlushAtExit) == 0 && pthread_atfork(nullptr, nullptr, &ForgetInChild) == 0;
  auto fresh = std::make_unique<LineWriter>(STDERR_FILENO);
  LineWriter* expected = nullptr;
  if (the_writer.compare_exchange_strong(expected, fresh.get())) return *fresh.release();
  return *expected;
}

}  // namespace muster
