#include "muster/rendezvous_events.h"

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

std::string RendezvousEvent::ToJson() const {
  using wire::JsonString;
  constexpr std::array<std::string_view, 4> kStates = {"INIT", "RUNNING", "SUCCEEDED", "FAILED"};
  static_assert(static_cast<size_t>(NodeState::kFailed) + 1 == kStates.size());
  const auto number = [](std::optional<int64_t> value) { return value ? Concat(*value) : "null"; };
  wire::FlatJsonWriter out;
  out.Put("name", JsonString(name));
  out.Put("run_id", JsonString(run_id));
  out.Put("message", JsonString(message));
  out.Put("hostname", JsonString(hostname));
  out.Put("pid", Concat(pid));
  out.Put("node_state", JsonString(kStates.at(static_cast<size_t>(node_state))));
  out.Put("master_endpoint", JsonString(master_endpoint));
  out.Put("rank", number(rank));
  out.Put("local_id", number(local_id));
  out.Put("error_trace", JsonString(error_trace));
  return out.Take();
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
  return [file](const RendezvousEvent& event) {
    const std::string line = event.ToJson() + '\n';
    // One fwrite to an unbuffered stream is one write(2), and the stream has a lock: lines of
    // several threads, and of several processes that append to one file, do not mix. If the disk is
    // full the event is lost.
    (void)std::fwrite(line.data(), 1, line.size(), file.get());
  };
}

}  // namespace muster
