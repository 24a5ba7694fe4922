#include "etcd/records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <concepts>
#include <limits>
#include <type_traits>

#include "base/flat_json.h"
#include "base/percent.h"
#include "base/text.h"

namespace muster::wire {

namespace {

using std::chrono::milliseconds;

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();
// A value of etcd is at most 1.5 MiB, together with everything else in its transaction.
constexpr size_t kPlanPartBytes = 512 * 1024;
constexpr int64_t kMillisecondsMax = int64_t{100} * 365 * 24 * 3600 * 1000;

// In the order of their enumerators. The words are part of the format.
constexpr std::array<std::string_view, 3> kRequests = {"none", "join", "leave"};
// Of Push::Kind; empty: a push that is no stage.
constexpr std::array<std::string_view, 12> kStages = {"opened", "refused",   "admitted", "waiting",
                                                      "spare",  "complete",  "",         "",
                                                      "",       "timed out", "left",     ""};
constexpr std::array<std::string_view, 5> kRefusals = {"", "settings", "identity", "limit", "past"};
constexpr std::array<std::string_view, 5> kPhases = {"forming", "last call", "complete", "closed",
                                                     "empty"};
constexpr std::array<std::string_view, 4> kRoles = {"joined", "waiting", "spares", "idle"};

// '/' separates keys, and people type them into shells.
bool IsPlain(char c) {
  constexpr std::string_view kAlso = "._:-@,=+";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kAlso.find(c) != kAlso.npos;
}

std::string Escaped(std::string_view text) { return PercentEncoded(text, &IsPlain); }

// One walk over the fields of a record both writes and reads it: with FieldWriter or FieldReader.
// FlatJson leaves out what reads as the same value when it is absent.

class FieldWriter : public FlatJsonWriter {
 public:
  static constexpr bool kReads = false;

  /// Always written.
  void Required(std::string_view name, int64_t value, int64_t least, int64_t) {
    Number(name, value, least - 1);
  }
  void RequiredTime(std::string_view name, Duration value, int64_t least) {
    Number(name, Milliseconds(value), least - 1);
  }
  void Time(std::string_view name, Duration value) { Number(name, Milliseconds(value)); }
  void MaybeTime(std::string_view name, const std::optional<Duration>& value) {
    Number(name, value ? Milliseconds(*value) : -1, -1);
  }
  void Port(std::string_view name, uint16_t value) { Number(name, value); }
  template <typename Enum, size_t kCount>
  void Word(std::string_view name, Enum value, const std::array<std::string_view, kCount>& words) {
    Text(name, words[static_cast<size_t>(value)]);
  }
  void Policy(std::string_view name, RankPolicy value) { Text(name, muster::Name(value)); }
};

class FieldReader : public FlatJsonReader {
 public:
  static constexpr bool kReads = true;
  using FlatJsonReader::FlatJsonReader;

