// Shared by the `muster-lab bench` subcommands.
#pragma once

#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "cli/command_line.h"
#include "load/child.h"
#include "program/commands.h"

namespace muster::cli {

void AddBenchStore(CLI::App& bench, Run* run);
void AddBenchLatency(CLI::App& bench, Run* run);
void AddBenchWake(CLI::App& bench, Run* run);
void AddBenchRendezvous(CLI::App& bench, Run* run);
void AddBenchSoak(CLI::App& bench, Run* run);

/// The server under test: one that is already running, or one that lives as long as this object.
struct BenchServer {
  std::unique_ptr<load::Child> child;  ///< Null if it was running already.
  Endpoint endpoint;
  pid_t pid = 0;  ///< 0: unknown, so its CPU time and memory are not reported.
};

/// `address` "": starts `muster serve` with `threads` threads on a free port of 127.0.0.1.
Result<BenchServer> ReachServer(const std::string& address, pid_t pid, int threads);
/// Starts `command` and takes the port from its first line, a JSON object.
Result<BenchServer> StartServer(const std::vector<std::string>& command);

/// Separates the keys of benchmarks that use one server at the same time: always eight characters.
std::string RunTag();

/// Rounded to a hundredth, the precision of the clock.
double Microseconds(Duration duration);
double PerOperation(Duration duration, uint64_t operations);

/// An array with one object in each line.
void PrintJsonLines(const std::vector<nlohmann::ordered_json>& objects);

}  // namespace muster::cli
