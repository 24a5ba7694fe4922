#include "muster/hash_store.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "base/interruption.h"
#include "base/limits.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "store/core/machine.h"
#include "store/throw.h"

namespace muster {

namespace {

using Views = std::vector<std::string_view>;

Views ToViews(const std::vector<std::string>& strings) { return {strings.begin(), strings.end()}; }

}  // namespace

// Drives the store machine with threads in place of connections: each call is a client, and a
// parked one waits on its own condition variable.
struct HashStore::Impl {
  PosixClock clock;
  mutable std::mutex mutex;  // guards all below
  StoreMachine machine{{.empty_counts_as_zero = true}};
  uint64_t calls = 0;
  struct Parked {
    std::condition_variable wake;
    bool released = false;
  };
  std::unordered_map<ClientId, Parked*> parked;
  std::condition_variable change;  // any change of the store, while a thread awaits it
  int awaiting_change = 0;
  milliseconds timeout = kDefaultStoreTimeout;

  Reply Step(ClientId client, const Request& request) {
    Released released;
    const Reply reply = machine.Step(client, request, clock.Now(), released);
    Wake(released);
    if (awaiting_change > 0) change.notify_all();
    return reply;
  }

  void Wake(const Released& released) {
    for (const ClientId client : released) {
      const auto found = parked.find(client);
      if (found == parked.end()) continue;
      found->second->released = true;
      found->second->wake.notify_one();
    }
  }

  Reply StepOnce(const Request& request) { return Step(static_cast<ClientId>(++calls), request); }
};

namespace {

// Throws if the machine refused the call; `what` names it: "MultiGet of 17 keys".
void RequireAccepted(const Reply& reply, std::string_view what, std::string_view limit) {
  if (reply.kind != Reply::Kind::kRefused) return;
  throw StoreError(Concat(what, ": ", Describe(reply.why), ": ", limit));
}

std::string ReplyLimit() { return Concat("one answer holds at most ", HumanBytes(kReplyBytesMax)); }

std::string NamesOf(const Views& keys) {
  std::string names;
  for (const std::string_view key : keys)
    names += Concat(names.empty() ? "" : ", ", Printable(key));
  return names;
}

}  // namespace

/// One blocking call: a client of the machine from construction to destruction, with the store's
/// lock held.
class HashStore::Call {
 public:
  explicit Call(Impl& impl, std::optional<milliseconds> timeout = std::nullopt)
      : impl_(impl),
        lock_(impl.mutex),
        client_(static_cast<ClientId>(++impl.calls)),
        timeout_(timeout.value_or(impl.timeout)),
        began_(impl.clock.Now()),
        deadline_(DeadlineAfter(began_, timeout_)) {}

  ~Call() {
    Released released;
    impl_.machine.Drop(client_, impl_.clock.Now(), released);
    impl_.Wake(released);
  }

  /// Returns when every key has been seen to exist; StoreTimeoutError otherwise. Releases the lock
  /// meanwhile.
  void Wait(const Views& keys) {
    const Reply reply = impl_.Step(client_, {.op = Op::kWait, .keys = keys});
    if (reply.kind == Reply::Kind::kStopWaiting) return;
    RequireAccepted(reply, Concat("Wait for ", keys.size(), " keys"),
                    Concat("all waits together may name at most ", kWaitedKeysMax));
    Impl::Parked parked;
    impl_.parked.emplace(client_, &parked);
    const bool in_time = Sleep(parked.wake, [&] { return parked.released; });
    impl_.parked.erase(client_);
    if (!in_time) ThrowTimeout(keys);
  }

  /// Returns after any change of the store; StoreTimeoutError, naming `key`, otherwise.
  void WaitForChange(std::string_view key) {
    const uint64_t before = impl_.calls;
    ++impl_.awaiting_change;
    const bool in_time = Sleep(impl_.change, [&] { return impl_.calls != before; });
    --impl_.awaiting_change;
    if (!in_time) ThrowTimeout({key});
  }

  Reply Step(const Request& request) { return impl_.Step(client_, request); }

 private:
  /// Whether `done` came true before the deadline, and before an interruption.
  template <typename Done>
  bool Sleep(std::condition_variable& wake, const Done& done) {
    while (CanBeInterrupted()) {
      const Instant now = impl_.clock.Now();
      if (IsCheckDue(now)) {
        lock_.unlock();  // the function called may use this store
        CheckInterruption(now);
        lock_.lock();
      }
      if (done()) return true;
      if (now >= deadline_ || IsInterrupted()) return false;
      wake.wait_for(lock_, UntilNextCheck(deadline_) - now, done);
    }
    if (deadline_ == Instant::Never()) return wake.wait(lock_, done), true;
    // Not with wait_until(): the deadline is on CLOCK_BOOTTIME, which goes on in a suspended
    // machine.
    constexpr Duration kLookMax = 1h;
    while (!done()) {
      const Instant now = impl_.clock.Now();
      if (now >= deadline_) return false;
      wake.wait_for(lock_, std::min<Duration>(deadline_ - now, kLookMax), done);
    }
    return true;
  }

  [[noreturn]] void ThrowTimeout(const Views& keys) const {
    if (IsInterrupted())
      Throw(Interrupted(began_, impl_.clock.Now(), Concat("waiting for keys: ", NamesOf(keys))));
    throw StoreTimeoutError(
        Concat("Wait timeout after ", timeout_.count(), " ms, keys: ", NamesOf(keys)));
  }

