#include "store/wire/request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "base/bytes.h"
#include "store/wire/layout.h"

namespace muster::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Views = std::vector<std::string_view>;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

/// Scans bytes in an allocation of their own, so that the sanitizer detects a read past their end.
Result<size_t> ScanAlone(RequestScanner& scanner, std::string_view bytes,
                         const RequestLimits& limits = {}) {
  const auto alone = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), alone.get());
  return scanner.Scan({alone.get(), bytes.size()}, limits);
}

Result<size_t> ScanOnce(std::string_view bytes, const RequestLimits& limits = {}) {
  RequestScanner scanner;
  return ScanAlone(scanner, bytes, limits);
}

void ExpectRefused(std::string_view bytes, const RequestLimits& limits = {}) {
  const Result<size_t> size = ScanOnce(bytes, limits);
  ASSERT_FALSE(size) << "accepted as " << *size << " bytes";
  EXPECT_EQ(size.error().code, Code::kProtocol);
}

std::string Encoded(const Request& request) {
  std::string out;
  AppendRequest(out, request);
  return out;
}

/// A request up to and including one length or count, without the bytes that should follow.
std::string Promise(Op op, const std::vector<std::string_view>& fields_before, uint64_t length) {
  std::string out(1, static_cast<char>(op));
  for (const std::string_view field : fields_before) AppendBlob(out, field);
  AppendInt<uint64_t>(out, length);
  return out;
}

/// The same for an entry of a list.
std::string PromiseInList(Op op, const std::vector<std::string_view>& fields_before,
                          uint64_t length) {
  std::string out = Promise(op, {}, 2);
  for (const std::string_view field : fields_before) AppendBlob(out, field);
  AppendInt<uint64_t>(out, length);
  return out;
}

bool Has(Op op, char field) {
  return kLayouts[static_cast<uint8_t>(op)].find(field) != std::string_view::npos;
}

std::vector<Op> OpsWith(char field) {
  std::vector<Op> out;
  for (uint8_t number = 0; number < kOpCount; ++number) {
    if (Has(static_cast<Op>(number), field)) out.push_back(static_cast<Op>(number));
  }
  return out;
}

// --- Finding the end of a request

TEST(RequestScannerTest, NoBytesAreNotARequest) { EXPECT_EQ(*ScanOnce(""), 0u); }

TEST(RequestScannerTest, Item004_BytesBehindARequestAreLeftAlone) {
  const std::string first = Encoded({.op = Op::kSet, .key = "/k", .value = "v"});
  EXPECT_EQ(*ScanOnce(first + Encoded({.op = Op::kPing})), first.size());
  EXPECT_EQ(*ScanOnce(first + "\xff\xff"), first.size());
}

TEST(RequestScannerTest, Item118_LengthFieldsMayComeByteByByte) {
  const std::string bytes =
      Encoded({.op = Op::kCompareSet, .key = "/key", .expected = "", .value = "desired"});
  RequestScanner scanner;
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_EQ(*ScanAlone(scanner, bytes.substr(0, size)), 0u) << size;
  }
  EXPECT_EQ(*ScanAlone(scanner, bytes), bytes.size());
}

TEST(RequestScannerTest, Item117_AKeyIsKeptInMindUntilItsValueComes) {
  const std::string bytes = Encoded({.op = Op::kSet, .key = "/key", .value = "value"});
  RequestScanner scanner;
  EXPECT_EQ(*ScanAlone(scanner, bytes.substr(0, 1 + 8 + 4)), 0u);
  EXPECT_EQ(*ScanAlone(scanner, bytes), bytes.size());
}

TEST(RequestScannerTest, Item064_HalfAMultiSetIsNotARequest) {
  const Views keys = {"/a", "/b"}, values = {"1", "2"};
  const std::string bytes = Encoded({.op = Op::kMultiSet, .keys = keys, .values = values});
  const std::string half = bytes.substr(0, 1 + 8 + 2 * 8 + 3);  // count and the whole first pair
  RequestScanner scanner;
  EXPECT_EQ(*ScanAlone(scanner, half), 0u);
  EXPECT_EQ(*ScanAlone(scanner, bytes), bytes.size());
}

