// The requests to a server under load and the expected replies, as bytes. Pure: no sockets, no
// clock.
//
// The same load can be expressed in TCPStore's protocol (muster's server and PyTorch's; only
// opcodes that both have), in Redis's, and for an echo server, which gets TCPStore's requests and
// sends them back.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace muster::load {

enum class Protocol { kTcpStore, kRedis, kEcho };
enum class LoadOp { kGet, kSet, kAdd, kCheck };

std::string_view Name(LoadOp op);
/// kInvalid names the existing operations.
Result<LoadOp> ParseLoadOp(std::string_view name);
Result<Protocol> ParseProtocol(std::string_view name);

/// The keys and values of a run. Keys have one length, and values belong to their keys: a server
/// that confuses two is found.
class KeySpace {
 public:
  /// `tag` separates the keys of runs that use one server at the same time; at most 8 bytes of it
  /// are used.
  KeySpace(std::string_view tag, uint32_t keys, size_t value_bytes, uint64_t seed);

  uint32_t keys() const { return keys_; }
  size_t value_bytes() const { return value_bytes_; }
  std::string ValueKey(uint32_t key) const;
  std::string CounterKey(uint32_t key) const;
  std::string_view Value(uint32_t key) const {
    return std::string_view(pool_).substr(size_t{key} * kStride, value_bytes_);
  }

 private:
  // Values overlap in one pool of random bytes: a thousand of 8 MiB each cost 8 MiB.
  static constexpr size_t kStride = 8;

  std::string tag_;
  uint32_t keys_;
  size_t value_bytes_;
  std::string pool_;
};

/// What a connection sends first, and the answer that it needs before it is used.
std::string Hello(Protocol protocol);
std::string HelloAnswer(Protocol protocol);

/// Requests before and after the load; their replies have a ReplyShape.
enum class Chore { kStoreValue, kStoreCounter, kReadCounter, kDeleteValue, kDeleteCounter };
void AppendChore(std::string& out, Protocol protocol, Chore chore, const KeySpace& space,
                 uint32_t key);

enum class ReplyShape {
  kNothing,     ///< No reply: SET in TCPStore's protocol.
  kBytes,       ///< Known beforehand to the last byte.
  kNumber,      ///< Eight bytes, little-endian.
  kNumberLine,  ///< ":17\r\n"
  kLine,        ///< Anything up to "\r\n".
};
ReplyShape ShapeOf(Protocol protocol, Chore chore);

/// A client's position within the reply that it is reading.
struct ReplyPlace {
  uint32_t offset = 0;
  bool wrong = false;
  std::array<char, 24> digits{};  // of a number that came in pieces
};

enum class ReplyStep {
  kMore,   ///< All bytes used; the reply continues.
  kGood,   ///< Complete and right.
  kWrong,  ///< Complete and wrong.
  kLost,   ///< Not a reply: nothing behind it can be understood.
};

/// One operation's requests and replies, prepared for every key, so that a client's turn is a few
/// copies. The key space outlives it. Immutable: threads share it.
class Script {
 public:
  Script(Protocol protocol, LoadOp op, const KeySpace& space);

  /// The size of one request; all have the same.
  size_t request_bytes() const { return head_bytes_ + body_bytes_ + tail_.size(); }
  /// Copies bytes of a request, from `offset` on, at most `room`. Returns the number of bytes.
  size_t CopyRequest(uint32_t key, size_t offset, char* out, size_t room) const;

  /// The end of a batch of requests: a PING if the requests themselves have no replies. May be
  /// empty.
  std::string_view closing() const { return closing_; }
  /// Whether one reply answers for the whole batch.
  bool one_reply_per_batch() const { return !closing_.empty(); }

  /// Continues to read the reply for `key`; `*used` is the number of bytes that belonged to it.
  ReplyStep Read(ReplyPlace& place, uint32_t key, std::string_view bytes, size_t* used) const;

  /// A number that depends on the work: two results with the same number can be compared.
  uint64_t WorkHash() const;

 private:
  void ScriptTcpStore(LoadOp op);
  void ScriptRedis(LoadOp op);
  ReplyStep ReadBytes(ReplyPlace& place, uint32_t key, std::string_view bytes, size_t* used) const;
  ReplyStep ReadNumber(ReplyPlace& place, std::string_view bytes, size_t* used) const;
  ReplyStep ReadNumberLine(ReplyPlace& place, std::string_view bytes, size_t* used) const;
  std::string_view Head(uint32_t key) const {
    return std::string_view(heads_).substr(size_t{key} * head_bytes_, head_bytes_);
  }
  std::string_view Body(uint32_t key) const {
    return body_bytes_ == 0 ? std::string_view() : space_.Value(key);
  }
  std::string_view ReplyBody(uint32_t key) const {
    if (echoed_) return Head(key);
    return reply_body_bytes_ == 0 ? std::string_view() : space_.Value(key);
  }

  const KeySpace& space_;
  std::string heads_;  // of all keys, one after the other
  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;
  std::string tail_;
  std::string closing_;
  ReplyShape shape_ = ReplyShape::kBytes;
  bool echoed_ = false;
  std::string reply_head_;
  size_t reply_body_bytes_ = 0;
  std::string reply_tail_;
};

}  // namespace muster::load
