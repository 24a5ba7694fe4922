#include "store/wire/reply_writer.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "store/core/machine.h"
#include "store/wire/request_reader.h"
#include "support/whole_reply.h"

namespace muster::wire {
namespace {

using test::AppendWhole;
using Views = std::vector<std::string_view>;

/// "00 1f" for bytes, as documents show them.
std::string Dump(std::string_view bytes) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (!out.empty()) out += ' ';
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

std::string Encoded(const Reply& reply) {
  std::string out;
  AppendWhole(out, reply);
  return Dump(out);
}

TEST(ReplyWriterTest, SilentRepliesHaveNoBytes) {
  EXPECT_EQ(Encoded(Reply::None()), "");
  EXPECT_EQ(Encoded(Reply::Refused(Reply::Why::kNotANumber)), "");
}

TEST(ReplyWriterTest, VerdictsAreOneByte) {
  EXPECT_EQ(Encoded(Reply::Of(Reply::Kind::kReady)), "00");
  EXPECT_EQ(Encoded(Reply::Of(Reply::Kind::kNotReady)), "01");
  EXPECT_EQ(Encoded(Reply::Of(Reply::Kind::kStopWaiting)), "00");
  EXPECT_EQ(Encoded(Reply::Of(Reply::Kind::kCancelled)), "01");
}

TEST(ReplyWriterTest, NumbersAreEightBytesAndANonceIsFour) {
  EXPECT_EQ(Encoded(Reply::Number(6)), "06 00 00 00 00 00 00 00");
  EXPECT_EQ(Encoded(Reply::Number(-2)), "fe ff ff ff ff ff ff ff");
  EXPECT_EQ(Encoded(Reply::Number(std::numeric_limits<int64_t>::min())), "00 00 00 00 00 00 00 80");
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kNonce, .number = 0x1234}), "34 12 00 00");
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kNonce, .number = 0xfffffffe}), "fe ff ff ff");
}

TEST(ReplyWriterTest, ValuesCarryTheirLength) {
  EXPECT_EQ(Encoded(Reply::Value("")), "00 00 00 00 00 00 00 00");
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kValue, .number = 1}), "00 00 00 00 00 00 00 00");
  EXPECT_EQ(Encoded(Reply::Value("bar")), "03 00 00 00 00 00 00 00 62 61 72");
  EXPECT_EQ(Encoded(Reply::Value(std::string_view("\0\xff", 2))), "02 00 00 00 00 00 00 00 00 ff");
}

TEST(ReplyWriterTest, PiecesOfLargeValuesAreNotCopied) {
  MemoryAccount account;
  const Piece pieces[] = {MakePiece("ab", account), MakePiece("c", account)};
  const std::vector<ValueView> values = {"x", {pieces, "d", 4}, {pieces, "", 3}};
  const Reply reply{.kind = Reply::Kind::kValues, .values = values};
  std::string text = "before";
  std::vector<PieceAt> apart;
  AppendReply(text, reply, apart);
  ASSERT_EQ(apart.size(), 4u);
  EXPECT_EQ(apart[0].at, 6u + 8 + 1 + 8);
  EXPECT_EQ(apart[1].at, apart[0].at);
  EXPECT_EQ(apart[2].at, apart[0].at + 1 + 8);
  EXPECT_EQ(apart[3].at, text.size());
  EXPECT_EQ(apart[1].piece, pieces[1]);
  EXPECT_EQ(Encoded(reply),
            "01 00 00 00 00 00 00 00 78 04 00 00 00 00 00 00 00 61 62 63 64 "
            "03 00 00 00 00 00 00 00 61 62 63");
}

TEST(ReplyWriterTest, MultiGetHasNoCountAndListKeysHasOne) {
  const std::vector<ValueView> values = {"1", ""};
  const std::string listed = "01 00 00 00 00 00 00 00 31 00 00 00 00 00 00 00 00";
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kValues, .values = values}), listed);
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kKeys, .values = values}),
            "02 00 00 00 00 00 00 00 " + listed);
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kValues}), "");
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kKeys}), "00 00 00 00 00 00 00 00");
}

TEST(ReplyWriterTest, APoppedElementFollowsTheLengthUnlessThatIsZero) {
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kPopped, .number = 0}), "00 00 00 00 00 00 00 00");
  EXPECT_EQ(Encoded({.kind = Reply::Kind::kPopped, .number = 2, .value = ""}),
            "02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00");
}