  void Text(std::string_view name, std::string& value) { value = FlatJsonReader::Text(name); }
  void Number(std::string_view name, int64_t& value, int64_t usual = 0) {
    value = FlatJsonReader::Number(name, usual);
  }
  void Required(std::string_view name, int64_t& value, int64_t least, int64_t most) {
    value = NumberWithin(name, least, most);
  }
  void RequiredTime(std::string_view name, Duration& value, int64_t least) {
    value = milliseconds(NumberWithin(name, least, kMillisecondsMax));
  }
  void Time(std::string_view name, Duration& value) {
    const int64_t given = FlatJsonReader::Number(name);
    value = milliseconds(std::clamp<int64_t>(given, 0, kMillisecondsMax));
  }
  void MaybeTime(std::string_view name, std::optional<Duration>& value) {
    const int64_t given = FlatJsonReader::Number(name, -1);
    value.reset();
    if (given >= 0) value = milliseconds(std::min(given, kMillisecondsMax));
  }
  void Port(std::string_view name, uint16_t& value) {
    const int64_t port = FlatJsonReader::Number(name);
    if (port < 0 || port > 65'535) Fail(Concat("'", name, "' is ", port));
    value = static_cast<uint16_t>(port);
  }
  void Truth(std::string_view name, bool& value) { value = FlatJsonReader::Truth(name); }
  template <typename Enum, size_t kCount>
  void Word(std::string_view name, Enum& value, const std::array<std::string_view, kCount>& words) {
    const std::string text = FlatJsonReader::Text(name);
    const auto found = std::ranges::find(words, text);
    if (found == words.end()) {
      return Fail(
          Concat("'", name, "' is '", Printable(text, 32), "', which is not an allowed word"));
    }
    value = static_cast<Enum>(found - words.begin());
  }
  void Policy(std::string_view name, RankPolicy& value) {
    const std::string policy = FlatJsonReader::Text(name);
    const auto known = ParseRankPolicy(policy);
    if (!known) return Fail(Concat("'", name, "' is '", Printable(policy, 32), "'"));
    value = *known;
  }
};

template <typename Given, typename Record>
concept Of = std::same_as<std::remove_const_t<Given>, Record>;

template <typename Io>
void Fields(Io& io, Of<RunSettings> auto& settings) {
  io.Required("min_nodes", settings.min_nodes, 1, kNoBound);
  io.Required("max_nodes", settings.max_nodes, 1, kNoBound);
  io.RequiredTime("last_call_ms", settings.last_call, 0);
  io.RequiredTime("keep_alive_ms", settings.keep_alive_interval, 1);
  io.Required("keep_alive_max_attempt", settings.keep_alive_max_attempt, 1,
              RunSettings::kAttemptsMax);
  io.Policy("rank_policy", settings.policy);
  // Earlier versions wrote none of these.
  Forming forming = settings.forming.value_or(Forming{.rejoin_window = 0s});
  std::optional<Duration> reform_timeout;
  if (settings.forming) reform_timeout = forming.reform_timeout;
  io.MaybeTime("reform_timeout_ms", reform_timeout);
  io.Time("rejoin_window_ms", forming.rejoin_window);
  io.Number("expected", forming.expected);
  if constexpr (Io::kReads) {
    settings.forming.reset();
    if (reform_timeout)
      settings.forming = {*reform_timeout, forming.rejoin_window, forming.expected};
  }
  if constexpr (Io::kReads) settings.grace = 0s;  // a lease has its own
}

template <typename Io>
void Fields(Io& io, Of<EtcdMember> auto& member) {
  auto& hello = member.hello;
  io.Text("addr", hello.node.addr);
  io.Required("pid", hello.node.pid, 0, kNoBound);
  io.Required("id", hello.node.local_id, 0, kNoBound);
  io.Text("label", hello.label);
  io.Port("port", hello.bootstrap_port);
  io.Number("round", hello.round, -1);
  io.Number("said", member.serial);
  io.Word("wish", member.request, kRequests);
  io.Time("join_timeout_ms", member.join_timeout);
  io.Truth("closes", member.closes);
  io.Text("reason", member.close_reason);
  Fields(io, hello.settings);
}

template <typename Io>
void Fields(Io& io, Of<EtcdNotice> auto& notice) {
  io.Required("session", notice.session, 1, kNoBound);
  io.Number("lease", notice.lease);
  io.Number("said", notice.serial);
  io.Word("stage", notice.stage, kStages);
  io.Number("stage_round", notice.stage_round);
  io.Number("count", notice.count);
  io.Text("why", notice.why);
  io.Word("refusal", notice.refusal, kRefusals);
  io.Truth("for_good", notice.is_final);
  io.Number("round", notice.round, -1);
  // Rank 0 is written, too.
  io.Number("rank", notice.rank, Io::kReads || notice.round < 0 ? 0 : -1);
  io.Number("world_size", notice.world_size);
  io.Text("addr", notice.addr);
  io.Port("port", notice.port);
  io.Text("plan", notice.plan);
  io.Number("lost", notice.lost);
  io.Text("lost_who", notice.lost_who);
  io.Text("lost_why", notice.lost_why);
  io.Number("nodes_waiting", notice.waiting);
  io.Truth("closed", notice.closed);
  io.Truth("graceful", notice.graceful);
  io.Text("closed_by", notice.closed_by);
  io.Number("run_lease", notice.run_lease);
  if constexpr (Io::kReads) {
    if (kStages[static_cast<size_t>(notice.stage)].empty()) io.Fail("'stage' is missing");
    if (notice.round >= 0 && (notice.rank < 0 || notice.rank >= notice.world_size))
      io.Fail(Concat("rank ", notice.rank, " of ", notice.world_size, " is impossible"));
  }
}

template <typename Io>
void Fields(Io& io, Of<EtcdRun> auto& run) {
  Fields(io, run.settings);
  io.Text("settings_of", run.settings_of);
  io.Number("round", run.round, -1);
  io.Number("world_size", run.world_size);
  io.Text("addr", run.addr);
  io.Port("port", run.port);
  io.Text("plan", run.plan);
  io.Number("parts", run.parts);
  io.Text("last_plan", run.last_plan);
  io.Truth("closed", run.closed);
  io.Text("closed_by", run.closed_by);
}

template <typename Io>
void Fields(Io& io, Of<RunReport> auto& report) {
  io.Word("phase", report.phase, kPhases);
  io.Number("round", report.round, -1);
  io.Number("world_size", report.world_size);
  io.Number("participants", report.participants);
  io.Number("nodes_waiting", report.waiting);
  io.Number("spare", report.spares);
  io.Number("between_rounds", report.idle);
  io.MaybeTime("last_call_left_ms", report.last_call_left);
  io.MaybeTime("held_left_ms", report.held_left);
  io.Text("closed_by", report.closed_by);
  Fields(io, report.settings);
}

std::optional<int64_t> ToNumber(std::string_view text) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "host_4711_0"
std::optional<Node> ParseNode(std::string_view text) {
  const size_t last = text.rfind('_');
  const size_t middle = last == text.npos || last == 0 ? text.npos : text.rfind('_', last - 1);
  if (middle == text.npos) return std::nullopt;
  const auto pid = ToNumber(text.substr(middle + 1, last - middle - 1));
  const auto local_id = ToNumber(text.substr(last + 1));
  if (!pid || !local_id) return std::nullopt;
  return Node{.addr = std::string(text.substr(0, middle)), .pid = *pid, .local_id = *local_id};
}

template <typename Record>
std::string WriteRecord(const Record& record) {
  FieldWriter out;
  Fields(out, record);
  return out.Take();
}

template <typename Record>
Result<Record> ReadRecord(std::string_view key, std::string_view json) {
  FieldReader in(key, json);
  Record record;
  Fields(in, record);
  MUSTER_CHECK_OK(in.Outcome());
  return record;
}

}  // namespace

EtcdKeys::EtcdKeys(std::string_view prefix, std::string_view run_id)
    : root_(Concat(prefix, "/", Escaped(run_id), "/")) {}

std::optional<std::string> EtcdKeys::RunOf(std::string_view prefix, std::string_view key) {
  if (!key.starts_with(prefix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  const size_t end = key.starts_with('/') ? key.find('/', 1) : key.npos;
  if (end == key.npos || end == 1) return std::nullopt;
  const std::string_view what = key.substr(end + 1);
  if (what != "run" && what != "status" && !what.starts_with("members/")) return std::nullopt;
  return PercentDecoded(key.substr(1, end - 1));
}

std::string EtcdKeys::Member(const Node& node) const {
  return Members() + Escaped(node.ToString());
}

std::string EtcdKeys::Notice(const Node& node) const {
  return Notices() + Escaped(node.ToString());
}

std::string EtcdKeys::Plan(std::string_view plan, size_t part) const {
  return Concat(Plans(), plan, "/", part);
}

std::string Write(const EtcdMember& member) { return WriteRecord(member); }
std::string Write(const EtcdNotice& notice) { return WriteRecord(notice); }
std::string Write(const EtcdRun& run) { return WriteRecord(run); }

Result<EtcdMember> ReadEtcdMember(std::string_view key, std::string_view json) {
  return ReadRecord<EtcdMember>(key, json);
}

Result<EtcdNotice> ReadEtcdNotice(std::string_view key, std::string_view json) {
  return ReadRecord<EtcdNotice>(key, json);
}

Result<EtcdRun> ReadEtcdRun(std::string_view key, std::string_view json) {
  return ReadRecord<EtcdRun>(key, json);
}

std::vector<std::string> WritePlan(const std::vector<EtcdPlace>& places) {
  std::vector<std::string> parts;
  std::vector<std::string> lines;
  size_t bytes = 0;
  const auto finish = [&] {
    FlatJsonWriter out;
    out.Texts("seats", lines);
    parts.push_back(out.Take());
    lines.clear();
    bytes = 0;
  };
  for (const EtcdPlace& place : places) {
    lines.push_back(Concat(place.rank, " ", place.session, " ", place.node.ToString()));
    bytes += lines.back().size() + 4;
    if (bytes >= kPlanPartBytes) finish();
  }
  if (!lines.empty()) finish();
  return parts;
}

Result<std::vector<EtcdPlace>> ReadPlan(std::string_view key, std::string_view json) {
  FlatJsonReader in(key, json);
  std::vector<EtcdPlace> places;
  for (const std::string& line : in.Texts("seats")) {
    const std::string_view text = line;
    const size_t first = text.find(' ');
    const size_t second = first == text.npos ? text.npos : text.find(' ', first + 1);
    const bool whole = second != text.npos;
    const auto rank = whole ? ToNumber(text.substr(0, first)) : std::nullopt;
    const auto session =
        whole ? ToNumber(text.substr(first + 1, second - first - 1)) : std::nullopt;
    const auto node = whole ? ParseNode(text.substr(second + 1)) : std::nullopt;
    if (!rank || !session || !node) {
      in.Fail(Concat("'", Printable(line, 64), "' is not a rank, a session and a node"));
      break;
    }
    places.push_back({.node = *node, .session = *session, .rank = *rank});
  }
  MUSTER_CHECK_OK(in.Outcome());
  return places;
}

std::string WriteLeader(const Node& node, uint64_t token) {
  FlatJsonWriter out;
  return out.Text("node", node.ToString()).Text("token", Concat(token)).Take();
}

std::string WriteStatus(const RunReport& report) {
  FieldWriter out;
  Fields(out, report);
  for (size_t role = 0; role < kRoles.size(); ++role) {
    std::vector<std::string> names;
    for (const MemberReport& member : report.members) {
      if (static_cast<size_t>(member.role) == role) names.push_back(member.node.ToString());
    }
    out.Texts(kRoles[role], names);
  }
  std::vector<std::string> ranks;  // of the nodes in "joined", in their order
  for (const MemberReport& member : report.members) {
    if (member.role == MemberReport::Role::kParticipant && member.rank >= 0)
      ranks.push_back(Concat(member.rank));
  }
  out.Texts("ranks", ranks);
  return out.Take();
}

Result<RunReport> ReadStatus(std::string_view key, std::string_view run_id, std::string_view json) {
  FieldReader in(key, json);
  RunReport report{.id = std::string(run_id)};
  Fields(in, report);
  for (size_t role = 0; role < kRoles.size(); ++role) {
    for (const std::string& name : in.Texts(kRoles[role])) {
      if (const auto node = ParseNode(name))
        report.members.push_back({.node = *node, .role = static_cast<MemberReport::Role>(role)});
    }
  }
  const std::vector<std::string> ranks = in.Texts("ranks");
  const auto joined =
      std::ranges::count(report.members, MemberReport::Role::kParticipant, &MemberReport::role);
  // A forming round has no ranks yet, and earlier versions wrote none.
  for (size_t i = 0; std::ssize(ranks) == joined && i < ranks.size(); ++i)
    report.members[i].rank = ParseWholeNumber(ranks[i]).value_or(-1);
  MUSTER_CHECK_OK(in.Outcome());
  return report;
}

}  // namespace muster::wire
