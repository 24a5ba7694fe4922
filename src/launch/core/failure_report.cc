#include "launch/core/failure_report.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/assert.h"
#include "base/text.h"
#include "base/utf8.h"

namespace muster {

namespace {

constexpr size_t kBorderMax = 60;
constexpr size_t kOutputLineBytesMax = 500;
constexpr size_t kNameBytesMax = 1024;
// The parameters of a sequence that colours a terminal: ESC [ parameters letter.
constexpr std::string_view kParameters = " !\"#$%&'()*+,-./0123456789:;<=>?";
// Peers of a worker that dies without an error file may write theirs before its end is detected.
constexpr uint64_t kSeenLateMax = 100'000;  // microseconds

std::string_view WithoutLastLineEnds(std::string_view text) {
  return text.substr(0, text.find_last_not_of("\r\n") + 1);  // 0 where there is no text
}

/// The width in characters, not bytes.
size_t Width(std::string_view line) {
  size_t width = 0;
  while (!line.empty()) {
    line.remove_prefix(std::max<size_t>(Utf8CharacterBytes(line), 1));
    ++width;
  }
  return width;
}

size_t LongestLine(std::string_view text) {
  size_t longest = 0;
  for (const std::string_view line : Split(text, '\n')) longest = std::max(longest, Width(line));
  return longest;
}

std::string LastLines(std::string_view output) {
  output = WithoutLastLineEnds(output);
  if (output.empty()) return "";
  std::vector<std::string_view> lines = Split(output, '\n');
  if (lines.size() > kLastLinesMax) {
    lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(kLastLinesMax));
  }
  std::string text = "\n  last lines:";
  for (const std::string_view line : lines) {
    const std::string plain = Printable(PlainLine(line, "    "), kOutputLineBytesMax);
    text += plain.empty() ? "\n" : Concat("\n    ", plain);
  }
  return text;
}

/// Continuation lines of a trace are indented by two blanks. The text may come from another node:
/// it must not reach a terminal as a command.
std::string Traceback(const FailureRecord& record) {
  const std::string message = SeveralLines(ShownMessage(record));
  if (!record.is_trace) return message;
  std::string shown;
  for (const char c : WithoutLastLineEnds(message)) {
    shown += c;
    if (c == '\n') shown += "  ";
  }
  return shown;
}

std::string Block(size_t number, const FailureRecord& record, const TimeText& time_text) {
  const std::string file =
      record.error_file.empty() ? "<N/A>" : Printable(record.error_file, kNameBytesMax);
  return Concat("[", number, "]:",                                          //
                "\n  time      : ", time_text(record.time_seconds),         //
                "\n  host      : ", Printable(record.host, kNameBytesMax),  //
                "\n  rank      : ", record.rank, " (local_rank: ", record.local_rank, ")",
                "\n  exitcode  : ", record.code, " (pid: ", record.pid, ")",  //
                "\n  error_file: ", file,                                     //
                "\n  traceback : ", Traceback(record), LastLines(record.output));
}

/// "11 (SIGSEGV)".
std::string SignalText(ExitCode code) {
  const int64_t signal = -int64_t{code};  // wider: the smallest int has no positive counterpart
  return Concat(signal, " (", SignalName(signal), ")");
}

}  // namespace

std::string PlainLine(std::string_view line, std::string_view tab) {
  line = WithoutLastLineEnds(line);
  line.remove_prefix(line.rfind('\r') + 1);  // 0 where there is none
  std::string plain;
  while (!line.empty()) {
    if (line.starts_with("\x1b[")) {
      const size_t end = std::min(line.find_first_not_of(kParameters, 2), line.size());
      if (end == line.size() || (line[end] >= '@' && line[end] <= '~')) {
        line.remove_prefix(std::min(end + 1, line.size()));
        continue;
      }
    }
    plain += line.front() == '\t' ? tab : line.substr(0, 1);
    line.remove_prefix(1);
  }
  return plain;
}

std::string DefaultMessage(ExitCode code, int64_t pid, bool has_output) {
  if (code < 0) return Concat("Signal ", SignalText(code), " received by PID ", pid);
  return Concat(
      "the worker left no error file; how its exceptions get into this report: "
      "https://pytorch.org/docs/stable/elastic/errors.html",
      has_output ? "" : " (--tee 2 or --redirects 2 adds the last lines of its output)");
}

std::string ShownMessage(const FailureRecord& record) {
  const bool nothing = record.message.empty() && record.error_file.empty();
  return nothing ? DefaultMessage(record.code, record.pid, !record.output.empty()) : record.message;
}

bool WroteBefore(const FailureRecord& a, const FailureRecord& b) {
  if (a.was_signalled || a.error_time == 0) return false;
  if (b.error_time != 0) return a.error_time < b.error_time;
  // Unsigned: times of other nodes may be any number.
  return a
      .error_time<b.order&& static_cast<uint64_t>(b.order) - static_cast<uint64_t>(a.error_time)>
          kSeenLateMax;
}

size_t RootCause(std::span<const FailureRecord> records) {
  MUSTER_ASSERT(!records.empty());
  const auto ended_earlier = [](const FailureRecord& a, const FailureRecord& b) {
    return std::tie(a.was_signalled, a.order) < std::tie(b.was_signalled, b.order);
  };
  // Of equal records this returns the first.
  auto cause = std::min_element(records.begin(), records.end(), ended_earlier);
  for (auto other = records.begin(); other != records.end(); ++other) {
    if (WroteBefore(*other, *cause)) cause = other;
  }
  return static_cast<size_t>(cause - records.begin());
}

std::string FailureSummary(const FailureRecord& root) {
  const std::string how =
      root.code < 0 ? Concat("signal ", SignalText(root.code)) : Concat("exit code ", root.code);
  return Concat("rank ", root.rank, " (local rank ", root.local_rank, ", pid ", root.pid, ") on ",
                Printable(root.host, kNameBytesMax), " failed first: ", how);
}

std::string FailureReport(std::string_view entry_point, std::span<const FailureRecord> records,
                          size_t root, const TimeText& time_text) {
  MUSTER_ASSERT(root < records.size());
  const std::string title = Concat(Printable(entry_point, kNameBytesMax), " FAILED");
  std::string others;
  std::string cause;
  size_t longest = Width(title);
  for (size_t i = 0; i < records.size(); ++i) {
    const std::string block = Block(i, records[i], time_text);
    longest = std::max(longest, LongestLine(block));
    (i == root ? cause : others) += block + "\n";
  }
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  const std::string heavy(std::min(longest, kBorderMax), '=');
  const std::string light(heavy.size(), '-');
  return Concat("ChildFailedError: ", FailureSummary(records[root]), "\n\n",  //
                heavy, "\n", title, "\n", light, "\nFailures:\n", others,     //
                light, "\nRoot Cause (first observed failure):\n", cause, heavy, "\n");
}

}  // namespace muster
