#include "etcd/records.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <limits>
#include <span>
#include <sstream>
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
constexpr std::array<std::string_view, 4> kPolicies = {"natural", "text", "stable", "label"};
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
};

class FieldReader : public FlatJsonReader {
 public:
  static constexpr bool kReads = true;
  using FlatJsonReader::FlatJsonReader;

  void Text(std::string_view name, std::string& value) { value = FlatJsonReader::Text(name); }
  void Number(std::string_view name, int64_t& value, int64_t usual = 0) {
    value = FlatJsonReader::Number(name, usual);
  }
  void Truth(std::string_view name, bool& value) { value = FlatJsonReader::Truth(name); }
  void Required(std::string_view name, int64_t& value, int64_t least, int64_t most) {
    value = NumberWithin(name, least, most);
  }
};

// Other types, as numbers and texts.

template <typename Io>
void RequiredTime(Io& io, std::string_view name, auto& value, int64_t least) {
  int64_t time = Milliseconds(value);
  io.Required(name, time, least, kMillisecondsMax);
  if constexpr (Io::kReads) value = milliseconds(time);
}

template <typename Io>
void Time(Io& io, std::string_view name, auto& value) {
  int64_t time = Milliseconds(value);
  io.Number(name, time);
  if constexpr (Io::kReads) value = milliseconds(std::clamp<int64_t>(time, 0, kMillisecondsMax));
}

/// Not written if there is none.
template <typename Io>
void MaybeTime(Io& io, std::string_view name, auto& value) {
  int64_t time = value ? Milliseconds(*value) : -1;
  io.Number(name, time, -1);
  if constexpr (Io::kReads) {
    value.reset();
    if (time >= 0) value = milliseconds(std::min(time, kMillisecondsMax));
  }
}

template <typename Io>
void Port(Io& io, std::string_view name, auto& value) {
  int64_t port = value;
  io.Number(name, port);
  if constexpr (Io::kReads) {
    if (port < 0 || port > 65'535) io.Fail(Concat("'", name, "' is ", port));
    value = static_cast<uint16_t>(port);
  }
}

/// As a push has it: without a sign.
template <typename Io>
void Lease(Io& io, std::string_view name, auto& value) {
  auto lease = static_cast<int64_t>(value);
  io.Number(name, lease);
  if constexpr (Io::kReads) value = static_cast<uint64_t>(lease);
}

/// One of the words, which are those of the enumerators in their order.
template <typename Io, typename Enum>
void Word(Io& io, std::string_view name, Enum& value, std::span<const std::string_view> words) {
  if constexpr (Io::kReads) {
    std::string word;
    io.Text(name, word);
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) {
      return io.Fail(
          Concat("'", name, "' is '", Printable(word, 32), "', which is not an allowed word"));
    }
    value = static_cast<Enum>(found - words.begin());
  } else {
    io.Text(name, words[static_cast<size_t>(value)]);
  }
}

template <typename Given, typename Record>
concept Of = std::same_as<std::remove_const_t<Given>, Record>;

template <typename Io>
void Fields(Io& io, Of<RunSettings> auto& settings) {
  io.Required("min_nodes", settings.min_nodes, 1, kNoBound);
  io.Required("max_nodes", settings.max_nodes, 1, kNoBound);
  RequiredTime(io, "last_call_ms", settings.last_call, 0);
  RequiredTime(io, "keep_alive_ms", settings.keep_alive_interval, 1);
  io.Required("keep_alive_max_attempt", settings.keep_alive_max_attempt, 1,
              RunSettings::kAttemptsMax);
  Word(io, "rank_policy", settings.policy, kPolicies);
  // Earlier versions wrote none of these.
  Forming forming = settings.forming.value_or(Forming{.rejoin_window = 0s});
  std::optional<Duration> reform_timeout;
  if (settings.forming) reform_timeout = forming.reform_timeout;
  MaybeTime(io, "reform_timeout_ms", reform_timeout);
  Time(io, "rejoin_window_ms", forming.rejoin_window);
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
  Port(io, "port", hello.bootstrap_port);
  io.Number("round", hello.round, -1);
  io.Number("said", member.serial);
  Word(io, "wish", member.request, kRequests);
  Time(io, "join_timeout_ms", member.join_timeout);
  io.Truth("closes", member.closes);
  io.Text("reason", member.close_reason);
  Fields(io, hello.settings);
}

