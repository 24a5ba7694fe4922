#include "load/dialect.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/prng.h"
#include "base/text.h"
#include "store/wire/layout.h"
#include "store/wire/request_reader.h"

namespace muster::load {

namespace {

constexpr std::array<std::string_view, 4> kOpNames = {"get", "set", "add", "check"};

// The content of PINGs. One value for all: a reply to another request has another length or
// content.
constexpr uint32_t kNonce = 0x68636e62;

void AppendPing(std::string& out) { wire::AppendRequest(out, {.op = Op::kPing, .number = kNonce}); }

std::string Ping() {
  std::string out;
  AppendPing(out);
  return out;
}

std::string Echo() {
  std::string out;
  AppendInt<uint32_t>(out, kNonce);
  return out;
}

/// RESP: an array of strings.
void AppendCommand(std::string& out, std::initializer_list<std::string_view> words) {
  out += Concat('*', words.size(), "\r\n");
  for (const std::string_view word : words) out += Concat('$', word.size(), "\r\n", word, "\r\n");
}

void AppendTcpStoreChore(std::string& out, Chore chore, const KeySpace& space, uint32_t key) {
  const std::string value_key = space.ValueKey(key);
  const std::string counter = space.CounterKey(key);
  switch (chore) {
    case Chore::kStoreValue:
      return wire::AppendRequest(out,
                                 {.op = Op::kSet, .key = value_key, .value = space.Value(key)});
    case Chore::kStoreCounter:
      return wire::AppendRequest(out, {.op = Op::kSet, .key = counter, .value = "0"});
    case Chore::kReadCounter:
      return wire::AppendRequest(out, {.op = Op::kAdd, .key = counter, .number = 0});
    case Chore::kDeleteValue:
      return wire::AppendRequest(out, {.op = Op::kDeleteKey, .key = value_key});
    case Chore::kDeleteCounter:
      return wire::AppendRequest(out, {.op = Op::kDeleteKey, .key = counter});
  }
}

void AppendRedisChore(std::string& out, Chore chore, const KeySpace& space, uint32_t key) {
  switch (chore) {
    case Chore::kStoreValue:
      return AppendCommand(out, {"SET", space.ValueKey(key), space.Value(key)});
    case Chore::kStoreCounter:
      return AppendCommand(out, {"SET", space.CounterKey(key), "0"});
    case Chore::kReadCounter:
      return AppendCommand(out, {"INCRBY", space.CounterKey(key), "0"});
    case Chore::kDeleteValue:
      return AppendCommand(out, {"DEL", space.ValueKey(key)});
    case Chore::kDeleteCounter:
      return AppendCommand(out, {"DEL", space.CounterKey(key)});
  }
}

// FNV-1a: the hash must be the same everywhere; it need not be good.
uint64_t Mix(uint64_t hash, std::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::string_view Name(LoadOp op) { return kOpNames[static_cast<size_t>(op)]; }

Result<LoadOp> ParseLoadOp(std::string_view name) {
  const auto found = std::find(kOpNames.begin(), kOpNames.end(), name);
  if (found != kOpNames.end()) return static_cast<LoadOp>(found - kOpNames.begin());
  return Error{Code::kInvalid, Concat("no operation '", name, "'; there are get, set, add, check")};
}

Result<Protocol> ParseProtocol(std::string_view name) {
  if (name == "tcpstore") return Protocol::kTcpStore;
  if (name == "redis") return Protocol::kRedis;
  return Error{Code::kInvalid, Concat("no protocol '", name, "'; there are tcpstore, redis")};
}

KeySpace::KeySpace(std::string_view tag, uint32_t keys, size_t value_bytes, uint64_t seed)
    : tag_(tag.substr(0, 8)), keys_(keys), value_bytes_(value_bytes) {
  MUSTER_ASSERT(keys > 0);
  Prng prng(seed);
  const size_t bytes = value_bytes + size_t{keys} * kStride;
  pool_.reserve(bytes + sizeof(uint64_t));
  while (pool_.size() < bytes) AppendInt<uint64_t>(pool_, prng.Next());
}

std::string KeySpace::ValueKey(uint32_t key) const {
  char text[48];
  std::snprintf(text, sizeof text, "/bench/%s/v%07u", tag_.c_str(), key);
  return text;
}

std::string KeySpace::CounterKey(uint32_t key) const {
  char text[48];
  std::snprintf(text, sizeof text, "/bench/%s/c%07u", tag_.c_str(), key);
  return text;
}

std::string Hello(Protocol protocol) {
  if (protocol == Protocol::kRedis) return "PING\r\n";
  std::string out;
  if (protocol == Protocol::kTcpStore) {
    wire::AppendRequest(out, {.op = Op::kValidate, .number = wire::kMagic});
  }
  AppendPing(out);
  return out;
}

std::string HelloAnswer(Protocol protocol) {
  if (protocol == Protocol::kRedis) return "+PONG\r\n";
  return protocol == Protocol::kEcho ? Ping() : Echo();
}

void AppendChore(std::string& out, Protocol protocol, Chore chore, const KeySpace& space,
                 uint32_t key) {
  if (protocol == Protocol::kTcpStore) AppendTcpStoreChore(out, chore, space, key);
  if (protocol == Protocol::kRedis) AppendRedisChore(out, chore, space, key);
}

ReplyShape ShapeOf(Protocol protocol, Chore chore) {
  const bool stores = chore == Chore::kStoreValue || chore == Chore::kStoreCounter;
  if (protocol == Protocol::kRedis) return stores ? ReplyShape::kLine : ReplyShape::kNumberLine;
  return stores ? ReplyShape::kNothing : ReplyShape::kNumber;
}

Script::Script(Protocol protocol, LoadOp op, const KeySpace& space) : space_(space) {
  if (protocol == Protocol::kRedis) {
    ScriptRedis(op);
  } else {
    ScriptTcpStore(op);
  }
  if (protocol == Protocol::kEcho) {
    MUSTER_ASSERT(body_bytes_ == 0);  // an echo server has no SET
    shape_ = ReplyShape::kBytes;
    echoed_ = true;
    reply_head_.clear();
    reply_body_bytes_ = head_bytes_;
  }
  MUSTER_ASSERT(heads_.size() % space.keys() == 0);
}

void Script::ScriptTcpStore(LoadOp op) {
  for (uint32_t key = 0; key < space_.keys(); ++key) {
    const std::string name = op == LoadOp::kAdd ? space_.CounterKey(key) : space_.ValueKey(key);
    const std::string_view keys[] = {name};
    if (op == LoadOp::kGet) wire::AppendRequest(heads_, {.op = Op::kGet, .key = name});
    if (op == LoadOp::kAdd) wire::AppendRequest(heads_, {.op = Op::kAdd, .key = name, .number = 1});
    if (op == LoadOp::kCheck) wire::AppendRequest(heads_, {.op = Op::kCheck, .keys = keys});
    if (op == LoadOp::kSet) {
      // The request ends with the length of an empty value; the real length replaces it.
      wire::AppendRequest(heads_, {.op = Op::kSet, .key = name});
      heads_.resize(heads_.size() - sizeof(uint64_t));
      AppendInt<uint64_t>(heads_, space_.value_bytes());
    }
  }
  head_bytes_ = heads_.size() / space_.keys();
  if (op == LoadOp::kGet) {
    AppendInt<uint64_t>(reply_head_, space_.value_bytes());
    reply_body_bytes_ = space_.value_bytes();
  }
  if (op == LoadOp::kAdd) shape_ = ReplyShape::kNumber;
  if (op == LoadOp::kCheck) reply_head_ = std::string(1, '\0');
  if (op == LoadOp::kSet) {
    body_bytes_ = space_.value_bytes();
    closing_ = Ping();
    reply_head_ = Echo();
  }
}

void Script::ScriptRedis(LoadOp op) {
  const std::string value_length = Concat('$', space_.value_bytes(), "\r\n");
  for (uint32_t key = 0; key < space_.keys(); ++key) {
    const std::string name = op == LoadOp::kAdd ? space_.CounterKey(key) : space_.ValueKey(key);
    if (op == LoadOp::kGet) AppendCommand(heads_, {"GET", name});
    if (op == LoadOp::kAdd) AppendCommand(heads_, {"INCR", name});
    if (op == LoadOp::kCheck) AppendCommand(heads_, {"EXISTS", name});
    if (op == LoadOp::kSet) {
      heads_ += Concat("*3\r\n$3\r\nSET\r\n$", name.size(), "\r\n", name, "\r\n", value_length);
    }
  }
  head_bytes_ = heads_.size() / space_.keys();
  if (op == LoadOp::kGet) {
    reply_head_ = value_length;
    reply_body_bytes_ = space_.value_bytes();
    reply_tail_ = "\r\n";
  }
  if (op == LoadOp::kAdd) shape_ = ReplyShape::kNumberLine;
  if (op == LoadOp::kCheck) reply_head_ = ":1\r\n";
  if (op == LoadOp::kSet) {
    body_bytes_ = space_.value_bytes();
    tail_ = "\r\n";
    reply_head_ = "+OK\r\n";
  }
}

size_t Script::CopyRequest(uint32_t key, size_t offset, char* out, size_t room) const {
  size_t copied = 0;
  for (const std::string_view part : {Head(key), Body(key), std::string_view(tail_)}) {
    if (offset >= part.size()) {
      offset -= part.size();
      continue;
    }
    const size_t count = std::min(part.size() - offset, room - copied);
    std::memcpy(out + copied, part.data() + offset, count);
    copied += count;
    offset = 0;
    if (copied == room) break;
  }
  return copied;
}

ReplyStep Script::Read(ReplyPlace& place, uint32_t key, std::string_view bytes,
                       size_t* used) const {
  if (shape_ == ReplyShape::kNumber) return ReadNumber(place, bytes, used);
  if (shape_ == ReplyShape::kNumberLine) return ReadNumberLine(place, bytes, used);
  return ReadBytes(place, key, bytes, used);
}

ReplyStep Script::ReadBytes(ReplyPlace& place, uint32_t key, std::string_view bytes,
                            size_t* used) const {
  const std::string_view parts[] = {reply_head_, ReplyBody(key), reply_tail_};
  size_t start = 0;  // of the part, within the reply
  *used = 0;
  for (const std::string_view& part : parts) {
    const size_t end = start + part.size();
    if (place.offset < end) {
      const size_t from = place.offset - start;
      const size_t count = std::min(part.size() - from, bytes.size() - *used);
      const bool same = std::memcmp(bytes.data() + *used, part.data() + from, count) == 0;
      // After another length or frame than expected, the rest of the stream means nothing. Another
      // value is just wrong.
      if (!same && &part != &parts[1]) return ReplyStep::kLost;
      place.wrong |= !same;
      place.offset += static_cast<uint32_t>(count);
      *used += count;
      if (place.offset < end) return ReplyStep::kMore;
    }
    start = end;
  }
  const bool wrong = place.wrong;
  place.offset = 0;
  place.wrong = false;
  return wrong ? ReplyStep::kWrong : ReplyStep::kGood;
}

ReplyStep Script::ReadNumber(ReplyPlace& place, std::string_view bytes, size_t* used) const {
  constexpr size_t kSize = sizeof(int64_t);
  const size_t count = std::min(kSize - place.offset, bytes.size());
  std::memcpy(place.digits.data() + place.offset, bytes.data(), count);
  *used = count;
  place.offset += static_cast<uint32_t>(count);
  if (place.offset < kSize) return ReplyStep::kMore;
  place.offset = 0;
  return LoadInt<int64_t>(place.digits.data()) > 0 ? ReplyStep::kGood : ReplyStep::kWrong;
}

ReplyStep Script::ReadNumberLine(ReplyPlace& place, std::string_view bytes, size_t* used) const {
  for (*used = 0; *used < bytes.size();) {
    const char byte = bytes[(*used)++];
    if (place.offset == 0 && byte != ':') return ReplyStep::kLost;
    place.digits[place.offset++] = byte;
    if (byte == '\n') {
      place.offset = 0;
      return place.digits[1] != '-' && place.digits[1] != '0' ? ReplyStep::kGood
                                                              : ReplyStep::kWrong;
    }
    if (place.offset == place.digits.size()) return ReplyStep::kLost;
  }
  return ReplyStep::kMore;
}

uint64_t Script::WorkHash() const {
  uint64_t hash = 0xcbf29ce484222325;
  // Keys contain a tag of the run, so only their order and number are hashed.
  hash = Mix(hash, Concat(space_.keys(), ' ', request_bytes(), ' ', reply_head_.size(), ' ',
                          reply_body_bytes_, ' ', closing_.size(), ' ', reply_tail_.size()));
  for (uint32_t key = 0; key < std::min<uint32_t>(space_.keys(), 64); ++key) {
    hash = Mix(hash, Body(key));
    hash = Mix(hash, echoed_ ? std::string_view() : ReplyBody(key));
  }
  return hash;
}

}  // namespace muster::load
