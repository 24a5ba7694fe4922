#include "load/dialect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/bytes.h"
#include "store/wire/request_reader.h"

namespace muster::load {
namespace {

constexpr uint64_t kSeed = 7;

/// Reads a reply in pieces of `step` bytes. The verdict must not depend on `step`.
ReplyStep Feed(const Script& script, uint32_t key, const std::string& reply, size_t step) {
  ReplyPlace place;
  ReplyStep verdict = ReplyStep::kMore;
  size_t at = 0;
  while (at < reply.size()) {
    EXPECT_EQ(verdict, ReplyStep::kMore) << "done before its end, at byte " << at;
    size_t used = 0;
    verdict = script.Read(place, key, std::string_view(reply).substr(at, step), &used);
    if (verdict == ReplyStep::kLost) return verdict;
    EXPECT_EQ(used, std::min(step, reply.size() - at));
    at += used;
  }
  EXPECT_EQ(place.offset, 0u) << "not ready for the next reply";
  return verdict;
}

void ExpectVerdict(ReplyStep wanted, const Script& script, uint32_t key, const std::string& reply) {
  for (size_t step = 1; step <= reply.size(); ++step) {
    EXPECT_EQ(Feed(script, key, reply, step), wanted) << "in pieces of " << step;
  }
}

std::string Request(const Script& script, uint32_t key, size_t step) {
  std::string out;
  std::string piece(step, '\0');
  while (out.size() < script.request_bytes()) {
    const size_t copied = script.CopyRequest(key, out.size(), piece.data(), step);
    out.append(piece, 0, copied);
  }
  return out;
}

std::string GetReply(std::string_view value) {
  std::string out;
  AppendBlob(out, value);
  return out;
}

TEST(KeySpaceTest, KeysAreEquallyLongAndValuesBelongToTheirKeys) {
  const KeySpace space("tag", 1000, 64, kSeed);
  EXPECT_EQ(space.ValueKey(0).size(), space.ValueKey(999).size());
  EXPECT_EQ(space.ValueKey(0).size(), space.CounterKey(999).size());
  EXPECT_NE(space.ValueKey(5), space.CounterKey(5));
  EXPECT_EQ(space.Value(999).size(), 64u);
  EXPECT_NE(space.Value(0), space.Value(1));
  EXPECT_EQ(space.Value(7), KeySpace("other", 1000, 64, kSeed).Value(7));
}

TEST(ScriptTest, TcpStoreRequestsAreWhatTheDecoderReads) {
  const KeySpace space("tag", 10, 100, kSeed);
  for (const LoadOp op : {LoadOp::kGet, LoadOp::kSet, LoadOp::kAdd, LoadOp::kCheck}) {
    const Script script(Protocol::kTcpStore, op, space);
    for (const size_t step : {size_t{1}, size_t{7}, size_t{1000}}) {
      const std::string bytes = Request(script, 3, step);
      wire::RequestDecoder decoder;
      const muster::Request request = decoder.Decode(bytes);
      std::string again;
      wire::AppendRequest(again, request);
      EXPECT_EQ(again, bytes) << Name(op);
      if (op == LoadOp::kSet) {
        EXPECT_EQ(request.value, space.Value(3));
      }
    }
  }
}

TEST(ScriptTest, SetsAreAnsweredForByOnePing) {
  const KeySpace space("tag", 10, 5, kSeed);
  const Script script(Protocol::kTcpStore, LoadOp::kSet, space);
  EXPECT_TRUE(script.one_reply_per_batch());
  EXPECT_EQ(script.closing(), Hello(Protocol::kEcho));
  ExpectVerdict(ReplyStep::kGood, script, 0, HelloAnswer(Protocol::kTcpStore));
  ExpectVerdict(ReplyStep::kLost, script, 0, "????");
}

TEST(ScriptTest, GetRepliesAreJudgedByTheirValue) {
  const KeySpace space("tag", 10, 20, kSeed);
  const Script script(Protocol::kTcpStore, LoadOp::kGet, space);
  ExpectVerdict(ReplyStep::kGood, script, 4, GetReply(space.Value(4)));
  ExpectVerdict(ReplyStep::kWrong, script, 4, GetReply(space.Value(5)));
  ExpectVerdict(ReplyStep::kLost, script, 4, GetReply(space.Value(4).substr(1)));
}

TEST(ScriptTest, NumbersMustBePositive) {
  const KeySpace space("tag", 10, 20, kSeed);
  const auto number = [](int64_t value) {
    std::string out;
    AppendInt(out, value);
    return out;
  };
  const Script store(Protocol::kTcpStore, LoadOp::kAdd, space);
  ExpectVerdict(ReplyStep::kGood, store, 0, number(300));
  ExpectVerdict(ReplyStep::kWrong, store, 0, number(0));
  ExpectVerdict(ReplyStep::kWrong, store, 0, number(-1));
  const Script redis(Protocol::kRedis, LoadOp::kAdd, space);
  ExpectVerdict(ReplyStep::kGood, redis, 0, ":300\r\n");
  ExpectVerdict(ReplyStep::kWrong, redis, 0, ":0\r\n");
  ExpectVerdict(ReplyStep::kLost, redis, 0, "-ERR no\r\n");
  ExpectVerdict(ReplyStep::kLost, redis, 0, ":" + std::string(40, '1'));
}

TEST(ScriptTest, RedisIsQueriedInItsOwnProtocol) {
  const KeySpace space("t", 10, 3, kSeed);
  const std::string key = space.ValueKey(1);
  const Script get(Protocol::kRedis, LoadOp::kGet, space);
  EXPECT_EQ(Request(get, 1, 9), "*2\r\n$3\r\nGET\r\n$17\r\n" + key + "\r\n");
  const std::string value(space.Value(1));
  ExpectVerdict(ReplyStep::kGood, get, 1, "$3\r\n" + value + "\r\n");
  ExpectVerdict(ReplyStep::kLost, get, 1, "$-1\r\n");
  const Script set(Protocol::kRedis, LoadOp::kSet, space);
  EXPECT_EQ(Request(set, 1, 4), "*3\r\n$3\r\nSET\r\n$17\r\n" + key + "\r\n$3\r\n" + value + "\r\n");
  EXPECT_FALSE(set.one_reply_per_batch());
  ExpectVerdict(ReplyStep::kGood, set, 1, "+OK\r\n");
}

TEST(ScriptTest, EchoesAreTheRequestsThemselves) {
  const KeySpace space("tag", 10, 20, kSeed);
  for (const LoadOp op : {LoadOp::kGet, LoadOp::kAdd, LoadOp::kCheck}) {
    const Script script(Protocol::kEcho, op, space);
    EXPECT_EQ(Request(script, 2, 100), Request(Script(Protocol::kTcpStore, op, space), 2, 100));
    ExpectVerdict(ReplyStep::kGood, script, 2, Request(script, 2, 100));
    ExpectVerdict(ReplyStep::kWrong, script, 2, Request(script, 3, 100));
  }
}

TEST(ScriptTest, OtherWorkHasAnotherHash) {
  const KeySpace space("a", 10, 20, kSeed), same("b", 10, 20, kSeed), other("a", 10, 20, kSeed + 1);
  const auto hash = [](const KeySpace& keys, LoadOp op) {
    return Script(Protocol::kTcpStore, op, keys).WorkHash();
  };
  EXPECT_EQ(hash(space, LoadOp::kGet), hash(same, LoadOp::kGet));
  EXPECT_NE(hash(space, LoadOp::kGet), hash(other, LoadOp::kGet));
  EXPECT_NE(hash(space, LoadOp::kGet), hash(space, LoadOp::kCheck));
}

}  // namespace
}  // namespace muster::load
