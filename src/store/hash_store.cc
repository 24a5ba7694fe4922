#include "muster/hash_store.h"

#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

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
    return MakeError(code, call, ": ", Describe(why), limit.empty() ? "" : ": ", limit);
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

// Drives the store machine with threads instead of connections: each call is a client, and a parked
// client waits on its own condition variable.
struct HashBackend final : StoreBackend {
  class Call;

  PosixClock clock;
  std::mutex mutex;  // guards all below
  StoreMachine machine{{.empty_counts_as_zero = true}};
  uint64_t calls = 0;
  std::unordered_map<ClientId, std::condition_variable*> parked;  // until they are released
  std::condition_variable change;                                 // notified of any step

  Result<Answer> Execute(const Request& request, Timeout timeout) override;

  Reply Step(ClientId client, const Request& request) {
    Released released;
    machine.TakeGarbage();  // garbage of the last step, whose reply has been copied
    const Reply reply = machine.Step(client, request, clock.Now(), released);
    Wake(released);
    change.notify_all();
    return reply;
  }

  void Wake(const Released& released) {
    for (const ClientId client : released) {
      const auto found = parked.find(client);
      if (found == parked.end()) continue;
      found->second->notify_one();
      parked.erase(found);
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
      // A queue of that name satisfies a wait but is not a value: the call then waits for a change.
      MUSTER_TRY(const Answer queue, Step({.op = Op::kQueueLen, .key = get.key}));
      MUSTER_CHECK_OK(queue.number > 0 ? WaitForChange(get.key) : Wait({&get.key, 1}));
    }
  }

  Result<Answer> MultiGet(const Request& get) {
    // If the key was deleted before this thread woke, the call waits for it again: its value was
    // not empty.
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
        return MakeError(Code::kNotFound, "queue is empty: ", Printable(pop.key));
      }
    }
  }

  /// Returns when every key has existed at some time, or kTimeout. Releases the lock while it
  /// waits.
  Status Wait(Keys keys) {
    const Request wait{.op = Op::kWait, .keys = keys};
    const Reply reply = store_.Step(client_, wait);
    if (reply.kind == Reply::Kind::kStopWaiting) return Ok();
    if (reply.kind == Reply::Kind::kRefused) return RefusalOf(wait, reply.why);
    std::condition_variable wake;
    store_.parked.emplace(client_, &wake);
    const bool in_time = Sleep(wake, [&] { return !store_.parked.contains(client_); });
    store_.parked.erase(client_);
    return in_time ? Ok() : Status(LateFor(keys));
  }

 private:
  /// Returns after any change of the store; kTimeout, naming `key`.
  Status WaitForChange(std::string_view key) {
    const uint64_t before = store_.calls;
    const bool in_time = Sleep(store_.change, [&] { return store_.calls != before; });
    return in_time ? Ok() : Status(LateFor({&key, 1}));
  }

  /// Whether `done` became true before the deadline, and before an interruption.
  bool Sleep(std::condition_variable& wake, const auto& done) {
    while (!done()) {
      if (store_.clock.Now() >= deadline_ || IsInterrupted()) return false;
      WaitOn(wake, lock_, deadline_);
    }
    return true;
  }

  Error LateFor(Keys keys) const {
    if (IsInterrupted())
      return Interrupted(began_, store_.clock.Now(), Concat("waiting for ", NamesOf(keys)));
    return MakeError(Code::kTimeout, "Wait timeout after ", timeout_.count(), " ms, ",
                     NamesOf(keys));
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
