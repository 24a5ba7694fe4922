#include "muster/file_store.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "base/interruption.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "store/client/file_table.h"
#include "store/store_backend.h"
#include "store/throw.h"

namespace muster {

namespace {

// There is no notification that the file has grown: it is read at once, then ever less often.
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

// What is not there is looked for until the deadline: a key, or a file that another process may be
// about to create.
Result<Answer> FileBackend::Execute(const Request& request, Timeout timeout) {
  const auto lock = LockUnlessInterrupted(mutex, "FileStore");
  const Instant began = clock.Now();
  const Instant deadline = DeadlineAfter(began, timeout);
  const bool waits = request.op == Op::kWait;
  // A key seen once counts as seen, even if it is deleted while we wait for the others.
  std::vector<std::string_view> missing(request.keys.begin(), request.keys.end());
  const std::string file = Concat(" (file ", table.path(), ")");
  for (Duration pause = kFirstLook;; pause = std::min<Duration>(pause * 3 / 2, kLongestPause)) {
    Result<Answer> seen = waits ? table.Find(missing, deadline) : table.Execute(request, deadline);
    if (seen) return seen;
    if (seen.error().code != Code::kNotFound) return AsStoreError(seen.error());
    const Instant now = clock.Now();
    if (now >= deadline && waits) {
      return Error{Code::kTimeout, Concat("Wait timeout after ", timeout.count(), " ms for key: ",
                                          Printable(missing.empty() ? "" : missing.back()), file)};
    }
    if (now >= deadline && request.op == Op::kGet) {
      return Error{Code::kTimeout, Concat("Timeout waiting for key: ", Printable(request.key),
                                          " after ", timeout.count(), " ms", file)};
    }
    if (now >= deadline) return seen;
    clock.SleepUntil(std::min(now + pause, deadline));  // one look at the deadline itself
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
