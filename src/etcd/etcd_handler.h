// The handler of the backend "etcd".
#pragma once

#include <memory>
#include <string>

#include "etcd/calls.h"
#include "etcd/etcd_port.h"
#include "muster/etcd_rendezvous.h"
#include "rendezvous/session/session_handler.h"

namespace muster {

class EtcdHandler final : public SessionHandler {
 public:
  /// std::invalid_argument for invalid options.
  EtcdHandler(EtcdRendezvousOptions options, EtcdConnector connect, System& system);
  ~EtcdHandler() override { EndSession(); }

  std::string GetBackend() const override { return etcd_.backend; }

 private:
  std::unique_ptr<RendezvousLink> MakeLink(LoopThread& thread, const Hello& hello, uint64_t seed,
                                           RendezvousLinkListener& listener) override;
  LoopThread* SharedThread() override;
  std::shared_ptr<Store> StoreOf(const Push& assignment) override;

  const EtcdRendezvousOptions etcd_;
  const EtcdConnector connect_;
  const std::string prefix_;
  std::shared_ptr<EtcdCalls> calls_;  ///< For the link and for the stores of all rounds.
};

}  // namespace muster
