// A key space kept in a shared log file, in the format of PyTorch's FileStore (docs/protocol.md,
// "The file").
//
// Every operation opens the file, takes its lock, replays what others appended since the last time,
// does its work and releases the lock. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "os/ports/shared_file.h"

namespace muster {

class FileTable {
 public:
  FileTable(SharedFiles& files, std::string path) : files_(files), path_(std::move(path)) {}

  /// Registers a user of the file, which is created if it is missing.
  Status Enter(Instant deadline);
  /// Unregisters the user, and removes the file if it was the last and `world_size` (unless
  /// negative) users have left.
  Status Leave(int world_size, Instant deadline);

  /// kTimeout: the lock (or, where the file must exist, the file) did not come in time. kProtocol:
  /// the file is something else. kUnavailable: the disk failed.
  Status Set(std::string_view key, std::string_view value, Instant deadline);
  Result<int64_t> Add(std::string_view key, int64_t delta, Instant deadline);
  Result<std::string> CompareSet(std::string_view key, std::string_view expected,
                                 std::string_view desired, Instant deadline);
  Status Append(std::string_view key, std::string_view suffix, Instant deadline);
  Status Delete(std::string_view key, Instant deadline);

  /// The value now. kNotFound: no such key, or no such file yet.
  Result<std::string> Get(std::string_view key, Instant deadline);
  Result<bool> Has(std::span<const std::string> keys, Instant deadline);
  /// Removes those from `keys` that exist now.
  Status RemovePresent(std::vector<std::string>& keys, Instant deadline);
  Result<int64_t> Count(Instant deadline);
  Result<std::vector<std::string>> ListKeys(Instant deadline);

  const std::string& path() const { return path_; }

 private:
  using Open = std::unique_ptr<LockedFile>;
  using Entries = std::map<std::string, std::string, std::less<>>;

  Result<Open> OpenFresh(SharedFiles::Lock lock, SharedFiles::Missing missing, Instant deadline);
  /// Reads what is new in the file into the cache.
  Status Replay(LockedFile& file, SharedFiles::Lock lock);
  /// Appends an assignment to the file and to the cache.
  Status Write(LockedFile& file, const std::string& key, std::string_view value);
  Result<int64_t> AddRaw(LockedFile& file, const std::string& key, int64_t delta);

  SharedFiles& files_;
  const std::string path_;
  Entries entries_;        // by the file's own keys
  uint64_t replayed_ = 0;  // bytes of the file that entries_ reflects
  uint64_t identity_ = 0;  // of the file they were read from
};

}  // namespace muster
