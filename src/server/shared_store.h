// One store machine, shared by several loops.
//
// A loop runs the requests of one read as one batch under the lock: the machine's steps and the
// copying of their replies, without a system call. Waits that the batch ended belong to connections
// of any loop; they are put into that loop's mailbox, still under the lock, and every loop empties
// its mailbox when it next takes the lock. So the bytes of one connection are sent in the order of
// the machine's decisions: a cancelled wait's "stop waiting" cannot follow its "cancelled".
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "base/memory_account.h"
#include "base/spinning_mutex.h"
#include "base/time.h"
#include "os/ports/transport.h"
#include "store/core/long_step.h"
#include "store/core/machine.h"

namespace muster {

class SharedStore {
 public:
  /// `wake(loop)` requests that a loop collects its mailbox; called without the lock, from any
  /// loop's thread. `store_bytes_max` bounds all that is allocated for clients, on all loops
  /// together.
  SharedStore(const StoreMachineOptions& options, uint64_t store_bytes_max, size_t loops,
              std::function<void(size_t loop)> wake);

  /// The account to which connections charge what they hold: unfinished requests and queued
  /// replies.
  MemoryAccount& account() { return account_; }
  /// The hasher of the keys; it does not change.
  const KeyHasher& hasher() const { return hasher_; }
  uint64_t reply_bytes_max() const { return reply_bytes_max_; }

  /// Bytes that clients of this address have added to the account, net; for MemoryAccount::Client.
  /// Any thread.
  using AddedBytes = std::shared_ptr<std::atomic<int64_t>>;
  AddedBytes AddedBy(const PeerGroup& address);

  /// How many bytes one reply may have now.
  uint64_t ReplyRoom() const;

  /// The value of a key, as the wire names it; empty if there is none, nullopt if it has more than
  /// `bytes_max` bytes.
  std::optional<std::string> Peek(std::string_view key, size_t bytes_max);
  /// Whether Turn::Expire() has something to do, now or later.
  bool HasDeadlines();

  /// Open and drop a scope of keys (store/core/scopes.h). The keys of a usual round are deleted on
  /// return. Most keys of a very large scope are left to Turn::Expire(), for which a loop is woken:
  /// the calling loop has other clients. Any thread.
  void OpenScope(std::string_view scope);
  void DropScope(std::string_view scope);

  /// The loop's index travels in its clients' ids.
  static ClientId MakeClientId(size_t loop, uint64_t number) {
    return static_cast<ClientId>((static_cast<uint64_t>(loop) << kLoopShift) | number);
  }

  static size_t LoopOf(ClientId client) { return static_cast<uint64_t>(client) >> kLoopShift; }

  /// A loop's turn at the machine. The lock is held from construction to Finish(), which must be
  /// called.
  class Turn {
   public:
    Turn(SharedStore& store, size_t loop);
    /// Only a turn that ends in an exception ends without Finish().
    ~Turn() { MUSTER_ASSERT(!lock_.owns_lock() || std::uncaught_exceptions() > 0); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    /// Whether the wait of `client`, of this loop, ended before this turn: "stop waiting" must be
    /// sent before any reply of this turn. True once.
    bool TakeArrived(ClientId client) { return Take(arrived_, 0, client); }

    /// Executes a request. `*wait_ended`: the request ended the client's own outstanding wait.
    Reply Step(ClientId client, const Request& request, Instant now, bool* wait_ended) {
      const size_t before = released_.size();
      Reply reply = store_.machine_.Step(client, request, now, released_);
      *wait_ended = released_.size() > before && Take(released_, before, client);
      return reply;
    }

    /// One short step of a long request; true: it is done.
    bool Advance(LongStep& step, ClientId client, Instant now, const LongStep::Take& take,
                 bool* wait_ended);
    /// True: there is more to undo.
    bool Abandon(LongStep& step) { return step.Abandon(store_.machine_, released_); }
    /// Whether the request is better executed in short steps.
    bool IsLong(const Request& request) const {
      if (request.op == Op::kMultiGet && request.keys.size() > StoreMachine::kFewKeys) {
        return store_.machine_.BytesCopiedFor(request) > StoreMachine::kBytesPerPiece;
      }
      if (request.op == Op::kMultiSet) return store_.machine_.WakesMany(request);
      return request.op == Op::kListKeys && store_.machine_.Stats().keys > kKeysPerPiece;
    }

    void Drop(ClientId client, Instant now) { store_.machine_.Drop(client, now, released_); }
    bool Expire(Instant now) { return store_.machine_.Expire(now, released_); }
    /// Whether the client waits in WAIT or BARRIER.
    bool IsParked(ClientId client) const { return store_.machine_.IsParked(client); }
    StoreMachineStats Stats() const { return store_.machine_.Stats(); }
    /// Whether there is so much garbage that it should be destroyed before the next request, or so
    /// many clients have been woken that others should have their turn.
    bool ShouldEnd() const {
      return store_.machine_.garbage_bytes() >= kDestroyedPerTurn ||
             store_.machine_.places_cleared() - cleared_before_ > StoreMachine::kPlacesPerPiece;
    }

    /// Releases the lock and wakes other loops. Returns this loop's clients whose waits are over,
    /// to which "stop waiting" must be sent now.
    Released Finish();

   private:
    /// Whether `client` is there, from `begin` on; removes it.
    static bool Take(Released& from, size_t begin, ClientId client);

    SharedStore& store_;
    const size_t loop_;
    std::unique_lock<SpinningMutex> lock_;
    const uint64_t cleared_before_;
    Released arrived_;   // decided before this turn
    Released released_;  // decided in it
  };

 private:
  static constexpr int kLoopShift = 48;
  /// About 2 ms for a loop that has other connections to serve.
  static constexpr size_t kDestroyedPerTurn = 16 << 20;
  static constexpr int kPiecesDroppedAtOnce = 4;

  using Garbage = StoreMachine::Garbage;
  /// Destroys some of the garbage, and the rest after the next turns. Called without the lock.
  void Destroy(Garbage garbage, size_t loop);
  void DestroyMore(size_t loop);

  static constexpr size_t kAddressesMax = 64 * 1024;

  const uint64_t reply_bytes_max_;
  const KeyHasher hasher_;
  MemoryAccount account_;
  std::mutex added_mutex_;
  std::map<PeerGroup, AddedBytes> added_by_;  // guarded by added_mutex_
  size_t addresses_swept_at_ = 1024;          // guarded by added_mutex_
  std::mutex garbage_mutex_;
  std::list<Garbage> garbage_;             // guarded by garbage_mutex_
  std::atomic<bool> has_garbage_ = false;  // garbage_ is not empty
  std::function<void(size_t)> wake_;
  SpinningMutex mutex_;
  StoreMachine machine_;             // guarded by mutex_
  std::vector<Released> mailboxes_;  // guarded by mutex_, one per loop
};

}  // namespace muster