TEST(ReplyWriterTest, RepliesAreAppended) {
  std::string out;
  AppendWhole(out, Reply::Of(Reply::Kind::kStopWaiting));
  AppendWhole(out, Reply::None());
  AppendWhole(out, Reply::Of(Reply::Kind::kCancelled));
  EXPECT_EQ(Dump(out), "00 01");
}

// --- The worked examples of the specification: what the client sends, and the bytes that it then
// reads

/// Two clients of one store; `One` and `Two` send a request and return the reply, both in hex as on
/// the wire.
class WorkedReplyTest : public ::testing::Test {
 protected:
  std::string One(std::string_view dump) { return Send(ClientId{1}, dump); }
  std::string Two(std::string_view dump) { return Send(ClientId{2}, dump); }
  Released released_;

 private:
  std::string Send(ClientId client, std::string_view dump) {
    std::string bytes, out;
    for (size_t i = 0; i + 1 < dump.size(); i += 3) {
      bytes += static_cast<char>(std::stoi(std::string(dump.substr(i, 2)), nullptr, 16));
    }
    RequestScanner scanner;
    const Result<size_t> size = scanner.Scan(bytes, {});
    if (!size || *size != bytes.size()) return "not one request";
    RequestDecoder decoder;
    released_.clear();
    AppendWhole(out, machine_.Step(client, decoder.Decode(bytes), Instant{}, released_));
    return Dump(out);
  }

  StoreMachine machine_;
};

constexpr std::string_view kSetFooBar =
    "01 04 00 00 00 00 00 00 00 2f 66 6f 6f 03 00 00 00 00 00 00 00 62 61 72";
constexpr std::string_view kGetFoo = "03 04 00 00 00 00 00 00 00 2f 66 6f 6f";

TEST_F(WorkedReplyTest, Item001_PingIsEchoed) { EXPECT_EQ(One("0d 34 12 00 00"), "34 12 00 00"); }

TEST_F(WorkedReplyTest, JoiningWithAWorldSize) {
  const std::string_view add = "04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00";
  EXPECT_EQ(One(add), "01 00 00 00 00 00 00 00");
  EXPECT_EQ(Two(add), "02 00 00 00 00 00 00 00");
  EXPECT_EQ(One("06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 69 6e 69 74 2f"), "00");
  EXPECT_EQ(One("03 05 00 00 00 00 00 00 00 69 6e 69 74 2f"), "01 00 00 00 00 00 00 00 32");
}

TEST_F(WorkedReplyTest, SetWaitGetAndDelete) {
  EXPECT_EQ(One(kGetFoo), "00 00 00 00 00 00 00 00");
  EXPECT_EQ(One(kSetFooBar), "");
  EXPECT_EQ(One("06 01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 2f 66 6f 6f"), "00");
  EXPECT_EQ(One(kGetFoo), "03 00 00 00 00 00 00 00 62 61 72");
  EXPECT_EQ(One("07"), "01 00 00 00 00 00 00 00");
  EXPECT_EQ(One("11"), "01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 2f 66 6f 6f");
  EXPECT_EQ(One("08 04 00 00 00 00 00 00 00 2f 66 6f 6f"), "01 00 00 00 00 00 00 00");
  EXPECT_EQ(One("08 04 00 00 00 00 00 00 00 2f 66 6f 6f"), "00 00 00 00 00 00 00 00");
}

TEST_F(WorkedReplyTest, AddsOfFiveAndMinusTwo) {
  EXPECT_EQ(One("04 04 00 00 00 00 00 00 00 2f 63 74 72 05 00 00 00 00 00 00 00"),
            "05 00 00 00 00 00 00 00");
  EXPECT_EQ(One("04 04 00 00 00 00 00 00 00 2f 63 74 72 fe ff ff ff ff ff ff ff"),
            "03 00 00 00 00 00 00 00");
  EXPECT_EQ(One("03 04 00 00 00 00 00 00 00 2f 63 74 72"), "01 00 00 00 00 00 00 00 33");
}

constexpr std::string_view kWaitAAndBb =
    "06 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 03 00 00 00 00 00 00 00 2f 62 62";
constexpr std::string_view kSetA = "01 02 00 00 00 00 00 00 00 2f 61 00 00 00 00 00 00 00 00";
constexpr std::string_view kSetBb = "01 03 00 00 00 00 00 00 00 2f 62 62 00 00 00 00 00 00 00 00";

