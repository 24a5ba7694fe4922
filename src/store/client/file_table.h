// A key space kept in a shared log file, in the format of PyTorch's FileStore
// (docs/reference/protocol.md, "The file").
//
// Every operation opens the file, takes its lock, replays what others appended since the last time,
// does its work and releases the lock. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "os/posix/posix_files.h"
#include "store/store_backend.h"

namespace muster {

class FileTable {
 public:
  FileTable(Clock& clock, std::string path) : files_(clock), path_(std::move(path)) {}

  /// Registers a user of the file, which is created if it is missing.
  Status Enter(Instant deadline);
  /// Unregisters the user, and removes the file if it was the last and `world_size` (unless
  /// negative) users have left.
  Status Leave(int world_size, Instant deadline);

  /// Executes any request that this kind of store has, but WAIT, without waiting for a key.
  /// kNotFound: no such key (of GET), or no such file yet (of those that do not create it).
  /// kTimeout: the lock did not come in time. kProtocol: the file is something else. kUnavailable:
  /// the disk failed.
  Result<Answer> Execute(const Request& request, Instant deadline);
  /// Removes those from `keys` that exist now. kNotFound: not all of them do.
  Result<Answer> Find(std::vector<std::string_view>& keys, Instant deadline);

  const std::string& path() const { return path_; }

 private:
  using Lock = PosixFiles::Lock;
  using Missing = PosixFiles::Missing;
  using Entries = std::map<std::string, std::string, std::less<>>;

  Result<LockedFile> OpenFresh(Lock lock, Missing missing, Instant deadline);
  /// Reads what is new in the file into the cache.
  Status Replay(LockedFile& file, Lock lock);
  /// Appends an assignment to the file and to the cache.
  Status Write(LockedFile& file, const std::string& key, std::string_view value);
  Status Erase(LockedFile& file, const std::string& key);
  Result<int64_t> Add(LockedFile& file, const std::string& key, int64_t delta);

  PosixFiles files_;
  const std::string path_;
  Entries entries_;        // by the file's own keys
  uint64_t replayed_ = 0;  // bytes of the file that entries_ reflects
  uint64_t identity_ = 0;  // of the file they were read from
};

}  // namespace muster
