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
  RendezvousInfo NextRendezvous() override;

 private:
  std::shared_ptr<Store> StoreOf(const Push& assignment) const;

  const EtcdRendezvousOptions etcd_;
  const EtcdConnector connect_;
  const std::string prefix_;
  std::shared_ptr<EtcdCalls> calls_;  ///< Of the link and of the stores of all rounds.
};

}  // namespace muster
