// A control group (version 2) for all workers: membership is inherited, a process without rights to
// the group cannot leave it, and one write kills all members.
//
// Without the permission there is no group, and processes are found in other ways. Any thread.
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
/// /proc/self/cgroup. Nothing: version 2 is not mounted, or the mounted part does not contain the
/// group.
std::optional<std::string> OwnCgroupFolder(std::string_view mountinfo, std::string_view cgroup);

class Cgroup {
 public:
  /// A new group below that of this process; nullptr if that is impossible.
  static std::unique_ptr<Cgroup> Make(const std::string& name);

  /// `path` is the folder of an existing group.
  Cgroup(std::string path, OwnedFd members)
      : path_(std::move(path)), members_(std::move(members)) {}

  const std::string& path() const { return path_; }
  /// A process that writes "0" there becomes a member.
  int members_fd() const { return members_.get(); }

  /// The members of this group and of groups below it.
  std::vector<pid_t> Members() const;
  bool IsEmpty() const;

  /// SIGKILL to all members. Does not wait for their end.
  void Kill() const;
  /// The same for kernels before 5.14, which cannot do it with one write: freezes, then kills the
  /// members one by one.
  void KillOneByOne() const;

  /// Kills members until the group is empty or `limit` has passed; returns whether it is empty.
  bool End(Duration limit) const;

  /// Removes the group and all groups below it. False: one of them still has members.
  bool Remove() const;

 private:
  const std::string path_;
  const OwnedFd members_;
};

}  // namespace muster
