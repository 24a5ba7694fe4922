#include "muster/hash_store.h"

#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/interruption.h"
#include "base/limits.h"
#include "base/text.h"
#include "os/posix/posix_clock.h"
#include "store/core/machine.h"
#include "store/store_backend.h"

namespace muster {

namespace {

using Keys = std::span<const std::string_view>;

Error RefusalOf(const Request& request, Reply::Why why) {
  const auto error = [why](Code code, std::string_view call, std::string_view limit = "") {
    return Error{code, Concat(call, ": ", Describe(why), limit.empty() ? "" : ": ", limit)};
  };
  const std::string key = Printable(request.key);
  const std::string reply_max = HumanBytes(kReplyBytesMax);
  switch (request.op) {
    case Op::kAdd:
      return error(why == Reply::Why::kOutOfRange ? Code::kOutOfRange : Code::kInvalid,
                   Concat("Add to '", key, "'"));
    case Op::kWait:
      return error(Code::kProtocol, Concat("Wait for ", request.keys.size(), " keys"),
                   Concat("all waits together may name at most ", kWaitedKeysMax));
    case Op::kAppend:
      return error(Code::kProtocol, Concat("Append to '", key, "'"),
                   Concat("one value holds at most ", reply_max));
    case Op::kMultiGet:
      return error(Code::kProtocol, Concat("MultiGet of ", request.keys.size(), " keys"),
                   Concat("one answer holds at most ", reply_max));
    case Op::kListKeys:
      return error(Code::kProtocol, "ListKeys", Concat("one answer holds at most ", reply_max));
    default:
      return error(Code::kProtocol, Concat(Name(request.op), " of '", key, "'"));
  }
}

std::string NamesOf(Keys keys) {
  std::string names;
  for (const std::string_view key : keys)
    names += Concat(names.empty() ? "" : ", ", Printable(key));
  return names;
}

// Drives the store machine with threads in place of connections: each call is a client, and a
// parked one waits on its own condition variable.
struct HashBackend final : StoreBackend {
  class Call;

  PosixClock clock;
  std::mutex mutex;  // guards all below
  StoreMachine machine{{.empty_counts_as_zero = true}};
  uint64_t calls = 0;
  struct Parked {
    std::condition_variable wake;
    bool released = false;
  };
  std::unordered_map<ClientId, Parked*> parked;
  std::condition_variable change;  // any change of the store, while a thread awaits it
  int awaiting_change = 0;

  Result<Answer> Execute(const Request& request, Timeout timeout) override;

  Reply Step(ClientId client, const Request& request) {
    Released released;
    machine.TakeGarbage();  // of the last step, whose reply has been copied
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
};

/// One call: a client of the machine from construction to destruction, with the store's lock held.
class HashBackend::Call {
 public:
  Call(HashBackend& store, Timeout timeout)
      : store_(store),
        lock_(store.mutex),
        client_(static_cast<ClientId>(++store.calls)),
        timeout_(timeout),
        began_(store.clock.Now()),
        deadline_(DeadlineAfter(began_, timeout_)) {}

  ~Call() {
    Released released;
    store_.machine.Drop(client_, store_.clock.Now(), released);
    store_.Wake(released);
  }

  Result<Answer> Step(const Request& request) {
    const Reply reply = store_.Step(client_, request);
    if (reply.kind == Reply::Kind::kRefused) return RefusalOf(request, reply.why);
    return Answer{.number = reply.kind == Reply::Kind::kReady ? 1 : reply.number,
                  .value = std::string(reply.value),
                  .values = {reply.values.begin(), reply.values.end()}};
  }

  Result<Answer> Get(const Request& get) {
    while (true) {
      MUSTER_TRY(Answer answer, Step(get));
      if (answer.number > 0) return answer;
      // A queue of that name satisfies a wait but is no value: then only a change can help.
      MUSTER_TRY(const Answer queue, Step({.op = Op::kQueueLen, .key = get.key}));
      MUSTER_CHECK_OK(queue.number > 0 ? WaitForChange(get.key) : Wait({&get.key, 1}));
    }
  }

  Result<Answer> MultiGet(const Request& get) {
    // A key that was deleted before this thread woke is waited for again: its value was not empty.
    while (true) {
      MUSTER_CHECK_OK(Wait(get.keys));
      MUSTER_TRY(const Answer check, Step({.op = Op::kCheck, .keys = get.keys}));
      if (check.number > 0) return Step(get);
    }
  }

  Result<Answer> Pop(const Request& pop) {
    while (true) {
      if (pop.number > 0) MUSTER_CHECK_OK(Wait({&pop.key, 1}));
      MUSTER_TRY(Answer answer, Step(pop));
      if (answer.number > 0) return answer;
      if (pop.number == 0) {
        return Error{Code::kNotFound, Concat("queue is empty: ", Printable(pop.key))};
      }
    }
  }

  /// Returns when every key has been seen to exist; kTimeout. Releases the lock meanwhile.
  Status Wait(Keys keys) {
    const Request wait{.op = Op::kWait, .keys = keys};
    const Reply reply = store_.Step(client_, wait);
    if (reply.kind == Reply::Kind::kStopWaiting) return Ok();
    if (reply.kind == Reply::Kind::kRefused) return RefusalOf(wait, reply.why);
    Parked own;
    store_.parked.emplace(client_, &own);
    const bool in_time = Sleep(own.wake, [&] { return own.released; });
    store_.parked.erase(client_);
    return in_time ? Ok() : Status(LateFor(keys));
  }

 private:
  /// Returns after any change of the store; kTimeout, naming `key`.
  Status WaitForChange(std::string_view key) {
    const uint64_t before = store_.calls;
    ++store_.awaiting_change;
    const bool in_time = Sleep(store_.change, [&] { return store_.calls != before; });
    --store_.awaiting_change;
    return in_time ? Ok() : Status(LateFor({&key, 1}));
  }

  /// Whether `done` came true before the deadline, and before an interruption.
  template <typename Done>
  bool Sleep(std::condition_variable& wake, const Done& done) {
    while (!done()) {
      if (store_.clock.Now() >= deadline_ || IsInterrupted()) return false;
      WaitOn(wake, lock_, deadline_);
    }
    return true;
  }

  Error LateFor(Keys keys) const {
    const std::string names = Concat("keys: ", NamesOf(keys));
    if (IsInterrupted())
      return Interrupted(began_, store_.clock.Now(), Concat("waiting for ", names));
    return {Code::kTimeout, Concat("Wait timeout after ", timeout_.count(), " ms, ", names)};
  }

  HashBackend& store_;
  std::unique_lock<std::mutex> lock_;
  const ClientId client_;
  const Timeout timeout_;
  const Instant began_;
  const Instant deadline_;
};

Result<Answer> HashBackend::Execute(const Request& request, Timeout timeout) {
  Call call(*this, timeout);
  switch (request.op) {
    case Op::kGet:
      return call.Get(request);
    case Op::kMultiGet:
      return call.MultiGet(request);
    case Op::kQueuePop:
      return call.Pop(request);
    case Op::kWait:
      MUSTER_CHECK_OK(call.Wait(request.keys));
      return Answer{};
    default:
      return call.Step(request);
  }
}

}  // namespace

HashStore::HashStore() : BackedStore(std::make_unique<HashBackend>()) {}

std::shared_ptr<HashStore> HashStore::Create() { return std::shared_ptr<HashStore>(new HashStore); }

}  // namespace muster