TEST(RequestScannerTest, Item066_AListOfNothingIsComplete) {
  for (const Op op : OpsWith('*')) {
    const std::string bytes = Promise(op, {}, 0);
    EXPECT_EQ(*ScanOnce(bytes), bytes.size()) << Name(op);
    EXPECT_EQ(*ScanOnce(bytes + "\x01\x01\x01"), bytes.size()) << Name(op);
    RequestDecoder decoder;
    EXPECT_THAT(decoder.Decode(bytes).keys, IsEmpty()) << Name(op);
    EXPECT_THAT(decoder.Decode(bytes).values, IsEmpty()) << Name(op);
  }
}

TEST(RequestScannerTest, AScannerIsUsedAgainAfterReset) {
  const std::string set = Encoded({.op = Op::kSet, .key = "/k", .value = "v"});
  RequestScanner scanner;
  EXPECT_EQ(*ScanAlone(scanner, set), set.size());
  scanner.Reset();
  EXPECT_EQ(*ScanAlone(scanner, "\x07"), 1u);
  scanner.Reset();
  EXPECT_EQ(*ScanAlone(scanner, set.substr(0, 12)), 0u);
  scanner.Reset();
  EXPECT_EQ(*ScanAlone(scanner, set), set.size());
}

// The scanner promises that a large request costs no more if it arrives in small steps. Bytes that
// it has passed are overwritten here with lengths that it would refuse: it can only succeed if it
// never reads them again (except the opcode), that is, in linear time.
void ExpectNeverLooksBack(std::string bytes, size_t step) {
  RequestScanner scanner;
  const size_t whole = bytes.size();
  for (size_t size = 1; size < whole; size = std::min(whole, size + step)) {
    const Result<size_t> scanned = scanner.Scan(std::string_view(bytes).substr(0, size), {});
    ASSERT_TRUE(scanned) << scanned.error().message;
    ASSERT_EQ(*scanned, 0u);
    const size_t passed = std::min(scanner.known_bytes(), size);
    ASSERT_GE(passed + 8, size) << "stopped before the last length that it could read";
    std::fill(bytes.begin() + 1, bytes.begin() + static_cast<std::ptrdiff_t>(passed), '\xff');
  }
  const Result<size_t> scanned = scanner.Scan(bytes, {});
  ASSERT_TRUE(scanned) << scanned.error().message;
  EXPECT_EQ(*scanned, whole);
}

TEST(RequestScannerTest, ALargeRequestIsNeverReadTwice) {
  const std::string key(3, 'k'), value(5, 'v');
  const Views keys(1'000, key), values(1'000, value);
  const std::string wait = Encoded({.op = Op::kWait, .keys = keys});
  const std::string multi_set = Encoded({.op = Op::kMultiSet, .keys = keys, .values = values});
  for (const size_t step : {size_t{1}, size_t{7}, size_t{1024}}) {
    ExpectNeverLooksBack(wait, step);
    ExpectNeverLooksBack(multi_set, step);
  }
}

TEST(RequestScannerTest, Item115_AWaitForAsManyKeysAsAllowedIsAccepted) {
  const Views keys(kKeysPerRequestMax, "/k");
  const std::string bytes = Encoded({.op = Op::kWait, .keys = keys});
  ExpectNeverLooksBack(bytes, 1024);
  RequestDecoder decoder;
  EXPECT_EQ(decoder.Decode(bytes).keys.size(), kKeysPerRequestMax);
}

// --- Limits, checked as soon as the length can be read

TEST(RequestScannerTest, Item009_UnknownOpcodesAreRefusedByTheirFirstByte) {
  for (int opcode = kOpCount; opcode < 256; ++opcode) {
    ExpectRefused(std::string(1, static_cast<char>(opcode)));
  }
}

TEST(RequestScannerTest, Item113_AKeyOf8192BytesIsTheLongest) {
  for (const Op op : OpsWith('k')) {
    SCOPED_TRACE(Name(op));
    const auto promise = Has(op, '*') ? PromiseInList : Promise;
    EXPECT_EQ(*ScanOnce(promise(op, {}, 8192)), 0u);
    ExpectRefused(promise(op, {}, 8193));
    // In a list the later entries are checked, too.
    if (Has(op, '*')) ExpectRefused(promise(op, Views(Has(op, 'v') ? 2 : 1, "/k"), 8193));
  }
}

