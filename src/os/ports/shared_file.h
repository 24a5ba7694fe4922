// A file that several processes read and append to, one writer at a time: the base of FileStore.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace muster {

/// An open file with its lock held, until destroyed.
class LockedFile {
 public:
  virtual ~LockedFile() = default;

  virtual Result<uint64_t> Size() = 0;
  /// Differs between a file and another one that later has the same name.
  virtual uint64_t identity() const = 0;
  /// All bytes from `offset` to the end.
  virtual Result<std::string> ReadFrom(uint64_t offset) = 0;
  /// Needs the exclusive lock, as the next one does. Appends all of `bytes`, or (on an error) none.
  virtual Status Append(std::string_view bytes) = 0;
  virtual Status Truncate(uint64_t size) = 0;
};

class SharedFiles {
 public:
  virtual ~SharedFiles() = default;

  enum class Lock { kShared, kExclusive };
  enum class Missing { kCreate, kFail };

  /// Opens and locks `path`, waiting for the lock until `deadline`. kNotFound: there is no such
  /// file (with kFail). kTimeout: another process held the lock. kInvalid: the path cannot be used.
  virtual Result<std::unique_ptr<LockedFile>> Open(const std::string& path, Lock lock,
                                                   Missing missing, Instant deadline) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual void Remove(const std::string& path) = 0;
};

}  // namespace muster
