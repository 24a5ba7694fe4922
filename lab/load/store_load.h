// The load generator: many clients that ask a server for one operation after another, and what that
// took.
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
  pid_t server_pid = 0;  ///< Its CPU time and memory are reported; 0: none are.
  size_t clients = 64;   ///< Connections, each with one batch at a time.
  size_t pipeline = 1;   ///< Requests in a batch: sent in one write, all answered before the next.
  size_t threads = 1;    ///< Of the generator.
  size_t value_bytes = 64;
  uint32_t keys = 1000;  ///< Each request is about one of them, chosen at random.
  uint64_t seed = 1;     ///< The same seed asks for the same keys in the same order.
  std::string tag =
      "0";  ///< Part of the keys; tells runs apart that use one server at the same time.
  Duration warm_up = 200ms;  ///< Before each measurement.

  /// kInvalid, naming the option, if they cannot be meant.
  Status Validate() const;
};

struct LoadReport {
  uint64_t operations = 0;  ///< Answered rightly, while it was measured.
  Duration elapsed{};
  Histogram latency;  ///< From the write of a batch to each reply.
  uint64_t errors = 0;
  std::string first_error;  ///< "" where there are none.
  Duration own_cpu{};       ///< Of this process, while it was measured.
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
  int64_t added_ = 0;           // what the counters must sum up to
  bool added_is_known_ = true;  // not after a failed ADD, which may have been done or not
};

}  // namespace muster::load
