// A completion queue of gRPC, and the thread that waits on it and posts completions to a loop.
// Lives on the loop's thread; may be created on any.
#pragma once

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "os/ports/loop.h"

namespace muster::etcd {

class Completions {
 public:
  /// std::system_error: no thread could be started.
  explicit Completions(Loop& loop);
  /// Completions that were posted do nothing after this. Waits until all operations have ended,
  /// which the caller has cancelled, so that no answer is awaited.
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  grpc::CompletionQueue* queue() { return &queue_; }

  /// The tag of one operation. `then` runs on the loop when the operation has ended, and owns what
  /// it needs until then.
  static void* MakeTag(std::function<void(bool ok)> then);

 private:
  void Run();

  Loop& loop_;
  grpc::CompletionQueue queue_;
  std::atomic<bool> closing_{false};
  /// On the loop's thread; posted work may outlive this object.
  std::shared_ptr<bool> open_ = std::make_shared<bool>(true);
  std::thread thread_;
};

}  // namespace muster::etcd
