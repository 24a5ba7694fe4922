// Where gRPC's asynchronous operations end: one completion queue, one thread that waits on it and
// posts what comes to a loop. Lives on the loop's thread; made on any.
#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "os/ports/loop.h"

namespace muster::etcd {

class Arrivals {
 public:
  /// std::system_error: no thread to be had.
  explicit Arrivals(Loop& loop);
  ~Arrivals();
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;

  grpc::CompletionQueue* queue() { return &queue_; }

  /// The tag of one operation: `then` runs on the loop when it has ended, and owns what the
  /// operation needs until then.
  void* Expect(std::function<void(bool ok)> then);

  /// From now on nothing is posted, and what was posted does nothing. Waits for the end of all
  /// operations, which the caller has cancelled: that takes no answer from anybody.
  void Close();

 private:
  struct Tag;
  void Run();

  Loop& loop_;
  grpc::CompletionQueue queue_;
  std::atomic<bool> closing_{false};
  /// Read and written on the loop's thread; work that was posted may outlive this object.
  std::shared_ptr<bool> open_ = std::make_shared<bool>(true);
  std::thread thread_;
};

}  // namespace muster::etcd