TEST(RequestScannerTest, Item114_AValueOfEightMebibytesIsTheLongest) {
  constexpr uint64_t kMost = 8'388'608;
  for (const Op op : {Op::kSet, Op::kAppend, Op::kQueuePush, Op::kCompareSet}) {
    SCOPED_TRACE(Name(op));
    EXPECT_EQ(*ScanOnce(Promise(op, {"/k"}, kMost)), 0u);
    ExpectRefused(Promise(op, {"/k"}, kMost + 1));
  }
  EXPECT_EQ(*ScanOnce(Promise(Op::kCompareSet, {"/k", "old"}, kMost)), 0u);
  ExpectRefused(Promise(Op::kCompareSet, {"/k", "old"}, kMost + 1));
  EXPECT_EQ(*ScanOnce(PromiseInList(Op::kMultiSet, {"/k", "1", "/l"}, kMost)), 0u);
  ExpectRefused(PromiseInList(Op::kMultiSet, {"/k", "1", "/l"}, kMost + 1));
}

TEST(RequestScannerTest, Item115_ACountOf131072IsTheMost) {
  for (const Op op : OpsWith('*')) {
    SCOPED_TRACE(Name(op));
    EXPECT_EQ(*ScanOnce(Promise(op, {}, 131'072)), 0u);
    ExpectRefused(Promise(op, {}, 131'073));
  }
}

TEST(RequestScannerTest, LengthsThatWouldWrapAreRefused) {
  for (const uint64_t length :
       {uint64_t{1} << 63, (uint64_t{1} << 63) + 1, kHuge, kHuge - 7, kHuge - 8, kHuge - 16}) {
    for (const Op op : OpsWith('k'))
      ExpectRefused((Has(op, '*') ? PromiseInList : Promise)(op, {}, length));
    for (const Op op : OpsWith('*')) ExpectRefused(Promise(op, {}, length));
    ExpectRefused(Promise(Op::kSet, {"/k"}, length));
    ExpectRefused(Promise(Op::kCompareSet, {"/k"}, length));
    ExpectRefused(Promise(Op::kCompareSet, {"/k", ""}, length));
    ExpectRefused(PromiseInList(Op::kMultiSet, {"/k"}, length));
  }
}

TEST(RequestScannerTest, LengthsDoNotWrapWhenTheOperatorLiftsTheLimits) {
  const RequestLimits lifted{.key_bytes_max = kHuge, .value_bytes_max = kHuge, .keys_max = kHuge};
  for (const uint64_t length : {kHuge, kHuge - 7, kHuge - 8, kHuge - 15, uint64_t{1} << 63}) {
    ExpectRefused(Promise(Op::kGet, {}, length), lifted);
    ExpectRefused(Promise(Op::kSet, {"/k"}, length), lifted);
    ExpectRefused(PromiseInList(Op::kWait, {"/k"}, length), lifted);
  }
}

TEST(RequestScannerTest, ALengthIsNotJudgedBeforeItIsThere) {
  const std::string promise = Promise(Op::kSet, {"/k"}, kHuge);
  for (size_t size = 0; size < promise.size(); ++size)
    EXPECT_EQ(*ScanOnce(promise.substr(0, size)), 0u) << size;
}

TEST(RequestScannerTest, ARequestOfExactlyTheRequestLimitIsAccepted) {
  const Views keys = {"/k", "/l"}, values = {"", "v"};
  for (uint8_t number = 0; number < kOpCount; ++number) {
    const auto op = static_cast<Op>(number);
    SCOPED_TRACE(Name(op));
    const std::string bytes = Encoded({.op = op,
                                       .key = "/key",
                                       .expected = "old",
                                       .value = "value",
                                       .number = 7,
                                       .keys = keys,
                                       .values = values});
    RequestDecoder decoder;
    EXPECT_EQ(RequestBytes(decoder.Decode(bytes)), bytes.size());
    EXPECT_EQ(*ScanOnce(bytes, {.request_bytes_max = bytes.size()}), bytes.size());
    if (bytes.size() > 1) ExpectRefused(bytes, {.request_bytes_max = bytes.size() - 1});
  }
}

TEST(RequestScannerTest, ARequestBeyondTheRequestLimitIsRefusedWithTheLengthThatCrossesIt) {
  const RequestLimits limits{.request_bytes_max = 100};
  const std::string before = PromiseInList(Op::kMultiSet, {"/k", std::string(50, 'v'), "/l"}, 0);
  const uint64_t left = limits.request_bytes_max - before.size();
  EXPECT_EQ(
      *ScanOnce(PromiseInList(Op::kMultiSet, {"/k", std::string(50, 'v'), "/l"}, left), limits),
      0u);
  ExpectRefused(PromiseInList(Op::kMultiSet, {"/k", std::string(50, 'v'), "/l"}, left + 1), limits);
}

// A driver may scan ahead, execute the requests before the bad one, and scan again.
TEST(RequestScannerTest, WhatWasRefusedStaysRefused) {
  const RequestLimits limits{.request_bytes_max = 100};
  for (const std::string& bytes :
       {std::string("\x13"), Promise(Op::kGet, {}, 8193), Promise(Op::kWait, {}, 131'073),
        Promise(Op::kSet, {"/k"}, kHuge), Promise(Op::kSet, {"/k"}, 101)}) {
    RequestScanner scanner;
    EXPECT_FALSE(ScanAlone(scanner, bytes, limits));
    EXPECT_FALSE(ScanAlone(scanner, bytes, limits));
    EXPECT_FALSE(ScanAlone(scanner, bytes + std::string(50, '\0'), limits));
  }
}

TEST(RequestScannerTest, ARefusalNamesOperationLengthAndLimit) {
  EXPECT_EQ(ScanOnce(Promise(Op::kGet, {}, 8193)).error().message,
            "GET: key bytes of 8193, limit 8192");
  // The whole request: its opcode and both fields, including the part that has not arrived yet.
  EXPECT_EQ(ScanOnce(Promise(Op::kSet, {std::string(50, 'k')}, 60), {.request_bytes_max = 100})
                .error()
                .message,
            "SET: request bytes of 127, limit 100");
  const RequestLimits lifted{.value_bytes_max = UINT64_MAX, .request_bytes_max = 100};
  EXPECT_EQ(ScanOnce(Promise(Op::kSet, {"/k"}, UINT64_MAX), lifted).error().message,
            "SET: request bytes of 18446744073709551615, limit 100");
  EXPECT_EQ(ScanOnce("\x13").error().message, "opcode 19, the highest known is 18");
}

// --- Taking a request apart

TEST(RequestDecoderTest, ViewsPointIntoTheBytesThatWereGiven) {
  const std::string bytes = Encoded({.op = Op::kSet, .key = "/key", .value = "value"});
  RequestDecoder decoder;
  const Request request = decoder.Decode(bytes);
  EXPECT_EQ(request.key.data(), bytes.data() + 9);
  EXPECT_EQ(request.value.data(), bytes.data() + 21);
}

TEST(RequestDecoderTest, ListsOfEarlierRequestsStayValid) {
  const Views one = {"/a", "/b"}, two = {"/c"};
  const std::string first = Encoded({.op = Op::kMultiSet, .keys = one, .values = one});
  const std::string second = Encoded({.op = Op::kWait, .keys = two});
  RequestDecoder decoder;
  const Request kept = decoder.Decode(first);
  for (int i = 0; i < 100; ++i) decoder.Decode(second);
  EXPECT_THAT(kept.keys, ElementsAre("/a", "/b"));
  EXPECT_THAT(kept.values, ElementsAre("/a", "/b"));
}

TEST(RequestDecoderTest, ADecoderIsUsedAgainAfterClear) {
  const Views keys = {"/a", "/b"};
  const std::string bytes = Encoded({.op = Op::kCheck, .keys = keys});
  RequestDecoder decoder;
  decoder.Decode(bytes);
  decoder.Clear();
  EXPECT_THAT(decoder.Decode(bytes).keys, ElementsAre("/a", "/b"));
}

TEST(RequestDecoderTest, NumbersKeepTheirSignAndWidth) {
  RequestDecoder decoder;
  EXPECT_EQ(decoder.Decode(Encoded({.op = Op::kPing, .number = 0xffffffff})).number, 0xffffffff);
  for (const int64_t number :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(decoder.Decode(Encoded({.op = Op::kAdd, .key = "/n", .number = number})).number,
              number);
    EXPECT_EQ(decoder.Decode(Encoded({.op = Op::kBarrier, .key = "/n", .number = number})).number,
              number);
  }
}

// --- Lists that are taken apart while they come

TEST(ListReaderTest, SeesWhatTheDecoderSeesWhateverTheFragmentation) {
  const std::vector<std::string_view> keys = {"/a", "", "/ccc"}, values = {"", "12345", "6"};
  for (const Op op : {Op::kCheck, Op::kWait, Op::kMultiGet, Op::kMultiSet}) {
    Request request{.op = op, .keys = keys};
    if (op == Op::kMultiSet) request.values = values;
    std::string bytes;
    AppendRequest(bytes, request);
    const std::string all = bytes + "behind";
    for (size_t piece = 1; piece <= all.size(); ++piece) {
      ListReader reader({});
      std::vector<std::pair<std::string, std::string>> read;
      size_t done = 0;
      for (size_t arrived = piece; !reader.is_complete(); arrived += piece) {
        std::vector<std::pair<std::string_view, std::string_view>> pairs;
        const std::string copy = all.substr(done, std::min(arrived, all.size()) - done);
        const Result<size_t> used = reader.Read(copy, SIZE_MAX, pairs);
        ASSERT_TRUE(used);
        done += *used;
        read.insert(read.end(), pairs.begin(), pairs.end());
      }
      EXPECT_EQ(done, bytes.size());
      EXPECT_EQ(reader.total(), bytes.size());
      ASSERT_EQ(read.size(), keys.size());
      for (size_t i = 0; i < keys.size(); ++i) {
        EXPECT_EQ(read[i].first, keys[i]);
        EXPECT_EQ(read[i].second, op == Op::kMultiSet ? values[i] : "");
      }
    }
  }
}

TEST(ListReaderTest, JudgesAsTheScannerDoes) {
  const RequestLimits limits{
      .key_bytes_max = 8, .value_bytes_max = 16, .keys_max = 3, .request_bytes_max = 64};
  const std::string nine(9, 'k'), seventeen(17, 'v'), eight(8, 'k'), sixteen(16, 'v');
  const std::vector<std::vector<std::string_view>> lists = {
      {nine}, {"a", "b", "c", "d"}, {eight, eight, eight}, {eight, nine}};
  for (const auto& keys : lists) {
    for (const std::string& value : {seventeen, sixteen}) {
      const std::vector<std::string_view> values(keys.size(), value);
      std::string bytes;
      AppendRequest(bytes, {.op = Op::kMultiSet, .keys = keys, .values = values});
      RequestScanner scanner;
      const Result<size_t> scanned = scanner.Scan(bytes, limits);
      std::vector<std::pair<std::string_view, std::string_view>> pairs;
      const Result<size_t> read = ListReader(limits).Read(bytes, SIZE_MAX, pairs);
      ASSERT_EQ(static_cast<bool>(scanned), static_cast<bool>(read));
      if (!scanned) {
        EXPECT_EQ(scanned.error().message, read.error().message);
      }
    }
  }
}

TEST(ListReaderTest, ReadsNoMoreKeysThanItIsAskedFor) {
  const std::vector<std::string_view> keys = {"a", "b", "c"};
  std::string bytes;
  AppendRequest(bytes, {.op = Op::kWait, .keys = keys});
  ListReader reader({});
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  size_t done = *reader.Read(bytes, 2, pairs);
  EXPECT_EQ(pairs.size(), 2u);
  EXPECT_FALSE(reader.is_complete());
  done += *reader.Read(std::string_view(bytes).substr(done), 2, pairs);
  EXPECT_EQ(pairs.size(), 3u);
  EXPECT_TRUE(reader.is_complete());
  EXPECT_EQ(done, bytes.size());
}

TEST(RequestDecoderTest, GivesHashesWhereItHasAHasher) {
  const KeyHasher hasher({.first = 3, .second = 4});
  RequestDecoder decoder(hasher);
  std::string get, wait;
  AppendRequest(get, {.op = Op::kGet, .key = "/k"});
  const std::vector<std::string_view> keys(700, "/k");
  AppendRequest(wait, {.op = Op::kWait, .keys = keys});
  EXPECT_EQ(decoder.Decode(get).hash, hasher.Hash("/k"));
  const Request request = decoder.Decode(wait);
  ASSERT_EQ(request.hashes.size(), 700u);
  EXPECT_EQ(request.hashes[699], hasher.Hash("/k"));
  EXPECT_EQ(RequestDecoder().Decode(get).hash, 0u);
}

}  // namespace
}  // namespace muster::wire
