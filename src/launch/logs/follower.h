// Shows the logs of workers while they are written.
//
// A worker writes into its file and never waits for the follower: a slow terminal slows only the
// echo. One thread follows all files. inotify reports when a quiet file grows. A file that keeps
// growing is read every few milliseconds instead, because a watch would make each small write half
// as slow again. Files that cannot be watched are read ten times a second.
//
//   one line of a file   ->  one line of the console, the prefix in front, its bytes unchanged
//   '\n' ends a line     ->  '\r' is part of it: a progress bar is one line
//   an unfinished line   ->  its state, the text after the last '\r', is shown every 0.3 s if
//                            it has changed: replaced on a terminal, a line elsewhere
//   the same at the end  ->  shown when the file is complete, and given an end
//   a terminal           ->  shows finished lines in their last state, too
//   more than 1 MiB      ->  several lines, each with the prefix: the file has them in one piece
//
// Lines of one file keep their order. If the reader of a console ends, its echo ends and everything
// else continues. A truncated file is shown from its new beginning; lines that had not been shown
// are lost.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/time.h"
#include "os/posix/owned_fd.h"

namespace muster {

class ConsoleWriter;

struct Followed {
  std::string path{};    ///< Created empty if it does not exist.
  std::string prefix{};  ///< In front of every line.
  int console = -1;      ///< Where lines are shown; the caller keeps it open. -1: nowhere.
  size_t worker = 0;     ///< Chooses the colour of the prefix.
  std::vector<std::string> filters{};  ///< Lines that contain one of these (an empty one is in all)
  std::string duplicate_to{};          ///< are appended to this file as well, with the prefix.
};

struct FollowerOptions {
  bool color = false;  ///< Colour the prefixes on consoles that are terminals.
  bool use_inotify = true;
  Duration tick = 100ms;            ///< How often files that inotify does not watch are read.
  Duration unfinished_max = 300ms;  ///< Then the state of an unfinished line is shown.
  LogSink log = nullptr;  ///< Called on the follower's thread when a part of the echo fails.
};

class Follower {
 public:
  /// The longest line that is shown in one piece.
  static constexpr size_t kLineBytesMax = 1024 * 1024;

  /// Starts the thread. kUnavailable: no thread or no descriptors are available.
  static Result<std::unique_ptr<Follower>> Open(FollowerOptions options);

  /// Stops immediately. Lines that have not been shown are only in the files: see Finish().
  ~Follower();
  Follower(Follower&&) = delete;

  /// From its beginning. Both files are opened here, so their directories may be renamed later. Any
  /// thread. kUnavailable: one of them cannot be opened; nothing is followed then.
  Status Follow(Followed file);

  /// To be called when the writers of all files so far have ended. The files are read to their
  /// ends, shown and closed, while the caller continues, perhaps with the next attempt. Any thread;
  /// does not block.
  void Settle();

  /// Calls Settle() and blocks until everything is shown: as long as the reader of the console
  /// needs. Nothing can be followed after it.
  void Finish();

 private:
  struct Duplicate;
  struct File;
  enum class Growth { kNone, kSome, kMore };  // The more, the sooner the file is read again.

  Follower(FollowerOptions options, OwnedFd wake, OwnedFd inotify);

  // Any thread.
  void Wake();
  Result<std::shared_ptr<Duplicate>> DuplicateAt(const std::string& path);

  // The follower's thread.
  void Run();
  bool TakeRequests();
  void Begin(std::unique_ptr<File> file);
  Growth ReadLines(File& file);
  Growth Read(File& file);
  void Show(File& file, std::string_view line, bool on_console = true);
  void ShowState(File& file, Instant now);
  void Complete(File& file);
  void Drop(File& file);
  bool Watch(File& file);
  void Flush();
  void Wait(Growth growth);
  void TakeEvents();
  void Warn(const std::string& line) const;

  const FollowerOptions options_;
  const OwnedFd wake_;     // An eventfd: there are requests.
  const OwnedFd inotify_;  // Not open: there is none.

  std::mutex mutex_;  // Guards the requests.
  std::vector<std::unique_ptr<File>> arrivals_;
  std::map<std::string, std::weak_ptr<Duplicate>> duplicates_;  // by path
  bool settle_ = false;  // The files that the thread has already.
  std::atomic<bool> finish_ = false;
  std::atomic<bool> stop_ = false;

  // The thread's own.
  std::vector<std::unique_ptr<File>> files_;
  std::map<int, std::unique_ptr<ConsoleWriter>> consoles_;  // by descriptor
  std::string buffer_;
  bool finishing_ = false;
  int turns_ = 0;                         // since all files were read
  bool has_state_ = false;                // See ConsoleWriter.
  Instant state_due_ = Instant::Never();  // The next state of any file.

  std::thread thread_;
};

}  // namespace muster
