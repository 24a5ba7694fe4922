#include "muster/file_store.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "os/posix/posix_files.h"
#include "store/client/file_table.h"
#include "store/throw.h"

namespace muster {

namespace {
// There is no notification that the file has grown: it is read at once, then ever less often.
constexpr Duration kFirstLook = 1ms;
constexpr Duration kLongestPause = 10ms;

// There is no network here: a failure of disk or kernel is a StoreError.
template <typename T>
T ValueOf(Result<T> result) {
  if (!result && result.error().code == Code::kUnavailable) {
    throw StoreError(result.error().message);
  }
  return ValueOrThrow(std::move(result));
}

}  // namespace

struct FileStore::Impl {
  Impl(std::string path, int world) : table(files, std::move(path)), world_size(world) {}

  PosixClock clock;
  mutable std::mutex mutex;  // guards all below
  PosixFiles files{clock};
  FileTable table;
  const int world_size;
  milliseconds timeout = kDefaultStoreTimeout;

  std::unique_lock<std::mutex> Lock() { return LockUnlessInterrupted(mutex, "FileStore"); }
  Instant Deadline() const { return DeadlineAfter(clock.Now(), timeout); }

  /// Runs `look` until it returns something other than kNotFound, or the deadline has passed.
  template <typename T>
  Result<T> LookUntil(Instant deadline, const std::function<Result<T>()>& look) {
    const Instant began = clock.Now();
    Duration pause = kFirstLook;
    while (true) {
      Result<T> seen = look();
      if (seen || seen.error().code != Code::kNotFound) return seen;
      const Instant now = clock.Now();
      if (now >= deadline) return seen;
      clock.SleepUntil(std::min(now + pause, deadline));  // one look at the deadline itself
      if (IsInterrupted()) {
        return Interrupted(
            began, clock.Now(),
            Concat("waiting for key: ", seen.error().message, " (file ", table.path(), ")"));
      }
      pause = std::min<Duration>(pause * 3 / 2, kLongestPause);
    }
  }

  /// For operations that need the file: another process may be about to create it.
  template <typename T>
  T OnceThere(const std::function<Result<T>(Instant deadline)>& look) {
    const auto lock = Lock();
    const Instant deadline = Deadline();
    return ValueOf(LookUntil<T>(deadline, [&] { return look(deadline); }));
  }
};

FileStore::FileStore(std::string path, int world_size)
    : impl_(std::make_unique<Impl>(std::move(path), world_size)) {
  ValueOf(impl_->table.Enter(impl_->Deadline()));
}

FileStore::~FileStore() {
  const ScopedUninterrupted meanwhile;
  // A destructor cannot report a failure: the count of users stays too high, and the file stays.
  (void)impl_->table.Leave(impl_->world_size, impl_->Deadline());
}

void FileStore::Set(std::string_view key, std::string_view value) {
  const auto lock = impl_->Lock();
  ValueOf(impl_->table.Set(key, value, impl_->Deadline()));
}

std::string FileStore::Get(std::string_view key) {
  const auto lock = impl_->Lock();
  const Instant deadline = impl_->Deadline();
  Result<std::string> value =
      impl_->LookUntil<std::string>(deadline, [&] { return impl_->table.Get(key, deadline); });
  if (!value && value.error().code == Code::kNotFound) {
    throw StoreTimeoutError(Concat("Timeout waiting for key: ", Printable(key), " after ",
                                   impl_->timeout.count(), " ms (file ", impl_->table.path(), ")"));
  }
  return ValueOf(std::move(value));
}

int64_t FileStore::Add(std::string_view key, int64_t delta) {
  const auto lock = impl_->Lock();
  return ValueOf(impl_->table.Add(key, delta, impl_->Deadline()));
}

std::string FileStore::CompareSet(std::string_view key, std::string_view expected,
                                  std::string_view desired) {
  const auto lock = impl_->Lock();
  return ValueOf(impl_->table.CompareSet(key, expected, desired, impl_->Deadline()));
}

bool FileStore::Check(const std::vector<std::string>& keys) {
  return impl_->OnceThere<bool>([&](Instant deadline) { return impl_->table.Has(keys, deadline); });
}

void FileStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  const auto lock = impl_->Lock();
  const Instant deadline = DeadlineAfter(impl_->clock.Now(), timeout);
  // A key seen once counts as seen, even if it is deleted while we wait for the others.
  std::vector<std::string> missing = keys;
  const Result<bool> all = impl_->LookUntil<bool>(deadline, [&]() -> Result<bool> {
    MUSTER_CHECK_OK(impl_->table.RemovePresent(missing, deadline));
    if (!missing.empty()) return Error{Code::kNotFound, Printable(missing.back())};
    return true;
  });
  if (!all && all.error().code == Code::kNotFound) {
    throw StoreTimeoutError(Concat("Wait timeout after ", timeout.count(), " ms for key: ",
                                   Printable(missing.empty() ? "" : missing.back()), " (file ",
                                   impl_->table.path(), ")"));
  }
  ValueOf(all);
}

bool FileStore::DeleteKey(std::string_view key) {
  impl_->OnceThere<Unit>([&](Instant deadline) { return impl_->table.Delete(key, deadline); });
  return true;
}

int64_t FileStore::GetNumKeys() {
  return impl_->OnceThere<int64_t>([&](Instant deadline) { return impl_->table.Count(deadline); });
}

std::vector<std::string> FileStore::ListKeys() {
  return impl_->OnceThere<std::vector<std::string>>(
      [&](Instant deadline) { return impl_->table.ListKeys(deadline); });
}

void FileStore::Append(std::string_view key, std::string_view suffix) {
  const auto lock = impl_->Lock();
  ValueOf(impl_->table.Append(key, suffix, impl_->Deadline()));
}

std::shared_ptr<Store> FileStore::Clone() {
  auto clone = std::make_shared<FileStore>(path(), impl_->world_size);
  clone->SetTimeout(Timeout());
  return clone;
}

milliseconds FileStore::Timeout() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->timeout;
}

void FileStore::SetTimeout(milliseconds timeout) {
  const std::lock_guard lock(impl_->mutex);
  impl_->timeout = timeout;
}

const std::string& FileStore::path() const { return impl_->table.path(); }

}  // namespace muster
