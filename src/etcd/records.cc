#include "etcd/records.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <span>
#include <sstream>

#include "base/encoding.h"
#include "base/flat_json.h"

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
constexpr std::array<std::string_view, 6> kRefusals = {"",      "settings", "identity",
                                                       "limit", "past",     "version"};
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

// One walk over the fields of a record both writes and reads it: so the two cannot disagree. What
// reads as the same value when it is absent is left out.
class Fields {
 public:
  explicit Fields(FlatJsonWriter& out) : out_(&out) {}
  explicit Fields(FlatJsonReader& in) : in_(&in) {}

  bool reads() const { return in_ != nullptr; }
  /// Of a walk that reads.
  void Fail(std::string_view problem) { in_->Fail(problem); }

  void Text(std::string_view name, std::string& value) {
    if (in_ != nullptr) value = in_->Text(name);
    if (out_ != nullptr) out_->Text(name, value);
  }
  void Texts(std::string_view name, std::vector<std::string>& values) {
    if (in_ != nullptr) values = in_->Texts(name);
    if (out_ != nullptr) out_->Texts(name, values);
  }
  void Number(std::string_view name, int64_t& value, int64_t usual = 0) {
    if (in_ != nullptr) value = in_->Number(name, usual);
    if (out_ != nullptr) out_->Number(name, value, usual);
  }
  void Truth(std::string_view name, bool& value) {
    if (in_ != nullptr) value = in_->Truth(name);
    if (out_ != nullptr) out_->Truth(name, value);
  }
  /// Always written.
  void Required(std::string_view name, int64_t& value, int64_t least, int64_t most = kNoBound) {
    if (in_ != nullptr) value = in_->NumberWithin(name, least, most);
    if (out_ != nullptr) out_->Number(name, value, least - 1);
  }

  // Other types, as numbers and texts.

  void RequiredTime(std::string_view name, Duration& value, int64_t least) {
    int64_t time = Milliseconds(value);
    Required(name, time, least, kMillisecondsMax);
    if (reads()) value = milliseconds(time);
  }
  void Time(std::string_view name, Duration& value) {
    int64_t time = Milliseconds(value);
    Number(name, time);
    if (reads()) value = milliseconds(std::clamp<int64_t>(time, 0, kMillisecondsMax));
  }
  /// Not written if there is none.
  void MaybeTime(std::string_view name, std::optional<Duration>& value) {
    int64_t time = value ? Milliseconds(*value) : -1;
    Number(name, time, -1);
    if (!reads()) return;
    value.reset();
    if (time >= 0) value = milliseconds(std::min(time, kMillisecondsMax));
  }
  void Port(std::string_view name, uint16_t& value) {
    int64_t port = value;
    Number(name, port);
    if (port < 0 || port > 65'535) Fail(Concat("'", name, "' is ", port));
    value = static_cast<uint16_t>(port);
  }
  /// One of the words, which are those of the enumerators in their order.
  template <typename Enum>
  void Word(std::string_view name, Enum& value, std::span<const std::string_view> words) {
    std::string word(reads() ? "" : words[static_cast<size_t>(value)]);
    Text(name, word);
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) {
      return Fail(
          Concat("'", name, "' is '", Printable(word, 32), "', which is not an allowed word"));
    }
    if (reads()) value = static_cast<Enum>(found - words.begin());
  }

 private:
  FlatJsonWriter* const out_ = nullptr;
  FlatJsonReader* const in_ = nullptr;
};

void Walk(Fields& io, RunSettings& settings) {
  io.Required("min_nodes", settings.min_nodes, 1);
  io.Required("max_nodes", settings.max_nodes, 1);
  io.RequiredTime("last_call_ms", settings.last_call, 0);
  io.RequiredTime("keep_alive_ms", settings.keep_alive_interval, 1);
  io.Required("keep_alive_max_attempt", settings.keep_alive_max_attempt, 1,
              RunSettings::kAttemptsMax);
  io.Word("rank_policy", settings.policy, kPolicies);
  // Earlier versions wrote none of these.
  Forming forming = settings.forming.value_or(Forming{.rejoin_window = 0s});
  std::optional<Duration> reform_timeout;
  if (settings.forming) reform_timeout = forming.reform_timeout;
  io.MaybeTime("reform_timeout_ms", reform_timeout);
  io.Time("rejoin_window_ms", forming.rejoin_window);
  io.Number("expected", forming.expected);
  if (!io.reads()) return;
  settings.forming.reset();
  if (reform_timeout) settings.forming = {*reform_timeout, forming.rejoin_window, forming.expected};
  settings.grace = 0s;  // a lease has its own
}

