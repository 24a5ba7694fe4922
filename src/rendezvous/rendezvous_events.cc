#include "muster/rendezvous_events.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "base/flat_json.h"
#include "base/text.h"
#include "os/posix/line_writer.h"

namespace muster {

namespace {

constexpr std::array<std::string_view, 4> kStateNames = {"INIT", "RUNNING", "SUCCEEDED", "FAILED"};
static_assert(static_cast<size_t>(NodeState::kFailed) + 1 == kStateNames.size());

// The same walk writes and reads the fields.
template <typename Walk, typename Event>
void Fields(Walk&& field, Event& event) {
  field("name", event.name);
  field("run_id", event.run_id);
  field("message", event.message);
  field("hostname", event.hostname);
  field("pid", event.pid);
  field("node_state", event.node_state);
  field("master_endpoint", event.master_endpoint);
  field("rank", event.rank);
  field("local_id", event.local_id);
  field("error_trace", event.error_trace);
}

class Writer {
 public:
  template <typename T>
  void operator()(std::string_view name, const T& value) {
    // With the blanks of Python's json module: the same bytes as torchelastic's events.
    text += Concat(text.empty() ? "{\"" : ", \"", name, "\": ");
    Put(value);
  }

  std::string text;

 private:
  void Put(const std::string& value) { wire::AppendJsonString(text, value); }
  void Put(int64_t number) { text += Concat(number); }
  void Put(std::optional<int64_t> number) { text += number ? Concat(*number) : "null"; }
  void Put(NodeState state) {
    wire::AppendJsonString(text, kStateNames.at(static_cast<size_t>(state)));
  }
};

struct Reader {
  void operator()(std::string_view name, std::string& value) { value = in.Text(name); }
  void operator()(std::string_view name, int64_t& value) { value = in.Number(name); }
  void operator()(std::string_view name, std::optional<int64_t>& value) {
    value = in.NumberOrNull(name);
  }
  void operator()(std::string_view name, NodeState& state) {
    const std::string text = in.Text(name);
    const auto found = std::find(kStateNames.begin(), kStateNames.end(), text);
    if (found == kStateNames.end()) {
      return in.Fail(Concat("node_state '", Printable(text),
                            "'; INIT, RUNNING, SUCCEEDED and FAILED are allowed"));
    }
    state = static_cast<NodeState>(found - kStateNames.begin());
  }

  wire::FlatJsonReader& in;
};

/// One fwrite to an unbuffered stream is one write(2), and the stream has a lock: lines of several
/// threads, and of several processes that append to one file, do not mix.
void WriteLine(std::FILE* stream, const RendezvousEvent& event) {
  const std::string line = event.ToJson() + '\n';
  // Where the disk is full the event is lost.
  (void)std::fwrite(line.data(), 1, line.size(), stream);
}

}  // namespace

std::string RendezvousEvent::ToJson() const {
  Writer out;
  Fields(out, *this);
  return out.text + '}';
}

RendezvousEvent RendezvousEvent::FromJson(std::string_view json) {
  RendezvousEvent event;
  std::vector<std::string_view> names;
  Fields([&](std::string_view name, const auto&) { names.push_back(name); }, event);
  wire::FlatJsonReader in("Rendezvous event", json, wire::FlatJsonReader::Nulls::kAllowed);
  in.RequireExactly(names);
  Fields(Reader{in}, event);
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
