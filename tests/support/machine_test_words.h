// For tests only: a store machine with methods as requests and texts as replies, so that a test
// reads as a story, and each line shows the whole effect of a request.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "store/core/machine.h"

namespace muster::testing_words {

constexpr ClientId kA{'a'}, kB{'b'}, kC{'c'}, kD{'d'};
using Keys = std::vector<std::string_view>;

/// "-" for silence, "go", "7", "'value'", "2 'popped'", "['v' 'w']", "refused: ...".
inline std::string Words(const Reply& reply) {
  switch (reply.kind) {
    case Reply::Kind::kNone:
      return "-";
    case Reply::Kind::kReady:
      return "ready";
    case Reply::Kind::kNotReady:
      return "not ready";
    case Reply::Kind::kStopWaiting:
      return "go";
    case Reply::Kind::kCancelled:
      return "cancelled";
    case Reply::Kind::kNumber:
    case Reply::Kind::kNonce:
      return Concat(reply.number);
    case Reply::Kind::kValue:
      return Concat("'", std::string(reply.value), "'");
    case Reply::Kind::kPopped:
      return reply.number == 0 ? "0" : Concat(reply.number, " '", std::string(reply.value), "'");
    case Reply::Kind::kRefused:
      return Concat("refused: ", Describe(reply.why));
    case Reply::Kind::kValues:
    case Reply::Kind::kKeys:
      break;
  }
  std::vector<std::string> values(reply.values.begin(), reply.values.end());
  if (reply.kind == Reply::Kind::kKeys)
    std::sort(values.begin(), values.end());  // their order means nothing
  std::string out = "[";
  for (const std::string& value : values) out += Concat(out.size() == 1 ? "'" : " '", value, "'");
  return out + "]";
}

/// ", releases a b", or nothing. Clients have letters as names.
inline std::string Names(const Released& released) {
  std::string out = released.empty() ? "" : ", releases";
  for (const ClientId client : released) out += Concat(' ', static_cast<char>(client));
  return out;
}

/// A store and its clients. Each call returns its whole effect as text: the reply, "-" for silence,
/// and the released clients: "7", "-, releases a b".
class SpokenStore {
 public:
  explicit SpokenStore(const StoreMachineOptions& options = {}) : machine_(options) {}

  std::string Ask(ClientId client, const Request& request) {
    Released released;
    const std::string reply = Words(machine_.Step(client, request, now_, released));
    return reply + Names(released);
  }

  std::string Set(ClientId c, std::string_view key, std::string_view value) {
    return Ask(c, {.op = Op::kSet, .key = key, .value = value});
  }
  std::string CompareSet(ClientId c, std::string_view key, std::string_view expected,
                         std::string_view desired) {
    return Ask(c, {.op = Op::kCompareSet, .key = key, .expected = expected, .value = desired});
  }
  std::string Get(ClientId c, std::string_view key) { return Ask(c, {.op = Op::kGet, .key = key}); }
  std::string Add(ClientId c, std::string_view key, int64_t delta) {
    return Ask(c, {.op = Op::kAdd, .key = key, .number = delta});
  }
  std::string Check(ClientId c, const Keys& keys) {
    return Ask(c, {.op = Op::kCheck, .keys = keys});
  }
  std::string Wait(ClientId c, const Keys& keys) { return Ask(c, {.op = Op::kWait, .keys = keys}); }
  std::string Cancel(ClientId c) { return Ask(c, {.op = Op::kCancelWait}); }
  std::string NumKeys(ClientId c) { return Ask(c, {.op = Op::kGetNumKeys}); }
  std::string Delete(ClientId c, std::string_view key) {
    return Ask(c, {.op = Op::kDeleteKey, .key = key});
  }
  std::string Append(ClientId c, std::string_view key, std::string_view suffix) {
    return Ask(c, {.op = Op::kAppend, .key = key, .value = suffix});
  }
  std::string MultiGet(ClientId c, const Keys& keys) {
    return Ask(c, {.op = Op::kMultiGet, .keys = keys});
  }
  std::string MultiSet(ClientId c, const Keys& keys, const Keys& values) {
    return Ask(c, {.op = Op::kMultiSet, .keys = keys, .values = values});
  }
  std::string Push(ClientId c, std::string_view key, std::string_view element) {
    return Ask(c, {.op = Op::kQueuePush, .key = key, .value = element});
  }
  std::string Pop(ClientId c, std::string_view key) {
    return Ask(c, {.op = Op::kQueuePop, .key = key});
  }
  std::string Length(ClientId c, std::string_view key) {
    return Ask(c, {.op = Op::kQueueLen, .key = key});
  }
  std::string ListKeys(ClientId c) { return Ask(c, {.op = Op::kListKeys}); }
  std::string Barrier(ClientId c, std::string_view key, int64_t world_size) {
    return Ask(c, {.op = Op::kBarrier, .key = key, .number = world_size});
  }
  std::string Drop(ClientId client) {
    Released released;
    machine_.Drop(client, now_, released);
    return "-" + Names(released);
  }
  std::string Pass(Duration time) {
    now_ = now_ + time;
    Released released;
    while (machine_.Expire(now_, released)) {
    }
    return "-" + Names(released);
  }
  void OpenScope(std::string_view scope) { machine_.OpenScope(scope); }
  /// In pieces of so many keys; returns the number of pieces.
  std::string DropScope(std::string_view scope, size_t piece = kKeysPerPiece) {
    size_t pieces = 1;
    while (machine_.DropScope(scope, piece)) ++pieces;
    return Concat(pieces);
  }
  StoreMachineStats Stats() const { return machine_.Stats(); }

 private:
  Instant now_{1h};
  StoreMachine machine_;
};

inline const std::string kNotANumber = Concat("refused: ", Describe(Reply::Why::kNotANumber));
inline const std::string kOutOfRange = Concat("refused: ", Describe(Reply::Why::kOutOfRange));
inline const std::string kAlreadyParked = Concat("refused: ", Describe(Reply::Why::kAlreadyParked));
inline const std::string kTooMuch = Concat("refused: ", Describe(Reply::Why::kTooMuch));
inline const std::string kMisplaced = Concat("refused: ", Describe(Reply::Why::kMisplaced));

}  // namespace muster::testing_words
