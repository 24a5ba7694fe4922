// One thread of the load generator: an epoll loop over its share of the connections.
//
// The generator must cost less than what it measures. A client's turn is one write of a whole batch
// of prepared requests, and usually one read into a buffer that all clients share. Replies are
// compared in place.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/prng.h"
#include "base/result.h"
#include "base/time.h"
#include "load/descriptor.h"
#include "load/dialect.h"
#include "load/histogram.h"

namespace muster::load {

enum class Phase { kWarmUp, kMeasure, kStop };

/// Shared by the workers of one measurement.
struct Stage {
  const Script& script;
  uint32_t keys;
  size_t pipeline;  ///< Requests in a batch.
  uint64_t seed;
  Duration drain_max = 5s;  ///< After kStop, for replies that are still to come.
  std::atomic<Phase> phase{Phase::kWarmUp};
};

class Worker {
 public:
  /// `first_number` is the number of its first client among all: it selects the client's keys. All
  /// arguments outlive the worker.
  Worker(const Stage& stage, std::span<const Descriptor> sockets, size_t first_number);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Sends batch after batch on each connection until the stage is kStop or no connection is left.
  /// Then waits for the replies under way. On a thread of its own.
  void Run();

  /// Operations answered correctly so far. Any thread.
  uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }

  // After Run():
  const Histogram& latency() const { return latency_; }
  uint64_t errors() const { return errors_; }
  const std::string& first_error() const { return first_error_; }

 private:
  struct Client {
    int fd;
    Prng prng;
    uint32_t* keys;      // the keys of the requests in its batch
    size_t sent = 0;     // bytes of the batch
    size_t replies = 0;  // of the batch, read so far
    ReplyPlace place{};
    std::chrono::steady_clock::time_point sent_at{};
    bool busy = false;        // a batch is under way
    bool wants_room = false;  // to write the rest of the batch
  };

  void PrepareBatch(Client& client);
  /// Sends prepared batches after everything that arrived has been read. Doing many reads and then
  /// many writes is cheaper than alternating, and the server is to be measured, not the generator.
  void StartBatches();
  void Send(Client& client);
  size_t FillScratch(const Client& client);
  void Receive(Client& client);
  void EndBatch(Client& client);
  void WatchRoom(Client& client, bool wants_room);
  /// The connection cannot be used any more; the rest of its batch is lost.
  void GiveUp(Client& client, std::string why);
  void Complain(std::string why);
  size_t RepliesPerBatch() const {
    return stage_.script.one_reply_per_batch() ? 1 : stage_.pipeline;
  }
  size_t OperationsPerReply() const {
    return stage_.script.one_reply_per_batch() ? stage_.pipeline : 1;
  }

  const Stage& stage_;
  const size_t batch_bytes_;
  Descriptor epoll_;
  std::vector<uint32_t> keys_;
  std::vector<Client> clients_;
  std::vector<Client*> prepared_;
  std::vector<char> scratch_;  // for writing and for reading, never both at once
  size_t live_ = 0;
  size_t busy_ = 0;
  Histogram latency_;
  uint64_t errors_ = 0;
  std::string first_error_;
  alignas(64) std::atomic<uint64_t> operations_{0};
};

}  // namespace muster::load
