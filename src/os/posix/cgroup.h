// A control group (version 2) of our own for all workers: membership is inherited, cannot be shed
// by those in it without the right to, and ends everyone in it with one write.
//
// Wherever that is not allowed there is none, and processes are found in other ways. Any thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "os/posix/owned_fd.h"

namespace muster {

/// The folder of the group that a process is in, from its /proc/self/mountinfo and
/// /proc/self/cgroup. Nothing: version 2 is not mounted, or what is mounted does not reach it.
std::optional<std::string> OwnCgroupFolder(std::string_view mountinfo, std::string_view cgroup);

class Cgroup {
 public:
  /// A new one below that of this process; nullptr where that is impossible.
  static std::unique_ptr<Cgroup> Make(const std::string& name);

  /// `path` is that of a group that exists.
  Cgroup(std::string path, OwnedFd members)
      : path_(std::move(path)), members_(std::move(members)) {}
  Cgroup(const Cgroup&) = delete;
  Cgroup& operator=(const Cgroup&) = delete;

  const std::string& path() const { return path_; }
  /// Whoever writes "0" there becomes a member. Nothing else here needs it.
  int members_fd() const { return members_.get(); }

  /// In it and in groups below it.
  std::vector<pid_t> Members() const;
  bool IsEmpty() const;

  /// SIGKILL to all members. Does not wait for their end.
  void Kill() const;
  /// The same for kernels that cannot do it in one stroke (older than 5.14): freezes, then kills
  /// one by one.
  void KillOneByOne() const;

  /// Kills until nobody is in it, or `limit` has passed; returns whether nobody is.
  bool End(Duration limit) const;

  /// Removes it and groups below it. False: somebody is still in one of them.
  bool Remove() const;

 private:
  const std::string path_;
  const OwnedFd members_;
};

}  // namespace muster