template <typename Io>
void Fields(Io& io, Of<EtcdNotice> auto& notice) {
  auto& [session, lease, serial, stage, is_final, place, lost, waiting, closed, closing] = notice;
  io.Required("session", session, 1, kNoBound);
  io.Number("lease", lease);
  io.Number("said", serial);
  Word(io, "stage", stage.kind, kStages);
  io.Number("stage_round", stage.round);
  io.Number("count", stage.count);
  io.Text("why", stage.why);
  Word(io, "refusal", stage.refusal, kRefusals);
  io.Truth("for_good", is_final);
  io.Number("round", place.round, -1);
  // Rank 0 is written, too.
  io.Number("rank", place.rank, Io::kReads || place.round < 0 ? 0 : -1);
  io.Number("world_size", place.world_size);
  io.Text("addr", place.addr);
  Port(io, "port", place.port);
  io.Text("plan", place.who);
  io.Number("lost", lost.count);
  io.Text("lost_who", lost.who);
  io.Text("lost_why", lost.why);
  io.Number("nodes_waiting", waiting);
  io.Truth("closed", closed);
  io.Truth("graceful", closing.graceful);
  io.Text("closed_by", closing.who);
  Lease(io, "run_lease", place.token);
  if constexpr (Io::kReads) {
    if (kStages[static_cast<size_t>(stage.kind)].empty()) io.Fail("'stage' is missing");
    if (place.round >= 0 && (place.rank < 0 || place.rank >= place.world_size))
      io.Fail(Concat("rank ", place.rank, " of ", place.world_size, " is impossible"));
    place.count = place.world_size;
    lost.round = place.round;
    closing.round = stage.round;
  }
}

template <typename Io>
void Fields(Io& io, Of<EtcdRun> auto& run) {
  Fields(io, run.settings);
  io.Text("settings_of", run.settings_of);
  io.Number("round", run.round, -1);
  io.Number("world_size", run.world_size);
  io.Text("addr", run.addr);
  Port(io, "port", run.port);
  io.Text("plan", run.plan);
  io.Number("parts", run.parts);
  io.Text("last_plan", run.last_plan);
  io.Truth("closed", run.closed);
  io.Text("closed_by", run.closed_by);
}

template <typename Io>
void Fields(Io& io, Of<RunReport> auto& report) {
  Word(io, "phase", report.phase, kPhases);
  io.Number("round", report.round, -1);
  io.Number("world_size", report.world_size);
  io.Number("participants", report.participants);
  io.Number("nodes_waiting", report.waiting);
  io.Number("spare", report.spares);
  io.Number("between_rounds", report.idle);
  MaybeTime(io, "last_call_left_ms", report.last_call_left);
  MaybeTime(io, "held_left_ms", report.held_left);
  io.Text("closed_by", report.closed_by);
  Fields(io, report.settings);
}

// "host_4711_0"
std::optional<Node> ParseNode(std::string_view text) {
  const size_t last = text.rfind('_');
  const size_t middle = last == text.npos || last == 0 ? text.npos : text.rfind('_', last - 1);
  if (middle == text.npos) return std::nullopt;
  const auto pid = ParseWholeNumber(text.substr(middle + 1, last - middle - 1));
  const auto local_id = ParseWholeNumber(text.substr(last + 1));
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
    std::istringstream text(line);
    EtcdPlace place;
    std::string name;
    text >> place.rank >> place.session;
    text.ignore(1);  // a name may begin with a space
    const auto node = std::getline(text, name) ? ParseNode(name) : std::nullopt;
    if (!node) {
      in.Fail(Concat("'", Printable(line, 64), "' is not a rank, a session and a node"));
      break;
    }
    place.node = *node;
    places.push_back(std::move(place));
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
