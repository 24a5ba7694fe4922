#include "rendezvous/event_recorder.h"

#include <atomic>
#include <memory>
#include <mutex>

#include "muster/network.h"
#include "os/posix/process.h"

namespace muster {

namespace {

// The sink of the process. The flag shows whether there is one, without the lock.
struct ProcessSink {
  std::atomic<bool> present = false;
  std::mutex mutex;  // guards the pointer; never held while the sink is called
  std::shared_ptr<const RendezvousEventSink> sink;
};

ProcessSink& TheProcessSink() {
  // Never destroyed: a keep-alive may report something while the process ends.
  static ProcessSink& sink = *std::make_unique<ProcessSink>().release();
  return sink;
}

}  // namespace

void SetRendezvousEventSink(RendezvousEventSink sink) {
  auto next = sink ? std::make_shared<const RendezvousEventSink>(std::move(sink)) : nullptr;
  ProcessSink& process = TheProcessSink();
  const std::lock_guard lock(process.mutex);
  process.present.store(next != nullptr, std::memory_order_relaxed);
  process.sink.swap(next);
  // The old sink is destroyed with `next`, after the lock is released: objects that it owns may
  // report events.
}

EventRecorder::EventRecorder(RendezvousEventSink own, std::string run_id, std::string hostname)
    : own_(std::move(own)), run_id_(std::move(run_id)), hostname_(std::move(hostname)) {}

bool EventRecorder::enabled() const {
  // Relaxed: the flag only saves work, the sink itself is read under its lock.
  return own_ != nullptr || TheProcessSink().present.load(std::memory_order_relaxed);
}

std::string EventRecorder::Sentence(const Node& node, std::string_view what) const {
  return Concat("node '", node.ToString(), "' ", what, " rendezvous '", run_id_, "'");
}

void EventRecorder::Deliver(const EventName& name, const Node* node, RendezvousEvent event) const {
  event.name = Concat(name.first, name.last);
  event.run_id = run_id_;
  if (node != nullptr) {
    event.hostname = node->addr;
    event.pid = node->pid;
    event.local_id = node->local_id;
  } else {
    event.hostname = hostname_.empty() ? FullyQualifiedName() : hostname_;
    event.pid = ProcessId();
  }
  if (event.node_state == NodeState::kFailed)
    event.error_trace = event.message.empty() ? event.name : event.message;
  if (own_) return own_(event);

  std::shared_ptr<const RendezvousEventSink> sink;
  {
    ProcessSink& process = TheProcessSink();
    const std::lock_guard lock(process.mutex);
    sink = process.sink;
  }
  if (sink != nullptr) (*sink)(event);  // it may have been removed since enabled()
}

}  // namespace muster
