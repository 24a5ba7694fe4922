#include "muster/file_store.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_files.h"
#include "store/store_backend.h"
#include "store/throw.h"

namespace muster {

namespace {

// User keys begin with '/': they differ from these, and from deletions.
constexpr std::string_view kUsers = "refcount/";
constexpr std::string_view kLeft = "cleanup/";
constexpr std::string_view kDeletion = "-";
// The longest key that a cut record may have. Text that is read as a length gives at least 150
// million, or 2 million in UTF-16.
constexpr uint32_t kCutKeyBytesMax = 1024 * 1024;

std::string FileKey(std::string_view key) { return Concat('/', key); }

// Removes one length-prefixed field from the front; nullopt if it is incomplete.
std::optional<std::string_view> TakeField(std::string_view& bytes) {
  if (bytes.size() < 4) return std::nullopt;
  const auto size = LoadInt<uint32_t>(bytes.data());
  if (bytes.size() - 4 < size) return std::nullopt;
  const std::string_view field = bytes.substr(4, size);
  bytes.remove_prefix(4 + size);
  return field;
}

bool IsRecordKey(std::string_view key) {
  return key.starts_with('/') || key.starts_with("-/") || key == kUsers || key == kLeft;
}

// Whether `bytes`, too few for a record, can be the beginning of one. After whole records a cut one
// may end anywhere. A file without whole records must begin as a FileStore's does (its first record
// counts the users): any other file must not be truncated.
bool CanBeCutRecord(std::string_view bytes, bool is_first) {
  std::string users_size;
  AppendInt<uint32_t>(users_size, static_cast<uint32_t>(kUsers.size()));
  if (bytes.size() <= 4 && is_first) return users_size.starts_with(bytes);
  if (bytes.size() < 4) return true;
  const auto size = LoadInt<uint32_t>(bytes.data());
  bytes.remove_prefix(4);
  if (bytes.size() >= size) return IsRecordKey(bytes.substr(0, size));
  if (size > kCutKeyBytesMax) return false;
  // The whole key would be longer than its present part.
  const auto can_become = [&](std::string_view key) {
    return key.size() == size && key.starts_with(bytes);
  };
  return bytes.starts_with('/') || bytes.starts_with("-/") || can_become(kUsers) ||
         can_become(kLeft) || bytes.empty() || (bytes == kDeletion && size >= 2);
}

/// A key space kept in a shared log file, in the format of PyTorch's FileStore
/// (docs/reference/protocol.md, "The file").
///
/// Every operation opens the file, takes its lock, replays what others have appended since the last
/// operation, does its work and releases the lock. One thread at a time.
class FileTable {
 public:
  FileTable(Clock& clock, std::string path) : files_(clock), path_(std::move(path)) {}

  /// Registers a user of the file, which is created if it is missing.
  Status Enter(Instant deadline);
  /// Unregisters the user, and removes the file if it was the last and `world_size` (unless
  /// negative) users have left.
  Status Leave(int world_size, Instant deadline);

  /// Executes any request that this kind of store supports, except WAIT, without waiting for a key.
  /// kNotFound: no such key (of GET), or no such file yet (of those that do not create it).
  /// kTimeout: the lock was not free in time. kProtocol: the file is not a FileStore's.
  /// kUnavailable: the disk failed.
  Result<Answer> Execute(const Request& request, Instant deadline);
  /// Removes the keys that exist now from `keys`. kNotFound: some are left.
  Result<Answer> Find(std::vector<std::string_view>& keys, Instant deadline);

  const std::string& path() const { return path_; }

 private:
  using Lock = PosixFiles::Lock;
  using Missing = PosixFiles::Missing;

  Result<LockedFile> OpenFresh(Lock lock, Missing missing, Instant deadline);
  /// Reads the new part of the file into the cache.
  Status Replay(LockedFile& file, Lock lock);
  /// Applies a record to the cache: an assignment, or the deletion of a key.
  void Apply(std::string_view key, std::string_view value);
  /// Appends a record to the file, and applies it.
  Status Write(LockedFile& file, std::string_view key, std::string_view value);
  Result<int64_t> Add(LockedFile& file, std::string_view key, int64_t delta);

