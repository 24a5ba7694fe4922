#include "load/store_load.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/text.h"
#include "load/opener.h"
#include "load/worker.h"

namespace muster::load {

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr size_t kThreadsMax = 256;
constexpr size_t kPipelineMax = 65536;
constexpr uint32_t kKeysMax = 9'999'999;  // the most that seven digits can count
constexpr size_t kValueBytesMax = 8 << 20;
constexpr uint64_t kStoredBytesMax = 4ull << 30;
constexpr Duration kOpenPatience = 60s;

Status Within(std::string_view name, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return Ok();
  return Error{Code::kInvalid, Concat(name, " is ", value, ", allowed: ", least, " to ", most)};
}

}  // namespace

Status LoadOptions::Validate() const {
  MUSTER_CHECK_OK(Within("the number of clients", clients, 1, 1'000'000));
  MUSTER_CHECK_OK(Within("the pipeline depth", pipeline, 1, kPipelineMax));
  MUSTER_CHECK_OK(Within("the number of threads", threads, 1, kThreadsMax));
  MUSTER_CHECK_OK(Within("the number of keys", keys, 1, kKeysMax));
  MUSTER_CHECK_OK(Within("the value size", value_bytes, 0, kValueBytesMax));
  if (uint64_t{keys} * value_bytes > kStoredBytesMax) {
    return Error{Code::kInvalid,
                 Concat(keys, " values of ", HumanBytes(value_bytes), " are more than ",
                        HumanBytes(kStoredBytesMax), "; ask for fewer keys")};
  }
  return Ok();
}

/// One measurement: the workers, their threads, and the readings before and after.
class StoreLoad::Run {
 public:
  Run(const LoadOptions& options, const Script& script, std::span<const Descriptor> sockets)
      : options_(options),
        stage_{.script = script,
               .keys = options.keys,
               .pipeline = options.pipeline,
               .seed = options.seed} {
    const size_t count = std::min(options.threads, sockets.size());
    for (size_t i = 0; i < count; ++i) {
      const size_t from = sockets.size() * i / count;
      const size_t to = sockets.size() * (i + 1) / count;
      workers_.push_back(std::make_unique<Worker>(stage_, sockets.subspan(from, to - from), from));
    }
  }

  Result<LoadReport> Measure(Duration duration) {
    running_ = workers_.size();
    for (const auto& worker : workers_) {
      threads_.emplace_back([this, &worker] {
        worker->Run();
        const std::lock_guard lock(mutex_);
        if (--running_ == 0) all_ended_.notify_all();
      });
    }
    Result<LoadReport> report = Observe(duration);
    stage_.phase = Phase::kStop;
    for (std::thread& thread : threads_) thread.join();
    if (!report) return report;
    for (const auto& worker : workers_) {
      report->latency.Merge(worker->latency());
      report->errors += worker->errors();
      if (report->first_error.empty()) report->first_error = worker->first_error();
    }
    return report;
  }

  /// All that were answered, including those of the warm-up.
  uint64_t Operations() const {
    uint64_t sum = 0;
    for (const auto& worker : workers_) sum += worker->operations();
    return sum;
  }

 private:
  struct Reading {
    SteadyClock::time_point time;
    uint64_t operations;
    Duration own_cpu;
    Duration server_cpu;
  };

  Result<Reading> Read() const {
    Reading reading{};
    if (options_.server_pid != 0) {
      MUSTER_TRY(reading.server_cpu, CpuTime(options_.server_pid));
    }
    reading.own_cpu = OwnCpuTime();
    reading.operations = Operations();
    reading.time = SteadyClock::now();
    return reading;
  }

  Result<LoadReport> Observe(Duration duration) {
    WaitOrEnd(options_.warm_up);
    MUSTER_TRY(const Reading before, Read());
    stage_.phase = Phase::kMeasure;
    WaitOrEnd(duration);
    MUSTER_TRY(const Reading after, Read());
    LoadReport report;
    report.operations = after.operations - before.operations;
    report.elapsed = after.time - before.time;
    report.own_cpu = after.own_cpu - before.own_cpu;
    if (options_.server_pid != 0) {
      report.server_cpu = after.server_cpu - before.server_cpu;
      MUSTER_TRY(report.server_memory, MemoryOf(options_.server_pid));
    }
    return report;
  }

  /// Waits, unless no worker has anything left to do.
  void WaitOrEnd(Duration duration) {
    std::unique_lock lock(mutex_);
    all_ended_.wait_for(lock, duration, [this] { return running_ == 0; });
  }

  const LoadOptions& options_;
  Stage stage_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable all_ended_;
  size_t running_ = 0;  // guarded by mutex_
};

Result<std::unique_ptr<StoreLoad>> StoreLoad::Open(const LoadOptions& options) {
  MUSTER_CHECK_OK(options.Validate());
  MUSTER_CHECK_OK(AllowConnections(options.clients + options.threads));
  std::unique_ptr<StoreLoad> made(new StoreLoad(options));
  MUSTER_TRY(made->keeper_, KeyKeeper::Open(options.server, options.protocol, made->space_));
  MUSTER_CHECK_OK(made->keeper_->Create());
  const std::string hello = Hello(options.protocol);
  MUSTER_TRY(Opened opened, OpenConnections({.server = options.server,
                                             .count = options.clients,
                                             .hello = [&](size_t) { return hello; },
                                             .answer = HelloAnswer(options.protocol),
                                             .patience = kOpenPatience}));
  made->sockets_ = std::move(opened.sockets);
  return made;
}

StoreLoad::~StoreLoad() {
  // If the server is gone, nothing has to be removed.
  if (keeper_) static_cast<void>(keeper_->Delete());
}

Result<LoadReport> StoreLoad::Measure(LoadOp op, Duration duration) {
  const Script script(options_.protocol, op, space_);
  Run run(options_, script, sockets_);
  MUSTER_TRY(LoadReport report, run.Measure(duration));
  report.work_hash = script.WorkHash() ^ (options_.seed * 0x9e3779b97f4a7c15) ^
                     (options_.clients << 20) ^ options_.pipeline;
  if (op != LoadOp::kAdd || options_.protocol == Protocol::kEcho) return report;
  added_ += static_cast<int64_t>(run.Operations());
  added_is_known_ = added_is_known_ && report.errors == 0;
  if (!added_is_known_) return report;
  // Each reply was a number; together they must have counted every addition exactly once.
  MUSTER_TRY(const int64_t counted, keeper_->CountCounters());
  if (counted != added_) {
    report.errors += static_cast<uint64_t>(std::max(counted - added_, added_ - counted));
    report.first_error =
        Concat("the counters sum up to ", counted, " after ", added_, " additions");
  }
  return report;
}

}  // namespace muster::load
