#include <memory>
#include <string>
#include <utility>

#include "base/text.h"
#include "etcd/link.h"
#include "etcd/on_connection.h"
#include "os/posix/host.h"
#include "rendezvous/option_readers.h"
#include "rendezvous/session/session_handler.h"

namespace muster {

namespace {

SessionHandlerOptions HandlerOptions(const EtcdRendezvousOptions& options, System& system) {
  options.Validate();
  const auto& [host, port] = options.etcd.endpoints.front();
  const std::string addr = options.local_addr.empty()
                               ? AddressTowards({host, static_cast<uint16_t>(port)})
                               : options.local_addr;
  return {.class_name = "etcd_rendezvous:EtcdRendezvousHandler",
          .server = options.etcd.ToString(),
          .hello = {.run_id = options.run_id,
                    .node = NewNode(system, addr),
                    .settings = RunSettingsOf(options, 0s),
                    .label = options.label},
          .join_timeout = options.join_timeout,
          .close_timeout = options.close_timeout,
          .events = options.events};
}

class EtcdHandler final : public SessionHandler {
 public:
  EtcdHandler(EtcdRendezvousOptions options, EtcdConnector connect, System& system)
      : SessionHandler(HandlerOptions(options, system), system),
        etcd_(std::move(options)),
        connect_(std::move(connect)),
        prefix_(etcd_.etcd.prefix.empty() ? EtcdRendezvousOptions::kDefaultPrefix
                                          : std::string_view(etcd_.etcd.prefix)) {}
  ~EtcdHandler() override { EndSession(); }

  std::string GetBackend() const override { return etcd_.backend; }

 private:
  LoopThread* SharedThread() override {
    calls_ = std::make_shared<EtcdCalls>(connect_, system_);
    return &calls_->thread();
  }

  std::unique_ptr<RendezvousLink> MakeLink(LoopThread& thread, const Hello& hello, uint64_t seed,
                                           RendezvousLinkListener& listener) override {
    return std::make_unique<EtcdLink>(
        thread.loop(),
        EtcdLinkOptions{.connect = [this](Loop&) { return calls_->Client(); },
                        .prefix = prefix_,
                        .hello = hello,
                        .seed = seed,
                        .entropy = [this] { return system_.Seed(); }},
        listener);
  }

  std::shared_ptr<Store> StoreOf(const Push& assignment) override {
    const wire::EtcdKeys keys(prefix_, etcd_.run_id);
    // The name of the round's plan: an etcd that is restored from older data may complete a round
    // of the same number again. Leaders of earlier versions send no name.
    const std::string round = assignment.who.empty() ? Concat(assignment.round) : assignment.who;
    return OpenEtcdStore(calls_, Concat(keys.Store(), round), etcd_.join_timeout,
                         static_cast<int64_t>(assignment.token));
  }

  const EtcdRendezvousOptions etcd_;
  const EtcdConnector connect_;
  const std::string prefix_;
  std::shared_ptr<EtcdCalls> calls_;  ///< For the link and for the stores of all rounds.
};

}  // namespace

EtcdRendezvousOptions EtcdRendezvousOptions::From(const RendezvousParameters& parameters) {
  EtcdRendezvousOptions options{.etcd = EtcdOptions::From(parameters), .run_id = ""};
  TakeSeconds(parameters, "timeout", options.join_timeout);  // as torchrun's etcd calls it
  TakeRoundOptions(parameters, options);
  options.backend = parameters.backend;
  options.Validate();
  return options;
}

void EtcdRendezvousOptions::Validate() const {
  etcd.Validate();
  MustBeRoundOptions(*this, 0s);  // a lease has its own grace
}

RendezvousHandlerPtr CreateEtcdHandler(EtcdRendezvousOptions options, EtcdConnector connect,
                                       System& system) {
  return std::make_unique<EtcdHandler>(std::move(options), std::move(connect), system);
}

}  // namespace muster
