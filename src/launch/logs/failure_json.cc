#include "launch/logs/failure_json.h"

#include <algorithm>
#include <concepts>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/calendar.h"
#include "base/text.h"
#include "base/utf8.h"
#include "launch/logs/error_file.h"

namespace muster {

namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Four texts, of which each byte may need an escape of six.
static_assert(4 * 6 * kFailureTextBytesMax < kFailureJsonBytesMax);

/// Every field once, for both directions.
template <typename Record, typename Visit>
void EachField(Record& record, Visit&& visit) {
  visit("host", record.host);
  visit("rank", record.rank);
  visit("local_rank", record.local_rank);
  visit("pid", record.pid);
  visit("exitcode", record.code);
  visit("time_seconds", record.time_seconds);
  visit("order", record.order);
  visit("error_file", record.error_file);
  visit("error_time", record.error_time);
  visit("message", record.message);
  visit("is_trace", record.is_trace);
  visit("output", record.output);
  visit("was_told", record.was_signalled);
}

OrderedJson Object(const FailureRecord& record) {
  OrderedJson object;
  EachField(record, [&](const char* name, const auto& value) { object[name] = value; });
  return object;
}

bool Take(const Json& value, std::string& out) {
  if (value.is_string()) out = value.get_ref<const std::string&>();
  return value.is_string();
}

bool Take(const Json& value, bool& out) {
  if (value.is_boolean()) out = value.get<bool>();
  return value.is_boolean();
}

template <std::integral Number>
bool Take(const Json& value, Number& out) {
  const std::optional<int64_t> number = WholeNumberOf(value);
  const bool fits = number && std::in_range<Number>(*number);
  if (fits) out = static_cast<Number>(*number);
  return fits;
}

/// Removes the middle: the end of a trace is most useful, then its beginning.
void Shorten(std::string& text) {
  if (!IsUtf8(text)) text = ReplaceInvalidUtf8(text);
  if (text.size() <= kFailureTextBytesMax) return;
  constexpr size_t kHead = kFailureTextBytesMax / 4;
  constexpr size_t kTail = kFailureTextBytesMax / 2;
  const auto [head, tail] = EndsOf(text, kHead, kTail);
  text = Concat(head, "\n... (", HumanBytes(text.size() - head.size() - tail.size()),
                " left out)\n", tail);
}

/// Empty: outside of all years.
std::string UtcTime(int64_t seconds) {
  constexpr int64_t kMicroseconds = 1'000'000;
  constexpr int64_t kTooFar = static_cast<int64_t>(kWallTimeMax) / kMicroseconds + 1;
  return UtcText(WallTime{std::clamp(seconds, -kTooFar, kTooFar) * kMicroseconds}, 0);
}

OrderedJson ReportObject(const FailureRecord& record) {
  OrderedJson object = Object(record);
  const std::string time = UtcTime(record.time_seconds);
  object["time"] = time.empty() ? OrderedJson() : OrderedJson(time);
  object["message"] = ShownMessage(record);
  object["signal"] = nullptr;
  if (record.code < 0) object["signal"] = SignalName(-static_cast<int64_t>(record.code));
  return object;
}

}  // namespace

FailureRecord FitToSend(FailureRecord record) {
  for (std::string* text : {&record.host, &record.error_file, &record.message, &record.output}) {
    Shorten(*text);
  }
  return record;
}

std::string ToJson(const FailureRecord& record) {
  return Object(FitToSend(record)).dump(-1, ' ', true);
}

Result<FailureRecord> FailureFromJson(std::string_view json) {
  const auto wrong = [](std::string_view why) {
    return MakeError(Code::kProtocol, "a node's failure cannot be read: ", why);
  };
  const Result<Json> object = ParseForeignJson(json, kFailureJsonBytesMax);
  if (!object) return wrong(object.error().message);
  if (!object->is_object()) return wrong("it is no object");
  FailureRecord record;
  std::string problem;
  EachField(record, [&](const char* name, auto& value) {
    if (!problem.empty()) return;
    const auto found = object->find(name);
    if (found == object->end()) {
      problem = Concat("it has no \"", std::string_view(name), "\"");
    } else if (!Take(*found, value)) {
      problem = Concat("its \"", std::string_view(name), "\" is of the wrong type, or too large");
    }
  });
  if (!problem.empty()) return wrong(problem);
  return record;
}

bool FailedBefore(std::string_view ours, std::string_view theirs) {
  Result<FailureRecord> a = FailureFromJson(ours);
  const Result<FailureRecord> b = FailureFromJson(theirs);
  if (!a || !b || a->error_time <= 0) return false;
  // The first report stands unless the other file is older by more than clocks may differ.
  a->error_time += std::min(kClockSkewMax, INT64_MAX - a->error_time);
  return WroteBefore(*a, *b);
}

std::string FailureReportJson(const FailedJob& job, std::span<const FailureRecord> records,
                              size_t root) {
  MUSTER_ASSERT(root < records.size());
  OrderedJson report = {{"entry_point", job.entry_point},
                        {"interpreter", job.interpreter},
                        {"root_cause", ReportObject(records[root])},
                        {"failures", OrderedJson::array()},
                        {"node", job.node},
                        {"run_id", job.run_id},
                        {"round", job.round},
                        {"restarts", job.restarts}};
  for (const FailureRecord& record : records) report["failures"].push_back(ReportObject(record));
  // In ASCII: it contains texts of workers and other nodes, and may be shown on terminals.
  return report.dump(2, ' ', true, OrderedJson::error_handler_t::replace) + "\n";
}

std::string LocalTimeText(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm fields = {};
  char text[64];
  const bool known = localtime_r(&time, &fields) != nullptr &&
                     std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &fields) > 0;
  return known ? text : "<N/A>";
}

}  // namespace muster