  PosixFiles files_;
  const std::string path_;
  std::map<std::string, std::string, std::less<>> entries_;  // by the file's own keys
  uint64_t replayed_ = 0;  // bytes of the file that entries_ reflects
  uint64_t identity_ = 0;  // of the file that they were read from
};

Result<LockedFile> FileTable::OpenFresh(Lock lock, Missing missing, Instant deadline) {
  MUSTER_TRY(LockedFile file, files_.Open(path_, lock, missing, deadline));
  MUSTER_CHECK_OK(Replay(file, lock));
  return file;
}

Status FileTable::Replay(LockedFile& file, Lock lock) {
  MUSTER_TRY(const uint64_t size, file.Size());
  if (file.identity() != identity_ || size < replayed_) {  // the name now belongs to another file
    entries_.clear();
    replayed_ = 0;
    identity_ = file.identity();
  }
  if (size == replayed_) return Ok();
  MUSTER_TRY(const std::string bytes, file.ReadFrom(replayed_));
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const uint64_t start = replayed_;
    const std::string_view record = rest;
    const auto key = TakeField(rest);
    const auto value = key ? TakeField(rest) : std::nullopt;
    if (value ? !IsRecordKey(*key) : !CanBeCutRecord(record, start == 0)) {
      return MakeError(Code::kProtocol, path_, " is not a FileStore file: at byte ", start,
                       " stands '", Printable(record, 40), "'");
    }
    if (!value) {
      // The lock is held, so no process is writing: a writer died here. The next writer overwrites
      // its record.
      if (lock == Lock::kExclusive) return file.Truncate(start);
      return Ok();
    }
    Apply(*key, *value);
    replayed_ += record.size() - rest.size();
  }
  return Ok();
}

void FileTable::Apply(std::string_view key, std::string_view value) {
  if (key.starts_with(kDeletion)) {
    entries_.erase(std::string(key.substr(1)));
  } else {
    entries_.insert_or_assign(std::string(key), std::string(value));
  }
}

Status FileTable::Write(LockedFile& file, std::string_view key, std::string_view value) {
  constexpr uint64_t kFieldMax = UINT32_MAX;
  if (key.size() > kFieldMax || value.size() > kFieldMax) {
    return MakeError(Code::kInvalid, path_,
                     ": a key or value of over 4 GiB cannot be stored in a file");
  }
  std::string record;
  for (const std::string_view field : {key, value}) {
    AppendInt<uint32_t>(record, static_cast<uint32_t>(field.size()));
    record += field;
  }
  MUSTER_CHECK_OK(file.Append(record));
  replayed_ += record.size();
  Apply(key, value);
  return Ok();
}

Result<int64_t> FileTable::Add(LockedFile& file, std::string_view key, int64_t delta) {
  int64_t current = 0;
  if (const auto entry = entries_.find(key); entry != entries_.end() && !entry->second.empty()) {
    MUSTER_TRY(current, ParseCounter(entry->second));
  }
  const auto sum =
      static_cast<int64_t>(static_cast<uint64_t>(current) + static_cast<uint64_t>(delta));
  MUSTER_CHECK_OK(Write(file, key, Concat(sum)));
  return sum;
}

Status FileTable::Enter(Instant deadline) {
  MUSTER_TRY(LockedFile file, OpenFresh(Lock::kExclusive, Missing::kCreate, deadline));
  MUSTER_CHECK_OK(Add(file, kUsers, 1));
  return Ok();
}

Status FileTable::Leave(int world_size, Instant deadline) {
  Result<LockedFile> file = OpenFresh(Lock::kExclusive, Missing::kFail, deadline);
  if (!file) return file.error().code == Code::kNotFound ? Ok() : Status(file.error());
  MUSTER_TRY(const int64_t left, Add(*file, kLeft, 1));
  MUSTER_TRY(const int64_t users, Add(*file, kUsers, -1));
  if (users == 0 && world_size >= 0 && left >= world_size) std::remove(path_.c_str());
  return Ok();
}

Result<Answer> FileTable::Find(std::vector<std::string_view>& keys, Instant deadline) {
  MUSTER_TRY(const LockedFile file, OpenFresh(Lock::kShared, Missing::kFail, deadline));
  std::erase_if(keys, [this](std::string_view key) { return entries_.contains(FileKey(key)); });
  if (!keys.empty()) return Error{Code::kNotFound, Printable(keys.back())};
  return Answer{};
}

Result<Answer> FileTable::Execute(const Request& request, Instant deadline) {
  const bool creates = request.op == Op::kSet || request.op == Op::kAdd ||
                       request.op == Op::kCompareSet || request.op == Op::kAppend;
  const bool writes = creates || request.op == Op::kDeleteKey;
  MUSTER_TRY(LockedFile file, OpenFresh(writes ? Lock::kExclusive : Lock::kShared,
                                        creates ? Missing::kCreate : Missing::kFail, deadline));
  const std::string key = FileKey(request.key);
  const auto entry = entries_.find(key);
  const bool is_there = entry != entries_.end();
  Answer answer;
  switch (request.op) {
    case Op::kSet:
      MUSTER_CHECK_OK(Write(file, key, request.value));
      break;
    case Op::kGet:
      if (!is_there) return Error{Code::kNotFound, Printable(request.key)};
      answer.value = entry->second;
      break;
    case Op::kAdd: {
      MUSTER_TRY(answer.number, Add(file, key, request.number));
      break;
    }
    case Op::kCompareSet:
      answer.value = is_there ? entry->second : request.expected;
      if (is_there ? answer.value != request.expected : !request.expected.empty()) break;
      MUSTER_CHECK_OK(Write(file, key, request.value));
      answer.value = request.value;
      break;
    case Op::kAppend:
      MUSTER_CHECK_OK(Write(file, key, Concat(is_there ? entry->second : "", request.value)));
      break;
    case Op::kDeleteKey:
      MUSTER_CHECK_OK(Write(file, Concat(kDeletion, key), ""));
      answer.number = 1;  // whether the key existed or not
      break;
    case Op::kCheck:
      answer.number = std::ranges::all_of(
          request.keys, [this](std::string_view name) { return entries_.contains(FileKey(name)); });
      break;
    case Op::kGetNumKeys:
      answer.number = static_cast<int64_t>(entries_.size());
      break;
    case Op::kListKeys:
      for (const auto& [name, value] : entries_) {
        if (name.starts_with('/')) answer.values.push_back(name.substr(1));
      }
      break;
    default:
      return MakeError(Code::kUnsupported, Name(request.op), ": a file has no queues");
  }
  return answer;
}

// There is no notification that the file has grown: it is read immediately, then less and less
// often.
constexpr Duration kFirstLook = 1ms;
constexpr Duration kLongestPause = 10ms;

// There is no network here: a failure of disk or kernel is a StoreError.
Error AsStoreError(Error error) {
  if (error.code == Code::kUnavailable) error.code = Code::kProtocol;
  return error;
}

struct FileBackend final : StoreBackend {
  FileBackend(std::string path, int world) : table(clock, std::move(path)), world_size(world) {}

