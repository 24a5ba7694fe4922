// Binding workers to the CPUs next to their GPUs: what this machine looks like, read from the
// kernel's files. The choice itself is made in launch/core/cpu_sets.h.
//
// A worker's GPU is the one of its local rank among those that workers see. Only CPUs are bound,
// not memory: the kernel gives memory near the CPU that first writes to it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "launch/core/cpu_sets.h"
#include "launch/workers/devices.h"

namespace muster {

/// A kernel without NUMA has one node of all its CPUs. kUnavailable: a file is missing or
/// malformed.
Result<NumaTopology> ReadNumaTopology(const std::string& sys = "/sys");

/// The NUMA node of each GPU, by its PCI address; node 0 for a GPU without a NUMA node.
/// kUnavailable: the kernel does not know such a device.
Result<std::vector<int>> NumaNodesOf(const Gpus& gpus, const std::string& sys = "/sys");

/// For each worker the value of WorkerCommand::cpus. Queries the GPU driver, see devices.h. An
/// Error is one line.
Result<std::vector<Cpus>> CpusOfWorkers(NumaMode mode, size_t workers,
                                        const Environment& environment,
                                        const DeviceSources& sources = {});

/// The same with GPUs that are already known, and for a process that may use these CPUs.
Result<std::vector<Cpus>> CpusOfWorkers(NumaMode mode, size_t workers, const Gpus& gpus,
                                        const Cpus& allowed, const std::string& sys = "/sys");

}  // namespace muster
