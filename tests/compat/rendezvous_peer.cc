// One node of muster's rendezvous, driven by lines on standard input: the other half of
// tests/compat/test_rendezvous.py. torch_rendezvous_peer.py is the same with PyTorch's.
//
//   create ENDPOINT RUN_ID MIN MAX LOCAL_ADDR [NAME=VALUE,...]
//   next | waiting | closed | close [REASON] | shutdown | describe | cost | clock | quit
//
// One line of JSON answers each command, {"error": CLASS, "message": TEXT} if it failed. The end of
// the input ends the node without a message to the others.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "muster/rendezvous.h"

// tests/compat/test_clock_skew.py runs this program under faketime. Its own clock_nanosleep()
// measures the monotonic clock with the wall clock's offset, fails, and so turns every pause into a
// busy loop.
extern "C" int clock_nanosleep(clockid_t clock, int flags, const timespec* until, timespec* left) {
  return syscall(SYS_clock_nanosleep, clock, flags, until, left) == 0 ? 0 : errno;
}

namespace {

// --- JSON

std::string Quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (byte < 0x20) {
      json += "\\u00";
      json += kDigits[byte >> 4];
      json += kDigits[byte & 15];
    } else {
      json += c;
    }
  }
  return json + "\"";
}

std::string Json(const std::string& text) { return Quoted(text); }
std::string Json(bool truth) { return truth ? "true" : "false"; }
std::string Json(int64_t number) { return std::to_string(number); }
std::string Json(double number) { return std::to_string(number); }
std::string Json(const std::vector<std::string>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) json += (json.size() > 1 ? ", " : "") + Quoted(text);
  return json + "]";
}

/// {"name": value, ...}
class Object {
 public:
  template <typename T>
  Object& With(std::string_view name, const T& value) {
    json_ += (json_.empty() ? "" : ", ") + Quoted(name) + ": " + Json(value);
    return *this;
  }
  std::string ToString() const { return "{" + json_ + "}"; }

 private:
  std::string json_;
};

// --- Errors

template <typename E>
bool Is(const std::exception& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

struct ErrorClass {
  bool (*is)(const std::exception&);
  std::string_view name;
};

// The first match counts: derived classes come before their base.
constexpr std::array kErrorClasses = {
    ErrorClass{Is<muster::RendezvousClosedError>, "RendezvousClosedError"},
    ErrorClass{Is<muster::RendezvousTimeoutError>, "RendezvousTimeoutError"},
    ErrorClass{Is<muster::RendezvousConnectionError>, "RendezvousConnectionError"},
    ErrorClass{Is<muster::RendezvousStateError>, "RendezvousStateError"},
    ErrorClass{Is<muster::RendezvousGracefulExitError>, "RendezvousGracefulExitError"},
    ErrorClass{Is<muster::RendezvousError>, "RendezvousError"},
    ErrorClass{Is<muster::DistError>, "DistError"},
    ErrorClass{Is<std::invalid_argument>, "ValueError"},
};

std::string ErrorJson(const std::exception& error) {
  std::string name = "Exception";
  for (const ErrorClass& one : kErrorClasses) {
    if (!one.is(error)) continue;
    name = one.name;
    break;
  }
  return Object().With("error", name).With("message", std::string(error.what())).ToString();
}

// --- The node

std::string PhaseName(muster::WaitReport::Phase phase) {
  constexpr std::array<std::string_view, 8> kNames = {
      "idle", "forming", "last_call", "next_round", "spare", "bootstrap", "complete", "closed"};
  return std::string(kNames.at(static_cast<size_t>(phase)));
}

class Peer {
 public:
  /// The answer to one line.
  std::string Answer(const std::string& line) {
    std::istringstream rest(line);
    std::string command;
    rest >> command;
    if (command == "create") return Create(rest);
    if (command == "clock") return Clock();
    if (!handler_) throw std::logic_error("'" + command + "' before 'create'");
    if (command == "next") return Next();
    if (command == "waiting") return Object().With("waiting", Waiting()).ToString();
    if (command == "closed") return Object().With("closed", handler_->IsClosed()).ToString();
    if (command == "close") return Close(rest);
    if (command == "shutdown") return Object().With("done", handler_->Shutdown()).ToString();
    if (command == "describe") return Describe();
    if (command == "cost") return Cost();
    throw std::logic_error("no command '" + command + "'");
  }

 private:
  std::string Create(std::istringstream& rest) {
    std::string endpoint, run_id, local_addr, config;
    int64_t min_nodes = 0, max_nodes = 0;
    rest >> endpoint >> run_id >> min_nodes >> max_nodes >> local_addr;
    if (rest.fail()) throw std::logic_error("create ENDPOINT RUN_ID MIN MAX LOCAL_ADDR [OPTIONS]");
    rest >> config;
    handler_ = muster::GetRendezvousHandler({"c10d", endpoint, run_id, min_nodes, max_nodes,
                                             local_addr, muster::ParseRendezvousConfig(config)});
    return Object().With("node", Dynamic().node()).ToString();
  }

  std::string Next() {
    const auto began = std::chrono::steady_clock::now();
    const muster::RendezvousInfo info = handler_->NextRendezvous();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    return Object()
        .With("rank", info.rank)
        .With("world_size", info.world_size)
        .With("round", info.round)
        .With("master_addr", info.bootstrap_store_info.master_addr)
        .With("master_port", int64_t{info.bootstrap_store_info.master_port})
        .With("seconds", took.count())
        .With("node", Dynamic().node())
        .ToString();
  }

  int64_t Waiting() { return handler_->NumNodesWaiting(); }

  std::string Close(std::istringstream& rest) {
    std::string reason;
    std::getline(rest >> std::ws, reason);
    handler_->SetClosed(reason);
    return Object().With("done", true).ToString();
  }

  std::string Describe() {
    const muster::WaitReport report = handler_->DescribeWait();
    return Object()
        .With("phase", PhaseName(report.phase))
        .With("round", report.round)
        .With("joined", report.joined)
        .With("waiting", report.waiting)
        .With("spares", report.spares)
        .With("silent", report.silent)
        .With("text", report.ToString())
        .ToString();
  }

  std::string Cost() {
    const muster::RendezvousCost cost = Dynamic().cost();
    return Object()
        .With("reads", cost.reads)
        .With("writes", cost.writes)
        .With("lost", cost.lost)
        .ToString();
  }

  /// Seconds since 1970 and since the machine started: a test shifts only the first.
  static std::string Clock() {
    const std::chrono::duration<double> wall = std::chrono::system_clock::now().time_since_epoch();
    const std::chrono::duration<double> steady =
        std::chrono::steady_clock::now().time_since_epoch();
    return Object().With("wall", wall.count()).With("monotonic", steady.count()).ToString();
  }

  muster::DynamicRendezvousHandler& Dynamic() {
    return dynamic_cast<muster::DynamicRendezvousHandler&>(*handler_);
  }

  muster::RendezvousHandlerPtr handler_;
};

}  // namespace

int main() {
  Peer peer;
  for (std::string line; std::getline(std::cin, line) && line != "quit";) {
    try {
      std::cout << peer.Answer(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << ErrorJson(error) << std::endl;
    }
  }
  return 0;
}