  Result<Answer> Execute(const Request& request, Timeout timeout) override;
  bool Supports(Op op) const override {
    return op != Op::kMultiGet && op != Op::kMultiSet && op != Op::kBarrier;
  }

  PosixClock clock;
  std::mutex mutex;  // one request at a time
  FileTable table;
  const int world_size;
};

// A missing key, or a file that another process may be about to create, is looked for until the
// deadline.
Result<Answer> FileBackend::Execute(const Request& request, Timeout timeout) {
  const auto lock = LockUnlessInterrupted(mutex, "FileStore");
  const Instant began = clock.Now();
  const Instant deadline = DeadlineAfter(began, timeout);
  const bool waits = request.op == Op::kWait;
  // A key seen once counts as seen, even if it is deleted during the wait for the others.
  std::vector<std::string_view> missing(request.keys.begin(), request.keys.end());
  const std::string file = Concat(" (file ", table.path(), ")");
  for (Duration pause = kFirstLook;; pause = std::min<Duration>(pause * 3 / 2, kLongestPause)) {
    Result<Answer> seen = waits ? table.Find(missing, deadline) : table.Execute(request, deadline);
    if (seen) return seen;
    if (seen.error().code != Code::kNotFound) return AsStoreError(seen.error());
    const Instant now = clock.Now();
    if (now >= deadline && waits) {
      return MakeError(Code::kTimeout, "Wait timeout after ", timeout.count(),
                       " ms for key: ", Printable(missing.empty() ? "" : missing.back()), file);
    }
    if (now >= deadline && request.op == Op::kGet) {
      return MakeError(Code::kTimeout, "Timeout waiting for key: ", Printable(request.key),
                       " after ", timeout.count(), " ms", file);
    }
    if (now >= deadline) return seen;
    clock.SleepUntil(std::min(now + pause, deadline));  // the last look is at the deadline itself
    if (IsInterrupted()) {
      return Interrupted(began, clock.Now(),
                         Concat("waiting for key: ", seen.error().message, file));
    }
  }
}

}  // namespace

FileStore::FileStore(std::string path, int world_size)
    : BackedStore(std::make_unique<FileBackend>(std::move(path), world_size)) {
  auto& file = backend<FileBackend>();
  const Status entered = file.table.Enter(DeadlineAfter(file.clock.Now(), Timeout()));
  if (!entered) Throw(AsStoreError(entered.error()));
}

FileStore::~FileStore() {
  const ScopedUninterrupted meanwhile;
  // A destructor cannot report a failure: the count of users stays too high, and the file stays.
  auto& file = backend<FileBackend>();
  (void)file.table.Leave(file.world_size, DeadlineAfter(file.clock.Now(), Timeout()));
}

std::shared_ptr<Store> FileStore::Clone() {
  auto clone = std::make_shared<FileStore>(path(), backend<FileBackend>().world_size);
  clone->SetTimeout(Timeout());
  return clone;
}

const std::string& FileStore::path() const { return backend<FileBackend>().table.path(); }

}  // namespace muster
