// The messages between clients of a simulated etcd and its cluster. The simulated network carries
// the text of a message, so that its faults and its trace affect every byte. The message itself
// waits at the post office until its text arrives.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "etcd/etcd_port.h"

namespace muster::sim {

struct EtcdRequest {
  struct Grant {
    Duration ttl;
  };
  struct KeepAlive {
    int64_t lease;
  };
  struct Revoke {
    int64_t lease;
  };
  struct Watch {
    EtcdRange range;
    int64_t revision;  ///< 0: from now on.
  };
  struct Unwatch {};
  struct Ping {};

  uint64_t id = 0;  ///< Of the call or the watch, unique within the client.
  std::variant<Ping, EtcdTransaction, Grant, KeepAlive, Revoke, Watch, Unwatch> what{};

  std::string ToText() const;
};

struct EtcdReply {
  struct Pong {};
  struct Watching {
    int64_t revision;  ///< Of the store.
  };
  struct WatchEnded {
    Error why;
  };
  using Changes = std::vector<EtcdChange>;

  uint64_t id = 0;
  std::variant<Pong, Error, EtcdAnswer, EtcdLease, Duration, Unit, Watching, Changes, WatchEnded>
      what{};

  std::string ToText() const;
};

/// One for each direction.
template <typename Message>
class PostOffice {
 public:
  /// The bytes to send.
  std::string Hand(Message message) {
    const std::string text = message.ToText();
    const uint64_t ticket = ++made_;
    waiting_.emplace(ticket, std::move(message));
    std::string bytes;
    for (const uint64_t number : {ticket, static_cast<uint64_t>(text.size())}) {
      for (int shift = 56; shift >= 0; shift -= 8)
        bytes += static_cast<char>(static_cast<uint8_t>(number >> shift));
    }
    return bytes + text;
  }

  /// Takes the complete messages out of what has arrived.
  std::vector<Message> Collect(std::string& arrived) {
    std::vector<Message> messages;
    while (arrived.size() >= kHeadBytes) {
      const uint64_t size = Number(arrived, 8);
      if (arrived.size() < kHeadBytes + size) break;
      const auto found = waiting_.find(Number(arrived, 0));
      messages.push_back(std::move(found->second));
      waiting_.erase(found);
      arrived.erase(0, kHeadBytes + size);
    }
    return messages;
  }

 private:
  static constexpr size_t kHeadBytes = 16;

  static uint64_t Number(const std::string& bytes, size_t from) {
    uint64_t number = 0;
    for (size_t i = from; i < from + 8; ++i) number = number << 8 | static_cast<uint8_t>(bytes[i]);
    return number;
  }

  uint64_t made_ = 0;
  std::map<uint64_t, Message> waiting_;  // messages whose bytes were lost stay
};

}  // namespace muster::sim
