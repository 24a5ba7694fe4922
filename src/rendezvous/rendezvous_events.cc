#include "muster/rendezvous_events.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "base/flat_json.h"
#include "base/text.h"
#include "os/posix/line_writer.h"

namespace muster {

namespace {

enum Key : size_t {
  kName,
  kRunId,
  kMessage,
  kHostname,
  kPid,
  kNodeState,
  kMasterEndpoint,
  kRank,
  kLocalId,
  kErrorTrace,
  kKeys,  // how many
};
constexpr std::array<std::string_view, kKeys> kKeyNames = {
    "name",       "run_id",          "message", "hostname", "pid",
    "node_state", "master_endpoint", "rank",    "local_id", "error_trace"};

constexpr std::array<std::string_view, 4> kStateNames = {"INIT", "RUNNING", "SUCCEEDED", "FAILED"};
static_assert(static_cast<size_t>(NodeState::kFailed) + 1 == kStateNames.size());

void AppendNumber(std::string& out, std::optional<int64_t> number) {
  out += number ? Concat(*number) : "null";
}

void AppendField(std::string& out, const RendezvousEvent& event, size_t key) {
  switch (key) {
    case kName:
      return wire::AppendJsonString(out, event.name);
    case kRunId:
      return wire::AppendJsonString(out, event.run_id);
    case kMessage:
      return wire::AppendJsonString(out, event.message);
    case kHostname:
      return wire::AppendJsonString(out, event.hostname);
    case kPid:
      return AppendNumber(out, event.pid);
    case kNodeState:
      return wire::AppendJsonString(out, kStateNames.at(static_cast<size_t>(event.node_state)));
    case kMasterEndpoint:
      return wire::AppendJsonString(out, event.master_endpoint);
    case kRank:
      return AppendNumber(out, event.rank);
    case kLocalId:
      return AppendNumber(out, event.local_id);
    case kErrorTrace:
      return wire::AppendJsonString(out, event.error_trace);
  }
}

NodeState ReadState(wire::FlatJsonReader& in) {
  const std::string text = in.Text(kKeyNames[kNodeState]);
  const auto found = std::find(kStateNames.begin(), kStateNames.end(), text);
  if (found != kStateNames.end()) return static_cast<NodeState>(found - kStateNames.begin());
  in.Fail(Concat("node_state '", Printable(text),
                 "'; INIT, RUNNING, SUCCEEDED and FAILED are allowed"));
  return {};
}

/// One fwrite to an unbuffered stream is one write(2), and the stream has a lock: lines of several
/// threads, and of several processes that append to one file, do not mix.
void WriteLine(std::FILE* stream, const RendezvousEvent& event) {
  const std::string line = event.ToJson() + '\n';
  // Where the disk is full the event is lost.
  (void)std::fwrite(line.data(), 1, line.size(), stream);
}

}  // namespace

std::string RendezvousEvent::ToJson() const {
  // With the blanks of Python's json module: the same bytes as torchelastic's events.
  std::string out = "{";
  for (size_t key = 0; key < kKeys; ++key) {
    out += Concat(key == 0 ? "\"" : ", \"", kKeyNames[key], "\": ");
    AppendField(out, *this, key);
  }
  out += '}';
  return out;
}

RendezvousEvent RendezvousEvent::FromJson(std::string_view json) {
  using wire::FlatJsonReader;
  FlatJsonReader in("Rendezvous event", json, FlatJsonReader::Nulls::kAllowed);
  in.RequireExactly(kKeyNames);
  RendezvousEvent event{.name = in.Text(kKeyNames[kName]),
                        .run_id = in.Text(kKeyNames[kRunId]),
                        .message = in.Text(kKeyNames[kMessage]),
                        .hostname = in.Text(kKeyNames[kHostname]),
                        .pid = in.Number(kKeyNames[kPid]),
                        .node_state = ReadState(in),
                        .master_endpoint = in.Text(kKeyNames[kMasterEndpoint]),
                        .rank = in.NumberOrNull(kKeyNames[kRank]),
                        .local_id = in.NumberOrNull(kKeyNames[kLocalId]),
                        .error_trace = in.Text(kKeyNames[kErrorTrace])};
  if (const Status outcome = in.Outcome(); !outcome) {
    throw std::invalid_argument(outcome.error().message);
  }
  return event;
}

RendezvousEventSink EventsToStderr() {
  // Does not block the reporting thread: a console may be slow.
  return [](const RendezvousEvent& event) { StandardError().Write(event.ToJson() + '\n'); };
}

RendezvousEventSink EventsToFile(const std::string& path) {
  // "a": the kernel appends every write, also with several writers. "e": children do not inherit
  // it.
  std::FILE* const opened = std::fopen(path.c_str(), "ae");
  if (opened == nullptr) {
    throw std::runtime_error(
        Concat("Rendezvous events cannot be appended to '", Printable(path),
               "': ", std::error_code(errno, std::generic_category()).message()));
  }
  const std::shared_ptr<std::FILE> file(opened, [](std::FILE* stream) { std::fclose(stream); });
  std::setvbuf(opened, nullptr, _IONBF, 0);
  return [file](const RendezvousEvent& event) { WriteLine(file.get(), event); };
}

}  // namespace muster
