#include "load/connections.h"

#include <string>

#include "base/text.h"
#include "load/opener.h"

namespace muster::load {

namespace {
constexpr Duration kPatience = 120s;
}  // namespace

Result<ConnectionsReport> HoldConnections(const ConnectionsOptions& options) {
  if (options.count == 0) return Error{Code::kInvalid, "no connections asked for"};
  MUSTER_CHECK_OK(AllowConnections(options.count));
  ConnectionsReport report;
  Duration cpu_before{};
  if (options.server_pid != 0) {
    MUSTER_TRY(report.memory_before, MemoryOf(options.server_pid));
    MUSTER_TRY(cpu_before, CpuTime(options.server_pid));
  }
  const std::string hello = Hello(options.protocol);
  const std::string answer = HelloAnswer(options.protocol);
  MUSTER_TRY(const Opened opened, OpenConnections({.server = options.server,
                                                   .count = options.count,
                                                   .hello = [&](size_t) { return hello; },
                                                   .answer = answer,
                                                   .patience = kPatience}));
  report.elapsed = opened.elapsed;
  if (options.server_pid != 0) {
    MUSTER_TRY(const Duration cpu_after, CpuTime(options.server_pid));
    report.server_cpu = cpu_after - cpu_before;
  }
  // The server's PING. The greeting of an echo server is a TCPStore greeting without VALIDATE.
  const std::string ping = options.protocol == Protocol::kTcpStore ? Hello(Protocol::kEcho) : hello;
  MUSTER_CHECK_OK(AskAll(opened.sockets, ping, answer, kPatience));
  if (options.server_pid != 0) {
    MUSTER_TRY(report.memory, MemoryOf(options.server_pid));
  }
  return report;
}

}  // namespace muster::load
