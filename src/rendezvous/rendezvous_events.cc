#include "muster/rendezvous_events.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "base/json.h"
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
      return AppendJsonString(out, event.name);
    case kRunId:
      return AppendJsonString(out, event.run_id);
    case kMessage:
      return AppendJsonString(out, event.message);
    case kHostname:
      return AppendJsonString(out, event.hostname);
    case kPid:
      return AppendNumber(out, event.pid);
    case kNodeState:
      return AppendJsonString(out, kStateNames.at(static_cast<size_t>(event.node_state)));
    case kMasterEndpoint:
      return AppendJsonString(out, event.master_endpoint);
    case kRank:
      return AppendNumber(out, event.rank);
    case kLocalId:
      return AppendNumber(out, event.local_id);
    case kErrorTrace:
      return AppendJsonString(out, event.error_trace);
  }
}

NodeState ReadState(JsonReader& in) {
  const std::string text = in.String();
  const auto found = std::find(kStateNames.begin(), kStateNames.end(), text);
  if (found == kStateNames.end()) {
    in.Fail(Concat("node_state '", Printable(text),
                   "'; INIT, RUNNING, SUCCEEDED and FAILED are allowed"));
    return {};
  }
  return static_cast<NodeState>(found - kStateNames.begin());
}

void ReadField(JsonReader& in, RendezvousEvent& event, size_t key) {
  switch (key) {
    case kName:
      event.name = in.String();
      break;
    case kRunId:
      event.run_id = in.String();
      break;
    case kMessage:
      event.message = in.String();
      break;
    case kHostname:
      event.hostname = in.String();
      break;
    case kPid:
      event.pid = in.Integer();
      break;
    case kNodeState:
      event.node_state = ReadState(in);
      break;
    case kMasterEndpoint:
      event.master_endpoint = in.String();
      break;
    case kRank:
      event.rank = in.IntegerOrNull();
      break;
    case kLocalId:
      event.local_id = in.IntegerOrNull();
      break;
    case kErrorTrace:
      event.error_trace = in.String();
      break;
  }
}

size_t ReadKey(JsonReader& in, const std::bitset<kKeys>& seen) {
  const std::string text = in.String();
  const auto found = std::find(kKeyNames.begin(), kKeyNames.end(), text);
  if (found == kKeyNames.end()) {
    in.Fail(Concat("unknown key '", Printable(text), "'"));
    return kKeys;
  }
  const auto key = static_cast<size_t>(found - kKeyNames.begin());
  if (seen[key]) in.Fail(Concat("key '", text, "' for the second time"));
  return key;
}

/// One fwrite to an unbuffered stream is one write(2), and the stream has its own lock: lines of
/// several threads, and of several processes that append to one file, do not mix.
void WriteLine(std::FILE* stream, const RendezvousEvent& event) {
  const std::string line = event.ToJson() + '\n';
  // A full disk costs the event; there is nowhere to report that.
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
  JsonReader in("Rendezvous event", json);
  RendezvousEvent event;
  std::bitset<kKeys> seen;
  in.Take('{');
  if (!in.TryTake('}')) {
    do {
      const size_t key = ReadKey(in, seen);
      in.Take(':');
      if (in.failed()) break;
      ReadField(in, event, key);
      seen.set(key);
    } while (in.TryTake(','));
    in.Take('}');
  }
  in.End();
  for (size_t key = 0; key < kKeys; ++key) {
    if (!seen[key]) in.Fail(Concat("key '", kKeyNames[key], "' is missing"));
  }
  if (in.failed()) throw std::invalid_argument(in.problem());
  return event;
}

RendezvousEventSink EventsToStderr() {
  // Reporting an event must not wait for a console.
  return [](const RendezvousEvent& event) { StandardError().Write(event.ToJson() + '\n'); };
}

RendezvousEventSink EventsToFile(const std::string& path) {
  // "a": the kernel puts every write at the end, whoever else writes. "e": children do not inherit
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
