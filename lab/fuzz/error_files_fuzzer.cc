// What workers write about their end, and what nodes send each other about it. Input is read, or
// refused with a message of one line. What was read survives a copy, with the worker's code in it;
// what is sent arrives; and every report can be made.
//
// An input is the letter f and a file's content, the letter s and what a node has sent, or, after
// any other letter, the fields of some records.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "base/utf8.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "launch/core/failure_report.h"
#include "launch/logs/error_file.h"
#include "launch/logs/failure_json.h"

namespace muster::fuzz {
namespace {

using nlohmann::json;

std::string Noon(int64_t) { return "2026-01-31_12:00:00"; }

/// What a worker with this code would write, read again.
void CheckCopy(const ErrorFile& file, ExitCode code) {
  const Result<ErrorFile> copy = ParseErrorFile(WithErrorCode(file, code));
  FUZZ_CHECK(copy.has_value(), copy ? "" : copy.error().message);
  FUZZ_CHECK(copy->message == file.message);
  FUZZ_CHECK(copy->timestamp == file.timestamp);
  FUZZ_CHECK(copy->is_text == file.is_text);
  json expected = file.content;
  if (!file.is_text && code != 0) expected["message"]["errorCode"] = code;
  FUZZ_CHECK(copy->content == expected, copy->content.dump(), "\n", expected.dump());
  if (file.is_text) FUZZ_CHECK(copy->bytes == file.bytes);
}

void CheckReadablePart(std::string_view bytes) {
  constexpr size_t kBytesMax = 64 * 1024;
  constexpr size_t kLinesMax = 41;
  const std::string part = ReadablePart(bytes);
  FUZZ_CHECK(part.size() <= kBytesMax, part.size());
  size_t lines = 1;
  for (const char c : part) {
    lines += c == '\n';
    FUZZ_CHECK(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
  }
  FUZZ_CHECK(lines <= kLinesMax, lines);
  FUZZ_CHECK(IsUtf8(part));
}

void CheckErrorFile(std::string_view bytes) {
  CheckReadablePart(bytes);
  const Result<ErrorFile> file = ParseErrorFile(bytes);
  if (!file) {
    FUZZ_CHECK(file.error().code == Code::kProtocol);
    return CheckMessage(file.error().message);
  }
  FUZZ_CHECK(IsUtf8(file->message));
  CheckCopy(*file, 0);
  CheckCopy(*file, -11);
}

void CheckRecord(const FailureRecord& record) {
  const FailureRecord sent = FitToSend(record);
  const std::string text = ToJson(record);
  FUZZ_CHECK(text.size() <= kFailureJsonBytesMax, text.size());
  const Result<FailureRecord> arrived = FailureFromJson(text);
  FUZZ_CHECK(arrived.has_value(), text);
  FUZZ_CHECK(*arrived == sent, text);
  FUZZ_CHECK(FitToSend(sent) == sent, text);
  // Valid, short text arrives unchanged.
  if (record.message.size() <= kFailureTextBytesMax) {
    FUZZ_CHECK(sent.message == ReplaceInvalidUtf8(record.message));
  }
}

void CheckReports(const std::vector<FailureRecord>& records) {
  const size_t root = RootCause(records);
  FUZZ_CHECK(root < records.size());
  for (const FailureRecord& record : records) {
    FUZZ_CHECK(record.was_signalled || !records[root].was_signalled);
    FUZZ_CHECK(!WroteBefore(record, records[root]));
  }
  const std::string report = FailureReport("train.py", records, root, Noon);
  FUZZ_CHECK(report.starts_with("ChildFailedError: rank "));
  const std::string cause = Concat("\nRoot Cause (first observed failure):\n[", root, "]:\n");
  FUZZ_CHECK(report.find(cause) != report.npos, report);
  const std::string text = FailureReportJson({.entry_point = "train.py"}, records, root);
  const json read = json::parse(text, nullptr, false);
  FUZZ_CHECK(!read.is_discarded(), text);
  FUZZ_CHECK(read["failures"].size() == records.size());
  FUZZ_CHECK(read["failures"][root] == read["root_cause"]);
}

/// What a node sent is passed on unchanged.
void CheckSent(std::string_view bytes) {
  const Result<FailureRecord> record = FailureFromJson(bytes);
  if (!record) {
    FUZZ_CHECK(record.error().code == Code::kProtocol);
    return CheckMessage(record.error().message);
  }
  CheckRecord(*record);
  CheckReports({*record});
}

FailureRecord RecordFrom(Input& input) {
  FailureRecord record;
  record.code = static_cast<ExitCode>(input.Number<int32_t>());
  record.time_seconds = input.Number<int64_t>();
  record.order = static_cast<int8_t>(input.Byte());
  record.error_time = static_cast<int8_t>(input.Byte());
  record.was_signalled = input.Flag();
  record.is_trace = input.Flag();
  record.rank = record.local_rank = record.pid = input.Byte();
  record.host = input.Text();
  record.error_file = input.Text();
  record.message = input.Text();
  record.output = input.Text();
  return record;
}

void CheckRecords(Input input) {
  constexpr size_t kRecordsMax = 4;
  std::vector<FailureRecord> records;
  do {
    records.push_back(RecordFrom(input));
    CheckRecord(records.back());
  } while (!input.empty() && records.size() < kRecordsMax);
  CheckReports(records);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::Input input(data, size);
  const uint8_t kind = input.Byte();
  if (kind != 'f' && kind != 's') return muster::fuzz::CheckRecords(input), 0;
  const muster::fuzz::ExactCopy bytes(input.Rest());
  (kind == 'f' ? muster::fuzz::CheckErrorFile : muster::fuzz::CheckSent)(bytes.view());
  return 0;
}