  Impl& impl_;
  std::unique_lock<std::mutex> lock_;
  const ClientId client_;
  const milliseconds timeout_;
  const Instant began_;
  const Instant deadline_;
};

HashStore::HashStore() : impl_(std::make_unique<Impl>()) {}
HashStore::~HashStore() = default;

std::shared_ptr<HashStore> HashStore::Create() { return std::shared_ptr<HashStore>(new HashStore); }

void HashStore::Set(std::string_view key, std::string_view value) {
  const std::lock_guard lock(impl_->mutex);
  impl_->StepOnce({.op = Op::kSet, .key = key, .value = value});
}

std::string HashStore::Get(std::string_view key) {
  Call call(*impl_);
  while (true) {
    const Reply reply = call.Step({.op = Op::kGet, .key = key});
    if (reply.number > 0) return std::string(reply.value);
    // A queue of that name satisfies a wait but is no value: then only a change can help.
    if (call.Step({.op = Op::kQueueLen, .key = key}).number > 0) {
      call.WaitForChange(key);
    } else {
      call.Wait({key});
    }
  }
}

int64_t HashStore::Add(std::string_view key, int64_t delta) {
  const std::lock_guard lock(impl_->mutex);
  const Reply reply = impl_->StepOnce({.op = Op::kAdd, .key = key, .number = delta});
  if (reply.kind != Reply::Kind::kRefused) return reply.number;
  const std::string what = Concat("Add to '", Printable(key), "': ", Describe(reply.why));
  if (reply.why == Reply::Why::kOutOfRange) throw std::out_of_range(what);
  throw std::invalid_argument(what);
}

std::string HashStore::CompareSet(std::string_view key, std::string_view expected,
                                  std::string_view desired) {
  const std::lock_guard lock(impl_->mutex);
  return std::string(
      impl_->StepOnce({.op = Op::kCompareSet, .key = key, .expected = expected, .value = desired})
          .value);
}

bool HashStore::Check(const std::vector<std::string>& keys) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->StepOnce({.op = Op::kCheck, .keys = ToViews(keys)}).kind == Reply::Kind::kReady;
}

void HashStore::Wait(const std::vector<std::string>& keys, milliseconds timeout) {
  Call(*impl_, timeout).Wait(ToViews(keys));
}

bool HashStore::DeleteKey(std::string_view key) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->StepOnce({.op = Op::kDeleteKey, .key = key}).number > 0;
}

int64_t HashStore::GetNumKeys() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->StepOnce({.op = Op::kGetNumKeys}).number;
}

std::vector<std::string> HashStore::ListKeys() {
  const std::lock_guard lock(impl_->mutex);
  const Reply reply = impl_->StepOnce({.op = Op::kListKeys});
  RequireAccepted(reply, "ListKeys", ReplyLimit());
  return {reply.values.begin(), reply.values.end()};
}

void HashStore::Append(std::string_view key, std::string_view suffix) {
  const std::lock_guard lock(impl_->mutex);
  const Reply reply = impl_->StepOnce({.op = Op::kAppend, .key = key, .value = suffix});
  RequireAccepted(reply, Concat("Append to '", Printable(key), "'"),
                  Concat("one value holds at most ", HumanBytes(kReplyBytesMax)));
}

std::vector<std::string> HashStore::MultiGet(const std::vector<std::string>& keys) {
  Call call(*impl_);
  const Views views = ToViews(keys);
  // A key that was deleted before this thread woke is waited for again: its value was not empty.
  do {
    call.Wait(views);
  } while (call.Step({.op = Op::kCheck, .keys = views}).kind != Reply::Kind::kReady);
  const Reply reply = call.Step({.op = Op::kMultiGet, .keys = views});
  RequireAccepted(reply, Concat("MultiGet of ", keys.size(), " keys"), ReplyLimit());
  return {reply.values.begin(), reply.values.end()};
}

void HashStore::MultiSet(const std::vector<std::string>& keys,
                         const std::vector<std::string>& values) {
  if (keys.size() != values.size()) {
    throw std::invalid_argument(Concat("multiSet keys and values vectors must be of same size: ",
                                       keys.size(), " keys, ", values.size(), " values"));
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->StepOnce({.op = Op::kMultiSet, .keys = ToViews(keys), .values = ToViews(values)});
}

void HashStore::QueuePush(std::string_view key, std::string_view value) {
  const std::lock_guard lock(impl_->mutex);
  impl_->StepOnce({.op = Op::kQueuePush, .key = key, .value = value});
}

std::string HashStore::QueuePop(std::string_view key, PopMode mode) {
  Call call(*impl_);
  while (true) {
    if (mode == PopMode::kWait) call.Wait({key});
    const Reply reply = call.Step({.op = Op::kQueuePop, .key = key});
    if (reply.number > 0) return std::string(reply.value);
    if (mode == PopMode::kDoNotWait)
      throw QueueEmptyError(Concat("queue is empty: ", Printable(key)));
  }
}

int64_t HashStore::QueueLen(std::string_view key) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->StepOnce({.op = Op::kQueueLen, .key = key}).number;
}

milliseconds HashStore::Timeout() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->timeout;
}

void HashStore::SetTimeout(milliseconds timeout) {
  const std::lock_guard lock(impl_->mutex);
  impl_->timeout = timeout;
}

}  // namespace muster
