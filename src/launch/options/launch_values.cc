#include "launch/options/launch_options.h"

#include <algorithm>

#include "base/text.h"
#include "launch/core/signals.h"

namespace muster {

namespace {

std::optional<Streams> StreamsOf(std::string_view mask) {
  if (mask.size() != 1 || mask[0] < '0' || mask[0] > '3') return std::nullopt;
  const int bits = mask[0] - '0';
  return Streams{.out = (bits & 1) != 0, .err = (bits & 2) != 0};
}

/// The options that the backend knows, with a blank before each. Empty: it is not built in.
std::string KeysOf(std::string_view backend) {
  constexpr std::string_view kForming =
      " join_timeout last_call_timeout close_timeout keep_alive_interval keep_alive_max_attempt";
  constexpr std::string_view kSessions = " reform_timeout rejoin_window expected rank_policy label";
  if (backend == "muster") return Concat(kForming, kSessions, " grace is_host");
  if (backend == "c10d")
    return Concat(kForming,
                  " heartbeat_timeout cas_backoff_max_seconds is_host store_type read_timeout");
  if (backend == "static") return " timeout rank";
  if (backend != "etcd" && backend != "etcd-v2") return "";
  return Concat(kForming, kSessions,
                " read_timeout timeout protocol cacert ca_cert cert ssl_cert key ssl_cert_key user "
                "password password_file etcd_prefix");
}

}  // namespace

Result<NodeCount> ParseNodeCount(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, ':');
  const auto min = ParseWholeNumber(parts.front());
  const auto max = ParseWholeNumber(parts.back());
  if (parts.size() > 2 || !min || !max) {
    return MakeError(Code::kInvalid, "'", Printable(text),
                     "' is not a number of nodes: write N, or MIN:MAX for an elastic job");
  }
  if (*min < 1 || *min > *max) {
    return MakeError(Code::kInvalid, "'", Printable(text), "': ", *min, " to ", *max,
                     " nodes; 1 <= MIN <= MAX is required");
  }
  return NodeCount{*min, *max};
}

Result<StreamChoice> ParseStreams(std::string_view text) {
  const Error error{
      Code::kInvalid,
      Concat("'", Printable(text),
             "' names no streams: write 0 (none), 1 (stdout), 2 (stderr) or 3 (both), "
             "or WORKER:STREAMS,... as in 0:1,1:3")};
  if (const auto all = StreamsOf(text)) return StreamChoice{.all = *all};
  StreamChoice choice;
  for (const std::string_view pair : Split(text, ',')) {
    const std::vector<std::string_view> parts = Split(pair, ':');
    if (parts.size() != 2 || parts[0].empty() || parts[0].size() > 6) return error;
    if (!std::ranges::all_of(parts[0], IsDigit)) return error;
    const auto mask = StreamsOf(parts[1]);
    if (!mask) return error;
    choice.by_worker[static_cast<size_t>(*ParseWholeNumber(parts[0]))] = *mask;
  }
  std::erase_if(choice.by_worker, [](const auto& entry) { return entry.second == Streams{}; });
  return choice;
}

Result<std::vector<int64_t>> ParseWorkerList(std::string_view text) {
  std::vector<int64_t> workers;
  if (text.empty()) return workers;
  for (const std::string_view item : Split(text, ',')) {
    const auto worker = ParseWholeNumber(item);
    if (!worker) {
      return MakeError(Code::kInvalid, "'", Printable(text),
                       "' is not a list of local ranks: write 0,2 for two of them");
    }
    workers.push_back(*worker);
  }
  return workers;
}

std::vector<std::string> ParseFilters(std::string_view text) {
  if (text.empty()) return {};
  std::vector<std::string> filters(1);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_doubled = text.substr(i, 2) == ",,";
    if (text[i] == ',' && !is_doubled)
      filters.emplace_back();
    else
      filters.back() += text[i];
    if (is_doubled) ++i;
  }
  return filters;
}

Result<SignalList> ParseSignals(std::string_view text) {
  SignalList list;
  for (const std::string_view item : Split(text, ',')) {
    const std::string_view name = Trim(item);
    const std::optional<int> number = SignalNumber(name);
    if (!number) {
      list.unknown.emplace_back(name);
    } else if (*number == SIGKILL || *number == SIGSTOP) {
      return MakeError(Code::kInvalid, name, " cannot be handled by any program; leave it out");
    } else if (std::ranges::find(list.numbers, *number) == list.numbers.end()) {
      list.numbers.push_back(*number);
    }
  }
  return list;
}

std::optional<std::string> WarningOfKey(std::string_view backend, std::string_view key) {
  const std::string keys = KeysOf(backend);
  if (keys.empty()) return std::nullopt;
  const std::string all = Concat("contact_timeout", keys);  // that one is the launcher's own
  std::vector<std::string> names;
  for (const std::string_view known : Split(all, ' ')) {
    if (known == key) return std::nullopt;
    names.emplace_back(known);
  }
  return Concat("the rendezvous backend '", backend, "' does not know the option '", Printable(key),
                "', which has no effect", DidYouMean(key, names));
}

bool ShowsPassword(std::string_view endpoint) {
  if (const size_t scheme = endpoint.find("://"); scheme != endpoint.npos)
    endpoint.remove_prefix(scheme + 3);
  endpoint = endpoint.substr(0, endpoint.find('/'));
  const size_t at = endpoint.rfind('@');
  return at != endpoint.npos && endpoint.substr(0, at).find(':') != endpoint.npos;
}

}  // namespace muster
