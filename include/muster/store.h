// Store: a map from keys to values, shared by the processes of a group so that they find each
// other.
//
// Keys and values are byte strings of any content, also empty. One store object may be used from
// several threads, but runs one call at a time: a thread in Get() blocks the others. Clone() avoids
// that.
//
// Every blocking call is bounded by a timeout. Zero or less means "no limit", on every kind of
// store. Errors are those of muster/error.h; std::invalid_argument for a call that can never work.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "muster/error.h"

namespace muster {

using std::chrono::milliseconds;

inline constexpr milliseconds kDefaultStoreTimeout{300'000};

/// Whether QueuePop() waits for an element.
enum class PopMode { kWait, kDoNotWait };

class Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Creates or overwrites the value, and wakes all clients that wait for the key. On a TcpStore
  /// the request is sent when this returns: later calls on this store see the value, other stores
  /// see it soon.
  virtual void Set(std::string_view key, std::string_view value) = 0;

  /// Waits for the key, then reads it. StoreTimeoutError after Timeout().
  virtual std::string Get(std::string_view key) = 0;

  /// Adds to a counter kept as decimal text, atomically; an absent key counts as 0. Returns the
  /// sum. Throws std::invalid_argument (HashStore, FileStore) or NetworkError (TcpStore: the server
  /// closes the connection) if the value is not a number.
  virtual int64_t Add(std::string_view key, int64_t delta) = 0;

  /// If the value equals `expected` (an absent key equals an empty expectation), it becomes
  /// `desired`. Returns the value afterwards, or `expected` if the key is absent and `expected` is
  /// not empty.
  virtual std::string CompareSet(std::string_view key, std::string_view expected,
                                 std::string_view desired) = 0;

  /// Whether all keys exist, as values or as queues that are not empty. Does not wait.
  virtual bool Check(const std::vector<std::string>& keys) = 0;

  /// Waits until each key has existed at some time during the call.
  virtual void Wait(const std::vector<std::string>& keys, milliseconds timeout) = 0;
  void Wait(const std::vector<std::string>& keys) { Wait(keys, Timeout()); }

  /// Removes a value (never a queue). Returns whether there was one; FileStore does not know, and
  /// returns true.
  virtual bool DeleteKey(std::string_view key) = 0;

  /// Number of values in the whole store, internal ones included.
  virtual int64_t GetNumKeys() = 0;

  /// All keys that have values, in no particular order.
  virtual std::vector<std::string> ListKeys() = 0;

  /// Appends to a value, which is created if it is absent.
  virtual void Append(std::string_view key, std::string_view suffix) = 0;

  /// Waits for all keys, then reads them in the order given.
  virtual std::vector<std::string> MultiGet(const std::vector<std::string>& keys);
  /// Sets all keys. std::invalid_argument if there are not as many values.
  virtual void MultiSet(const std::vector<std::string>& keys,
                        const std::vector<std::string>& values);

  /// Whether Append, MultiGet and MultiSet are one operation each. They always work.
  virtual bool HasExtendedApi() const { return false; }

  /// Queues: first in, first out, separate from the values. NotImplementedError if the store has
  /// none.
  virtual void QueuePush(std::string_view key, std::string_view value);
  /// Removes and returns the oldest element. kWait: StoreTimeoutError after Timeout(); kDoNotWait:
  /// QueueEmptyError.
  virtual std::string QueuePop(std::string_view key, PopMode mode = PopMode::kWait);
  virtual int64_t QueueLen(std::string_view key);

  /// Returns when `world_size` participants have called it with this key. A key can be used only
  /// once.
  virtual void Barrier(std::string_view key, int64_t world_size, milliseconds timeout);
  void Barrier(std::string_view key, int64_t world_size) { Barrier(key, world_size, Timeout()); }

  /// Another handle on the same data, to be used by another thread while this one is blocked.
  virtual std::shared_ptr<Store> Clone() = 0;

  /// How long Get, MultiGet and QueuePop wait, and Wait and Barrier without a timeout argument.
  virtual milliseconds Timeout() const = 0;
  virtual void SetTimeout(milliseconds timeout) = 0;

 protected:
  Store() = default;
};

}  // namespace muster
