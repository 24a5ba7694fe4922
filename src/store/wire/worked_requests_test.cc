// The worked examples of docs/reference/protocol.md, byte by byte, in both directions.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/wire/layout.h"
#include "store/wire/request_reader.h"

namespace muster::wire {
namespace {

using Views = std::vector<std::string_view>;

/// Bytes from a dump as documents show it: "01 04 00" and so on.
std::string Hex(std::string_view dump) {
  std::string out;
  for (size_t i = 0; i + 1 < dump.size(); i += 3) {
    out += static_cast<char>(std::stoi(std::string(dump.substr(i, 2)), nullptr, 16));
  }
  return out;
}

void ExpectSame(const Request& decoded, const Request& request) {
  EXPECT_EQ(decoded.op, request.op);
  EXPECT_EQ(decoded.key, request.key);
  EXPECT_EQ(decoded.expected, request.expected);
  EXPECT_EQ(decoded.value, request.value);
  EXPECT_EQ(decoded.number, request.number);
  EXPECT_EQ(Views(decoded.keys.begin(), decoded.keys.end()),
            Views(request.keys.begin(), request.keys.end()));
  EXPECT_EQ(Views(decoded.values.begin(), decoded.values.end()),
            Views(request.values.begin(), request.values.end()));
}

void ExpectExample(std::string_view dump, const Request& request) {
  const std::string bytes = Hex(dump);
  std::string encoded;
  AppendRequest(encoded, request);
  EXPECT_EQ(encoded, bytes);

  // Alone in memory: a sanitizer sees a look past the end.
  const auto alone = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), alone.get());
  const std::string_view whole(alone.get(), bytes.size());
  const Result<size_t> size = RequestScanner().Scan(whole, {});
  ASSERT_TRUE(size) << size.error().message;
  ASSERT_EQ(*size, bytes.size());
  RequestDecoder decoder;
  ExpectSame(decoder.Decode(bytes), request);

  Request at_once;
  const bool has_long_list = request.keys.size() > 1;
  EXPECT_EQ(decoder.DecodeWhole(whole, {}, at_once), has_long_list ? 0 : bytes.size());
  if (!has_long_list) ExpectSame(at_once, request);
  for (size_t i = 0; i < whole.size(); ++i) {
    Request part;
    EXPECT_EQ(decoder.DecodeWhole(whole.substr(0, i), {}, part), 0u) << i << " bytes";
  }
  Request beyond;
  EXPECT_EQ(decoder.DecodeWhole(whole, {.request_bytes_max = bytes.size() - 1}, beyond), 0u);
}

TEST(WorkedRequestTest, Item001_ValidateAndPing) {
  ExpectExample("00 ce f7 85 3c", {.op = Op::kValidate, .number = kMagic});
  ExpectExample("0d 34 12 00 00", {.op = Op::kPing, .number = 0x1234});
}

TEST(WorkedRequestTest, JoiningWithAWorldSize) {
  const Views keys = {"init/"};
  ExpectExample("04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00",
                {.op = Op::kAdd, .key = "init/", .number = 1});
  ExpectExample("06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 69 6e 69 74 2f",
                {.op = Op::kWait, .keys = keys});
  ExpectExample("03 05 00 00 00 00 00 00 00 69 6e 69 74 2f", {.op = Op::kGet, .key = "init/"});
}

TEST(WorkedRequestTest, SetAndGet) {
  const Views keys = {"/foo"};
  ExpectExample("01 04 00 00 00 00 00 00 00 2f 66 6f 6f 03 00 00 00 00 00 00 00 62 61 72",
                {.op = Op::kSet, .key = "/foo", .value = "bar"});
  ExpectExample("06 01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 2f 66 6f 6f",
                {.op = Op::kWait, .keys = keys});
  ExpectExample("03 04 00 00 00 00 00 00 00 2f 66 6f 6f", {.op = Op::kGet, .key = "/foo"});
}

TEST(WorkedRequestTest, AddOfPositiveAndNegativeNumbers) {
  ExpectExample("04 04 00 00 00 00 00 00 00 2f 63 74 72 05 00 00 00 00 00 00 00",
                {.op = Op::kAdd, .key = "/ctr", .number = 5});
  ExpectExample("04 04 00 00 00 00 00 00 00 2f 63 74 72 fe ff ff ff ff ff ff ff",
                {.op = Op::kAdd, .key = "/ctr", .number = -2});
}

TEST(WorkedRequestTest, CheckWaitAndCancel) {
  const Views keys = {"/a", "/bb"};
  ExpectExample(
      "05 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 03 00 00 00 00 00 00 00 2f 62 62",
      {.op = Op::kCheck, .keys = keys});
  ExpectExample(
      "06 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 03 00 00 00 00 00 00 00 2f 62 62",
      {.op = Op::kWait, .keys = keys});
  ExpectExample("0c", {.op = Op::kCancelWait});
}

TEST(WorkedRequestTest, CompareSet) {
  ExpectExample(
      "02 02 00 00 00 00 00 00 00 2f 6b 03 00 00 00 00 00 00 00 6f 6c 64 03 00 00 00 00 00 00 00 "
      "6e 65 77",
      {.op = Op::kCompareSet, .key = "/k", .expected = "old", .value = "new"});
  ExpectExample(
      "02 02 00 00 00 00 00 00 00 2f 6b 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 76 31",
      {.op = Op::kCompareSet, .key = "/k", .expected = "", .value = "v1"});
}

TEST(WorkedRequestTest, DeleteCountListAndAppend) {
  ExpectExample("08 04 00 00 00 00 00 00 00 2f 66 6f 6f", {.op = Op::kDeleteKey, .key = "/foo"});
  ExpectExample("07", {.op = Op::kGetNumKeys});
  ExpectExample("11", {.op = Op::kListKeys});
  ExpectExample("09 04 00 00 00 00 00 00 00 2f 6c 6f 67 02 00 00 00 00 00 00 00 78 79",
                {.op = Op::kAppend, .key = "/log", .value = "xy"});
}

TEST(WorkedRequestTest, MultiSetAndMultiGet) {
  const Views keys = {"/a", "/b"}, values = {"1", "two"};
  ExpectExample(
      "0b 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31 "
      "02 00 00 00 00 00 00 00 2f 62 03 00 00 00 00 00 00 00 74 77 6f",
      {.op = Op::kMultiSet, .keys = keys, .values = values});
  ExpectExample(
      "0a 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 02 00 00 00 00 00 00 00 2f 62",
      {.op = Op::kMultiGet, .keys = keys});
}

TEST(WorkedRequestTest, QueuesAndBarrier) {
  ExpectExample("0e 02 00 00 00 00 00 00 00 2f 71 04 00 00 00 00 00 00 00 6a 6f 62 31",
                {.op = Op::kQueuePush, .key = "/q", .value = "job1"});
  ExpectExample("10 02 00 00 00 00 00 00 00 2f 71", {.op = Op::kQueueLen, .key = "/q"});
  ExpectExample("0f 02 00 00 00 00 00 00 00 2f 71", {.op = Op::kQueuePop, .key = "/q"});
  ExpectExample("12 02 00 00 00 00 00 00 00 2f 62 03 00 00 00 00 00 00 00",
                {.op = Op::kBarrier, .key = "/b", .number = 3});
}

}  // namespace
}  // namespace muster::wire
