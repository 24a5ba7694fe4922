#include "launch/core/launch_words.h"

#include "base/text.h"
#include "base/trim.h"

namespace muster {

namespace {

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = text.find(at);
    pieces.push_back(text.substr(0, end));
    if (end == text.npos) return pieces;
    text.remove_prefix(end + 1);
  }
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

std::optional<Streams> StreamsOf(std::string_view mask) {
  if (mask.size() != 1 || mask[0] < '0' || mask[0] > '3') return std::nullopt;
  const int bits = mask[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

}  // namespace

Result<NodeCount> ParseNodeCount(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, ':');
  const auto min = ParseWholeNumber(parts.front());
  const auto max = ParseWholeNumber(parts.back());
  if (parts.size() > 2 || !min || !max) {
    return Error{Code::kInvalid, Concat("'", Printable(text),
                                        "' is no number of nodes: write N, or MIN:MAX where nodes "
                                        "may come and go")};
  }
  if (*min < 1 || *min > *max) {
    return Error{Code::kInvalid, Concat("'", Printable(text), "': at least ", *min, " and at most ",
                                        *max, " nodes cannot be; 1 <= MIN <= MAX is needed")};
  }
  return NodeCount{*min, *max};
}

Result<std::vector<Streams>> ParseStreams(std::string_view text, size_t workers) {
  const Error error{
      Code::kInvalid,
      Concat("'", Printable(text),
             "' names no streams: write 0 (none), 1 (stdout), 2 (stderr) or 3 (both), "
             "or WORKER:STREAMS,... as in 0:1,1:3")};
  if (const auto all = StreamsOf(text)) return std::vector<Streams>(workers, *all);
  std::vector<Streams> streams(workers);
  for (const std::string_view pair : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(pair, ':');
    if (parts.size() != 2 || parts[0].empty() || parts[0].size() > 6) return error;
    size_t worker = 0;
    for (const char c : parts[0]) {
      if (!IsDigit(c)) return error;
      worker = 10 * worker + static_cast<size_t>(c - '0');
    }
    const auto mask = StreamsOf(parts[1]);
    if (!mask) return error;
    if (worker < workers) streams[worker] = *mask;  // Others may be meant for larger nodes.
  }
  return streams;
}

Result<std::vector<int64_t>> ParseWorkerList(std::string_view text) {
  std::vector<int64_t> workers;
  if (text.empty()) return workers;
  for (const std::string_view item : Split(text, ',')) {
    const auto worker = ParseWholeNumber(item);
    if (!worker) {
      return Error{
          Code::kInvalid,
          Concat("'", Printable(text), "' is no list of local ranks: write 0,2 for two of them")};
    }
    workers.push_back(*worker);
  }
  return workers;
}

std::vector<std::string> ParseNeedles(std::string_view text) {
  std::vector<std::string> needles;
  if (text.empty()) return needles;
  needles.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      needles.back() += text[i];
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      needles.back() += ',';
      ++i;
    } else {
      needles.emplace_back();
    }
  }
  return needles;
}

std::string Substituted(std::string_view text, const std::map<std::string, std::string>& values) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    const bool braced = i + 1 < text.size() && text[i + 1] == '{';
    const size_t begin = i + (braced ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && (IsLetter(text[end]) || (end > begin && IsDigit(text[end])))) ++end;
    const bool whole = !braced || (end < text.size() && text[end] == '}');
    const auto value = values.find(std::string(text.substr(begin, end - begin)));
    if (!whole || value == values.end()) {
      out += '$';  // What follows is text like any other.
      continue;
    }
    out += value->second;
    i = braced ? end : end - 1;
  }
  return out;
}

Result<std::string> OnlyDeviceOf(size_t worker, const std::optional<std::string>& visible) {
  if (!visible) return Concat(worker);
  const std::vector<std::string_view> devices = Split(*visible, ',');
  if (visible->empty() || worker >= devices.size()) {
    return Error{Code::kInvalid,
                 Concat("CUDA_VISIBLE_DEVICES='", Printable(*visible), "' names ",
                        visible->empty() ? 0 : devices.size(), " devices, and worker ", worker,
                        " is to have one of its own")};
  }
  return std::string(Trim(devices[worker]));
}

}  // namespace muster
