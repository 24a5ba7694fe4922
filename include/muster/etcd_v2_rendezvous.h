// The etcd-v2 backend: the state of a dynamic rendezvous in one key of etcd, where torchrun's
// backend of that name keeps it. The name is torchrun's; the API that it speaks is etcd's v3.
#pragma once

#include <any>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "muster/etcd.h"
#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_handler.h"
#include "muster/rendezvous_parameters.h"
#include "muster/store.h"

namespace muster {

class EtcdCalls;

class EtcdV2RendezvousBackend final : public RendezvousBackend {
 public:
  static constexpr std::string_view kDefaultPrefix = "/torch/elastic";
  /// How long the state outlives the last write.
  static constexpr std::chrono::seconds kTimeToLive{7200};

  /// The state is at PREFIX/rendezvous/RUN_ID, in base64. std::invalid_argument if the run id is
  /// empty or there is no connection. No call takes longer than `timeout`.
  EtcdV2RendezvousBackend(std::shared_ptr<EtcdCalls> calls, std::string_view prefix,
                          std::string_view run_id, std::chrono::milliseconds timeout);
  ~EtcdV2RendezvousBackend() override;

  using RendezvousBackend::SetState;
  std::string Name() const override { return "etcd-v2"; }
  /// Tokens are int64_t: the revision at which the key last changed.
  std::optional<StoredState> GetState() override;
  /// Knows for certain whether it wrote. A token of 0 is none.
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override;
  /// News are keys at PREFIX/news/RUN_ID, which are watched.
  void Announce(std::string_view news) override;
  bool AwaitNews(std::string_view news, std::chrono::milliseconds time) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct EtcdV2Rendezvous {
  std::unique_ptr<RendezvousBackend> backend;
  std::shared_ptr<Store> store;  ///< An EtcdStore at PREFIX/store, for all runs.
};

/// Options: those of EtcdOptions::From(). RendezvousConnectionError, std::invalid_argument. In the
/// component muster::etcd.
EtcdV2Rendezvous CreateEtcdV2Backend(const RendezvousParameters& parameters);

/// A dynamic rendezvous on it: what the registry makes for "etcd-v2" after EnableEtcd().
RendezvousHandlerPtr CreateEtcdV2Handler(const RendezvousParameters& parameters);

/// Gives the registry of this process its etcd backends, which it otherwise refuses to make. Once,
/// or again: any thread. In the component muster::etcd.
void EnableEtcd();

}  // namespace muster