TEST_F(WorkedReplyTest, CheckSaysWhetherBothKeysAreThere) {
  const std::string_view check =
      "05 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 03 00 00 00 00 00 00 00 2f 62 62";
  EXPECT_EQ(One(check), "01");
  One(kSetA);
  EXPECT_EQ(One(check), "01");
  One(kSetBb);
  EXPECT_EQ(One(check), "00");
}

TEST_F(WorkedReplyTest, Item049_AWaitIsCancelledWithOneByte) {
  EXPECT_EQ(One(kWaitAAndBb), "");
  EXPECT_EQ(One("0c"), "01");
  Two(kSetA);
  Two(kSetBb);
  EXPECT_TRUE(released_.empty());
}

TEST_F(WorkedReplyTest, AWaitEndsWhenBothKeysAppear) {
  EXPECT_EQ(One(kWaitAAndBb), "");
  Two(kSetBb);
  EXPECT_TRUE(released_.empty());
  Two(kSetA);
  EXPECT_EQ(released_, Released{ClientId{1}});
  EXPECT_EQ(One("0c"), "01");  // the cancel and the answer crossed: the client reads 00 01
}

TEST_F(WorkedReplyTest, CompareSetInItsThreeOutcomes) {
  const std::string_view old_to_new =
      "02 02 00 00 00 00 00 00 00 2f 6b 03 00 00 00 00 00 00 00 6f 6c 64 03 00 00 00 00 00 00 00 "
      "6e 65 77";
  EXPECT_EQ(One(old_to_new), "03 00 00 00 00 00 00 00 6f 6c 64");
  One("01 02 00 00 00 00 00 00 00 2f 6b 02 00 00 00 00 00 00 00 7a 7a");
  EXPECT_EQ(One(old_to_new), "02 00 00 00 00 00 00 00 7a 7a");
  One("01 02 00 00 00 00 00 00 00 2f 6b 03 00 00 00 00 00 00 00 6f 6c 64");
  EXPECT_EQ(One(old_to_new), "03 00 00 00 00 00 00 00 6e 65 77");
}

TEST_F(WorkedReplyTest, CompareSetThatCreates) {
  EXPECT_EQ(
      One("02 02 00 00 00 00 00 00 00 2f 6b 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 76 31"),
      "02 00 00 00 00 00 00 00 76 31");
}

TEST_F(WorkedReplyTest, AppendMultiSetAndMultiGet) {
  EXPECT_EQ(One("09 04 00 00 00 00 00 00 00 2f 6c 6f 67 02 00 00 00 00 00 00 00 78 79"), "");
  EXPECT_EQ(
      One("0b 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31 "
          "02 00 00 00 00 00 00 00 2f 62 03 00 00 00 00 00 00 00 74 77 6f"),
      "");
  EXPECT_EQ(
      One("0a 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 02 00 00 00 00 00 00 00 2f 62"),
      "01 00 00 00 00 00 00 00 31 03 00 00 00 00 00 00 00 74 77 6f");
}

TEST_F(WorkedReplyTest, Item070_AQueueFromPushToEmpty) {
  const std::string_view pop = "0f 02 00 00 00 00 00 00 00 2f 71";
  EXPECT_EQ(One("0e 02 00 00 00 00 00 00 00 2f 71 04 00 00 00 00 00 00 00 6a 6f 62 31"), "");
  EXPECT_EQ(One("10 02 00 00 00 00 00 00 00 2f 71"), "01 00 00 00 00 00 00 00");
  EXPECT_EQ(One(pop), "01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 6a 6f 62 31");
  EXPECT_EQ(One(pop), "00 00 00 00 00 00 00 00");
}

TEST_F(WorkedReplyTest, Item086_ABarrierOfTwo) {
  const std::string_view barrier = "12 02 00 00 00 00 00 00 00 2f 62 02 00 00 00 00 00 00 00";
  EXPECT_EQ(One(barrier), "");
  EXPECT_EQ(Two(barrier), "00");
  EXPECT_EQ(released_, Released{ClientId{1}});
  EXPECT_EQ(One("03 02 00 00 00 00 00 00 00 2f 62"), "01 00 00 00 00 00 00 00 32");
}

}  // namespace
}  // namespace muster::wire
