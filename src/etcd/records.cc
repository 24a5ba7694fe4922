#include "etcd/records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>

#include "base/flat_json.h"
#include "base/percent.h"
#include "base/text.h"

namespace muster::wire {

namespace {

using std::chrono::milliseconds;

constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
// A value of etcd is at most 1.5 MiB, with everything else in its transaction.
constexpr size_t kPlanPartBytes = 512 * 1024;
constexpr int64_t kMillisecondsMax = int64_t{100} * 365 * 24 * 3600 * 1000;

constexpr std::array<std::string_view, 3> kWishes = {"none", "join", "leave"};
constexpr std::array<std::string_view, 8> kStages = {"opened",   "admitted",  "waiting", "spare",
                                                     "complete", "timed out", "left",    "refused"};
constexpr std::array<std::string_view, 5> kRefusals = {"", "settings", "identity", "limit", "past"};
constexpr std::array<std::string_view, 5> kPhases = {"forming", "last call", "complete", "closed",
                                                     "empty"};
constexpr std::array<std::string_view, 4> kRoles = {"joined", "waiting", "spares", "idle"};

template <typename Enum, size_t kCount>
std::string_view WordOf(const std::array<std::string_view, kCount>& words, Enum value) {
  return words[static_cast<size_t>(value)];
}

template <typename Enum, size_t kCount>
Enum ReadWord(FlatJsonReader& in, std::string_view name,
              const std::array<std::string_view, kCount>& words) {
  const std::string text = in.Text(name);
  const auto found = std::ranges::find(words, text);
  if (found == words.end()) {
    in.Fail(Concat("'", name, "' is '", Printable(text, 32), "', which is none of its words"));
    return Enum{};
  }
  return static_cast<Enum>(found - words.begin());
}

// '/' separates keys, and people type them into shells.
bool IsPlain(char c) {
  constexpr std::string_view kAlso = "._:-@,=+";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kAlso.find(c) != kAlso.npos;
}

std::string Escaped(std::string_view text) { return PercentEncoded(text, &IsPlain); }

void AddSettings(FlatJsonWriter& out, const RunSettings& settings) {
  out.Number("min_nodes", settings.min_nodes)
      .Number("max_nodes", settings.max_nodes)
      .Number("last_call_ms", Milliseconds(settings.last_call), -1)
      .Number("keep_alive_ms", Milliseconds(settings.keep_alive_interval))
      .Number("keep_alive_max_attempt", settings.keep_alive_max_attempt)
      .Text("rank_policy", Name(settings.policy));
}

RunSettings ReadSettings(FlatJsonReader& in) {
  RunSettings settings;
  settings.min_nodes = in.NumberWithin("min_nodes", 1, kAny);
  settings.max_nodes = in.NumberWithin("max_nodes", 1, kAny);
  settings.last_call = milliseconds(in.NumberWithin("last_call_ms", 0, kMillisecondsMax));
  settings.keep_alive_interval =
      milliseconds(in.NumberWithin("keep_alive_ms", 1, kMillisecondsMax));
  settings.keep_alive_max_attempt =
      in.NumberWithin("keep_alive_max_attempt", 1, RunSettings::kAttemptsMax);
  settings.grace = 0s;  // a lease has its own
  const std::string policy = in.Text("rank_policy");
  if (const auto known = ParseRankPolicy(policy)) {
    settings.policy = *known;
  } else {
    in.Fail(Concat("'rank_policy' is '", Printable(policy, 32), "'"));
  }
  return settings;
}

uint16_t ReadPort(FlatJsonReader& in) {
  const int64_t port = in.Number("port");
  if (port < 0 || port > 65'535) in.Fail(Concat("'port' is ", port));
  return static_cast<uint16_t>(port);
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
Result<Record> Checked(const FlatJsonReader& in, Record record) {
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

std::string Write(const EtcdMember& member) {
  const Hello& hello = member.hello;
  FlatJsonWriter out;
  out.Text("addr", hello.node.addr)
      .Number("pid", hello.node.pid, -1)
      .Number("id", hello.node.local_id, -1)
      .Text("label", hello.label)
      .Number("port", hello.bootstrap_port)
      .Number("round", hello.round, -1)
      .Number("said", member.said)
      .Text("wish", WordOf(kWishes, member.wish))
      .Number("join_timeout_ms", Milliseconds(member.join_timeout))
      .Truth("closes", member.closes)
      .Text("reason", member.close_reason);
  AddSettings(out, hello.settings);
  return out.Take();
}

Result<EtcdMember> ReadEtcdMember(std::string_view key, std::string_view json) {
  FlatJsonReader in(key, json);
  EtcdMember member;
  Hello& hello = member.hello;
  hello.node = {.addr = in.Text("addr"),
                .pid = in.NumberWithin("pid", 0, kAny),
                .local_id = in.NumberWithin("id", 0, kAny)};
  hello.label = in.Text("label");
  hello.bootstrap_port = ReadPort(in);
  hello.round = in.Number("round", -1);
  hello.settings = ReadSettings(in);
  member.said = in.Number("said");
  member.wish = ReadWord<EtcdMember::Wish>(in, "wish", kWishes);
  member.join_timeout =
      milliseconds(std::clamp<int64_t>(in.Number("join_timeout_ms"), 0, kMillisecondsMax));
  member.closes = in.Truth("closes");
  member.close_reason = in.Text("reason");
  return Checked(in, std::move(member));
}

std::string Write(const EtcdNotice& notice) {
  FlatJsonWriter out;
  out.Number("session", notice.session)
      .Number("lease", notice.lease)
      .Number("said", notice.said)
      .Text("stage", WordOf(kStages, notice.stage))
      .Number("stage_round", notice.stage_round)
      .Number("count", notice.count)
      .Text("why", notice.why)
      .Text("refusal", WordOf(kRefusals, notice.refusal))
      .Truth("for_good", notice.for_good)
      .Number("round", notice.round, -1)
      .Number("rank", notice.rank, notice.round < 0 ? 0 : -1)
      .Number("world_size", notice.world_size)
      .Text("addr", notice.addr)
      .Number("port", notice.port)
      .Text("plan", notice.plan)
      .Number("lost", notice.lost)
      .Text("lost_who", notice.lost_who)
      .Text("lost_why", notice.lost_why)
      .Number("nodes_waiting", notice.waiting)
      .Truth("closed", notice.closed)
      .Truth("graceful", notice.graceful)
      .Text("closed_by", notice.closed_by)
      .Number("run_lease", notice.run_lease);
  return out.Take();
}

Result<EtcdNotice> ReadEtcdNotice(std::string_view key, std::string_view json) {
  FlatJsonReader in(key, json);
  EtcdNotice notice;
  notice.session = in.NumberWithin("session", 1, kAny);
  notice.lease = in.Number("lease");
  notice.said = in.Number("said");
  notice.stage = ReadWord<EtcdNotice::Stage>(in, "stage", kStages);
  notice.stage_round = in.Number("stage_round");
  notice.count = in.Number("count");
  notice.why = in.Text("why");
  notice.refusal = ReadWord<Push::Refusal>(in, "refusal", kRefusals);
  notice.for_good = in.Truth("for_good");
  notice.round = in.Number("round", -1);
  notice.rank = in.Number("rank");
  notice.world_size = in.Number("world_size");
  notice.addr = in.Text("addr");
  notice.port = ReadPort(in);
  notice.plan = in.Text("plan");
  notice.lost = in.Number("lost");
  notice.lost_who = in.Text("lost_who");
  notice.lost_why = in.Text("lost_why");
  notice.waiting = in.Number("nodes_waiting");
  notice.closed = in.Truth("closed");
  notice.graceful = in.Truth("graceful");
  notice.closed_by = in.Text("closed_by");
  notice.run_lease = in.Number("run_lease");
  if (notice.round >= 0 && (notice.rank < 0 || notice.rank >= notice.world_size))
    in.Fail(Concat("rank ", notice.rank, " of ", notice.world_size, " cannot be"));
  return Checked(in, std::move(notice));
}

std::string Write(const EtcdRun& run) {
  FlatJsonWriter out;
  AddSettings(out, run.settings);
  out.Text("settings_of", run.settings_of)
      .Number("round", run.round, -1)
      .Number("world_size", run.world_size)
      .Text("addr", run.addr)
      .Number("port", run.port)
      .Text("plan", run.plan)
      .Number("parts", run.parts)
      .Text("last_plan", run.last_plan)
      .Truth("closed", run.closed)
      .Text("closed_by", run.closed_by);
  return out.Take();
}

Result<EtcdRun> ReadEtcdRun(std::string_view key, std::string_view json) {
  FlatJsonReader in(key, json);
  EtcdRun run;
  run.settings = ReadSettings(in);
  run.settings_of = in.Text("settings_of");
  run.round = in.Number("round", -1);
  run.world_size = in.Number("world_size");
  run.addr = in.Text("addr");
  run.port = ReadPort(in);
  run.plan = in.Text("plan");
  run.parts = in.Number("parts");
  run.last_plan = in.Text("last_plan");
  run.closed = in.Truth("closed");
  run.closed_by = in.Text("closed_by");
  return Checked(in, std::move(run));
}

std::vector<std::string> WritePlan(const std::vector<EtcdSeat>& seats) {
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
  for (const EtcdSeat& seat : seats) {
    lines.push_back(Concat(seat.rank, " ", seat.session, " ", seat.node.ToString()));
    bytes += lines.back().size() + 4;
    if (bytes >= kPlanPartBytes) finish();
  }
  if (!lines.empty()) finish();
  return parts;
}

Result<std::vector<EtcdSeat>> ReadPlan(std::string_view key, std::string_view json) {
  FlatJsonReader in(key, json);
  std::vector<EtcdSeat> seats;
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
      in.Fail(Concat("'", Printable(line, 64), "' is no rank, session and node"));
      break;
    }
    seats.push_back({.node = *node, .session = *session, .rank = *rank});
  }
  return Checked(in, std::move(seats));
}

std::string WriteLeader(const Node& node, uint64_t token) {
  FlatJsonWriter out;
  return out.Text("node", node.ToString()).Text("token", Concat(token)).Take();
}

std::string WriteStatus(const RunReport& report) {
  FlatJsonWriter out;
  out.Text("phase", WordOf(kPhases, report.phase))
      .Number("round", report.round, -1)
      .Number("world_size", report.world_size)
      .Number("participants", report.participants)
      .Number("nodes_waiting", report.waiting)
      .Number("spare", report.spares)
      .Number("between_rounds", report.idle)
      .Number("last_call_left_ms",
              report.last_call_left ? Milliseconds(*report.last_call_left) : -1, -1)
      .Text("closed_by", report.closed_by);
  AddSettings(out, report.settings);
  for (size_t role = 0; role < kRoles.size(); ++role) {
    std::vector<std::string> names;
    for (const MemberReport& member : report.members) {
      if (static_cast<size_t>(member.role) == role) names.push_back(member.node.ToString());
    }
    out.Texts(kRoles[role], names);
  }
  std::vector<std::string> ranks;  // of those in "joined", in their order
  for (const MemberReport& member : report.members) {
    if (member.role == MemberReport::Role::kParticipant && member.rank >= 0)
      ranks.push_back(Concat(member.rank));
  }
  out.Texts("ranks", ranks);
  return out.Take();
}

Result<RunReport> ReadStatus(std::string_view key, std::string_view run_id, std::string_view json) {
  FlatJsonReader in(key, json);
  RunReport report{.id = std::string(run_id)};
  report.phase = ReadWord<RunReport::Phase>(in, "phase", kPhases);
  report.round = in.Number("round", -1);
  report.world_size = in.Number("world_size");
  report.participants = in.Number("participants");
  report.waiting = in.Number("nodes_waiting");
  report.spares = in.Number("spare");
  report.idle = in.Number("between_rounds");
  report.closed_by = in.Text("closed_by");
  report.settings = ReadSettings(in);
  if (const int64_t left = in.Number("last_call_left_ms", -1); left >= 0)
    report.last_call_left = milliseconds(std::min(left, kMillisecondsMax));
  for (size_t role = 0; role < kRoles.size(); ++role) {
    for (const std::string& name : in.Texts(kRoles[role])) {
      if (const auto node = ParseNode(name))
        report.members.push_back({.node = *node, .role = static_cast<MemberReport::Role>(role)});
    }
  }
  const std::vector<std::string> ranks = in.Texts("ranks");
  const auto joined =
      std::ranges::count(report.members, MemberReport::Role::kParticipant, &MemberReport::role);
  // A round that forms has none yet; nor have earlier versions written any.
  for (size_t i = 0; std::ssize(ranks) == joined && i < ranks.size(); ++i)
    report.members[i].rank = ParseWholeNumber(ranks[i]).value_or(-1);
  return Checked(in, std::move(report));
}

}  // namespace muster::wire
