// The handler of a dynamic rendezvous: runs the operations of one node, and sends its
// heartbeats.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "muster/dynamic_rendezvous.h"
#include "os/ports/system.h"
#include "rendezvous/bootstrap.h"
#include "rendezvous/document/backend_port.h"
#include "rendezvous/document/rendezvous_driver.h"
#include "rendezvous/document/shared_document.h"
#include "rendezvous/event_recorder.h"

namespace muster {

class DynamicHandler final : public DynamicRendezvousHandler {
 public:
  DynamicHandler(RendezvousSettings settings, std::shared_ptr<Store> store,
                 std::unique_ptr<RendezvousBackend> backend, const std::string& local_addr,
                 RendezvousEventSink events, System& system);
  ~DynamicHandler() override;

  const RendezvousSettings& settings() const override { return settings_; }
  RendezvousCost cost() const override;
  std::string node() const override { return driver_.self().ToString(); }

  using RendezvousHandler::SetClosed;
  std::string GetBackend() const override { return backend_->Name(); }
  std::string GetRunId() const override { return settings_.run_id; }
  bool IsHost() const override;
  bool UseAgentStore() const override { return Bootstrap::IsShared(); }
  RendezvousInfo NextRendezvous() override;
  bool IsClosed() override;
  void SetClosed(std::string_view reason) override { Close("set_closed", reason); }
  int64_t NumNodesWaiting() override;
  std::optional<MembershipEvent> AwaitEvent(std::chrono::milliseconds time) override;
  void Leave() override;
  bool Shutdown() override;
  WaitReport DescribeWait() const override;

 private:
  enum class Stage { kResting, kJoining, kBootstrap };

  std::string PrefixOf(int64_t round) const;

  // --- Events
  DriverHooks Hooks();
  void ReportAction(Action action, const RendezvousState& after);
  void Report(std::string_view name, std::string_view what, NodeState state, int64_t round);
  template <typename Work>
  auto Reporting(std::string_view name, Work work);
  void RecordFailure(std::string_view name) const;

  // --- From values to exceptions
  [[noreturn]] void Throw(const Error& error);
  [[noreturn]] void ThrowInterruptedHere(std::string_view why);
  template <typename T>
  T OrThrow(Result<T> result);
  void FinishOrThrow(Result<Decision> result);
  std::string Who() const;
  std::string ClosedBy() const;

  void StartHeartbeats();
  void StopHeartbeats() { heartbeats_.reset(); }
  void Beat();
  void Close(std::string_view reported_as, std::string_view reason);

  // --- The next round
  RendezvousInfo JoinAndBootstrap();
  RendezvousInfo JoinNext();
  void KeepStore();
  void SetFirst(const RendezvousState& agreed);
  std::optional<Node> First() const;
  bool IsLeftBehind();
  int64_t CountWaiting();
  int64_t NodesToMakeRoomFor();

  System& system_;
  Clock& clock_ = system_.clock();
  const RendezvousSettings settings_;
  const RunSettings run_settings_;
  std::shared_ptr<Store> store_;
  const std::unique_ptr<RendezvousBackend> backend_;
  SharedDocument document_;
  RendezvousDriver driver_;
  const EventRecorder events_;
  Bootstrap bootstrap_;
  std::atomic<Stage> stage_ = Stage::kResting;
  Instant began_{};  ///< The operation under way, or the last one. The caller's thread only.
  mutable std::mutex first_mutex_;
  std::optional<Node> first_;  ///< The round's rank 0, if it was there when this node looked.
  /// Held by heartbeats and by callers that look at the document meanwhile.
  const std::unique_ptr<Monitor> mutex_ = system_.MakeMonitor();
  std::optional<Place> place_;
  std::unique_ptr<Timer> heartbeats_;
};

}  // namespace muster
