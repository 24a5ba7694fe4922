// A TCPStore server that sometimes breaks its promises, in one way, which the histories must find.
// It has a thread for each connection; without a lie it is correct.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "store/core/machine.h"

namespace muster::test {

enum class Lie {
  kNone,
  kStaleRead,         ///< GET gives the value before the last.
  kLostSet,           ///< SET stores nothing.
  kLostAdd,           ///< ADD answers, and stores nothing.
  kRepeatedAdd,       ///< ADD is executed twice.
  kLostCompareSet,    ///< COMPARE_SET replies as if it had stored.
  kLostAppend,        ///< APPEND stores nothing.
  kRepeatedAppend,    ///< APPEND is executed twice.
  kDeleteOnlySaysSo,  ///< DELETE_KEY removes nothing.
  kWrongCheck,        ///< CHECK says the opposite.
  kFalseWake,         ///< WAIT ends at once.
  kLostPush,          ///< QUEUE_PUSH stores nothing.
  kDoublePop,         ///< QUEUE_POP gives the last popped element again.
  kTornMultiSet,      ///< MULTI_SET leaves its last key for later.
};
inline constexpr Lie kAllLies[] = {Lie::kNone,       Lie::kStaleRead,      Lie::kLostSet,
                                   Lie::kLostAdd,    Lie::kRepeatedAdd,    Lie::kLostCompareSet,
                                   Lie::kLostAppend, Lie::kRepeatedAppend, Lie::kDeleteOnlySaysSo,
                                   Lie::kWrongCheck, Lie::kFalseWake,      Lie::kLostPush,
                                   Lie::kDoublePop,  Lie::kTornMultiSet};

/// "stale-read" and so on, as in the options.
std::string_view Name(Lie lie);
std::optional<Lie> LieNamed(std::string_view name);

class LyingServer {
 public:
  LyingServer(Lie lie, uint64_t seed);
  /// Ends all connections.
  ~LyingServer();
  LyingServer(const LyingServer&) = delete;
  LyingServer& operator=(const LyingServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  void Accept();
  void Serve(ClientId client, int fd);
  /// Executes the complete requests. Returns how many bytes they had, or nothing to disconnect.
  std::optional<size_t> Consume(ClientId client, int fd, std::string_view bytes);
  /// Callers of these hold the mutex.
  Reply Answer(ClientId client, const Request& request, Released& released);
  Reply AnswerWithLie(ClientId client, const Request& request, Released& released);
  bool IsThere(ClientId client, std::string_view key);

  const Lie lie_;
  int listener_;
  uint16_t port_ = 0;

  std::mutex mutex_;  // guards the members below, and sending
  Prng prng_;
  StoreMachine machine_;
  std::map<ClientId, int> sockets_;
  std::map<std::string, std::string, std::less<>> before_last_;  // values, for kStaleRead
  std::map<std::string, std::string, std::less<>> last_popped_;
  std::string said_;  // owns the bytes of a lie

  std::list<std::thread> threads_;  // used by the accepting thread, and after its end by the
                                    // destructor
  std::thread acceptor_;
};

}  // namespace muster::test