void Walk(Fields& io, EtcdMember& member) {
  Hello& hello = member.hello;
  io.Text("addr", hello.node.addr);
  io.Required("pid", hello.node.pid, 0);
  io.Required("id", hello.node.local_id, 0);
  io.Text("label", hello.label);
  io.Port("port", hello.bootstrap_port);
  io.Number("round", hello.round, -1);
  io.Number("said", member.serial);
  io.Word("wish", member.request, kRequests);
  io.Time("join_timeout_ms", member.join_timeout);
  io.Truth("closes", member.closes);
  io.Text("reason", member.close_reason);
  Walk(io, hello.settings);
}

void Walk(Fields& io, EtcdNotice& notice) {
  auto& [session, lease, serial, stage, is_final, place, lost, waiting, closed, closing] = notice;
  auto run_lease = static_cast<int64_t>(place.token);
  io.Required("session", session, 1);
  io.Number("lease", lease);
  io.Number("said", serial);
  io.Word("stage", stage.kind, kStages);
  io.Number("stage_round", stage.round);
  io.Number("count", stage.count);
  io.Text("why", stage.why);
  io.Word("refusal", stage.refusal, kRefusals);
  io.Truth("for_good", is_final);
  io.Number("round", place.round, -1);
  // Rank 0 is written, too.
  io.Number("rank", place.rank, io.reads() || place.round < 0 ? 0 : -1);
  io.Number("world_size", place.world_size);
  io.Text("addr", place.addr);
  io.Port("port", place.port);
  io.Text("plan", place.who);
  io.Number("lost", lost.count);
  io.Text("lost_who", lost.who);
  io.Text("lost_why", lost.why);
  io.Number("nodes_waiting", waiting);
  io.Truth("closed", closed);
  io.Truth("graceful", closing.graceful);
  io.Text("closed_by", closing.who);
  io.Number("run_lease", run_lease);
  if (!io.reads()) return;
  if (kStages[static_cast<size_t>(stage.kind)].empty()) io.Fail("'stage' is missing");
  if (place.round >= 0 && (place.rank < 0 || place.rank >= place.world_size))
    io.Fail(Concat("rank ", place.rank, " of ", place.world_size, " is impossible"));
  place.count = place.world_size;
  place.token = static_cast<uint64_t>(run_lease);
  lost.round = place.round;
  closing.round = stage.round;
}

void Walk(Fields& io, EtcdRun& run) {
  Walk(io, run.settings);
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

// Members that are not nodes are skipped.
void Walk(Fields& io, std::vector<MemberReport>& members) {
  for (size_t role = 0; role < kRoles.size(); ++role) {
    std::vector<std::string> names;
    for (const MemberReport& member : members) {
      if (static_cast<size_t>(member.role) == role) names.push_back(member.node.ToString());
    }
    io.Texts(kRoles[role], names);
    for (size_t i = 0; io.reads() && i < names.size(); ++i) {
      if (const auto node = ParseNode(names[i]))
        members.push_back({.node = *node, .role = static_cast<MemberReport::Role>(role)});
    }
  }
  std::vector<std::string> ranks;  // of the nodes in "joined", in their order
  for (const MemberReport& member : members) {
    if (member.role == MemberReport::Role::kParticipant && member.rank >= 0)
      ranks.push_back(Concat(member.rank));
  }
  io.Texts("ranks", ranks);
  const auto joined =
      std::ranges::count(members, MemberReport::Role::kParticipant, &MemberReport::role);
  // A forming round has no ranks yet, and earlier versions wrote none.
  for (size_t i = 0; io.reads() && std::ssize(ranks) == joined && i < ranks.size(); ++i)
    members[i].rank = ParseWholeNumber(ranks[i]).value_or(-1);
}

void Walk(Fields& io, RunReport& report) {
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
  Walk(io, report.settings);
  Walk(io, report.members);
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

template <typename Record>
std::string Write(Record record) {
  FlatJsonWriter out;
  Fields io(out);
  Walk(io, record);
  return out.Take();
}

template <typename Record>
Result<Record> Read(std::string_view key, std::string_view json) {
  FlatJsonReader in(key, json);
  Fields io(in);
  Record record;
  Walk(io, record);
  MUSTER_CHECK_OK(in.Outcome());
  return record;
}

template std::string Write(EtcdMember);
template std::string Write(EtcdNotice);
template std::string Write(EtcdRun);
template std::string Write(RunReport);
template Result<EtcdMember> Read(std::string_view, std::string_view);
template Result<EtcdNotice> Read(std::string_view, std::string_view);
template Result<EtcdRun> Read(std::string_view, std::string_view);
template Result<RunReport> Read(std::string_view, std::string_view);

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

}  // namespace muster::wire
