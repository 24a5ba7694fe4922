// The load generator: many clients that send a server one operation after another, and the
// measurements.
//
// Works on any TCPStore server (muster's, PyTorch's) and on Redis with the same clients, keys,
// values and threads, so that the results can be compared. Every reply is checked; a wrong one is
// an error.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "load/descriptor.h"
#include "load/dialect.h"
#include "load/histogram.h"
#include "load/key_keeper.h"
#include "load/process_meter.h"

namespace muster::load {

struct LoadOptions {
  Endpoint server;
  Protocol protocol = Protocol::kTcpStore;
  pid_t server_pid = 0;  ///< Its CPU time and memory are reported; 0: neither is.
  size_t clients = 64;   ///< Connections, each with one batch at a time.
  size_t pipeline = 1;   ///< Requests in a batch: sent in one write, all answered before the next.
  size_t threads = 1;    ///< Of the generator.
  size_t value_bytes = 64;
  uint32_t keys = 1000;  ///< Each request is about one of them, chosen at random.
  uint64_t seed = 1;     ///< The same seed requests the same keys in the same order.
  std::string tag =
      "0";  ///< Part of the keys; separates runs that use one server at the same time.
  Duration warm_up = 200ms;  ///< Before each measurement.

  /// kInvalid, with the name of the option that is wrong.
  Status Validate() const;
};

struct LoadReport {
  uint64_t operations = 0;  ///< Correctly answered during the measurement.
  Duration elapsed{};
  Histogram latency;  ///< From the write of a batch to each reply.
  uint64_t errors = 0;
  std::string first_error;  ///< Empty if there was none.
  Duration own_cpu{};       ///< Of this process, during the measurement.
  std::optional<Duration> server_cpu;
  std::optional<Memory> server_memory;
  uint64_t work_hash = 0;
};

class StoreLoad {
 public:
  /// Connects all clients and creates the keys. Blocks. kInvalid; kUnavailable, kTimeout: no such
  /// server.
  static Result<std::unique_ptr<StoreLoad>> Open(const LoadOptions& options);

  /// Removes the keys, if the server is still there.
  ~StoreLoad();
  StoreLoad(const StoreLoad&) = delete;
  StoreLoad& operator=(const StoreLoad&) = delete;

  /// Warms up, measures for `seconds`, and waits for the last replies. Blocks.
  Result<LoadReport> Measure(LoadOp op, Duration duration);

 private:
  class Run;

  explicit StoreLoad(const LoadOptions& options)
      : options_(options), space_(options.tag, options.keys, options.value_bytes, options.seed) {}

  const LoadOptions options_;
  const KeySpace space_;
  std::unique_ptr<KeyKeeper> keeper_;
  std::vector<Descriptor> sockets_;
  int64_t added_ = 0;           // the expected sum of the counters
  bool added_is_known_ = true;  // not after a failed ADD, which may or may not have been executed
};

}  // namespace muster::load
