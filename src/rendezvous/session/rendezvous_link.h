// A node's end of its rendezvous, independent of the other end: it sends the node's requests and
// reports what it receives. Lives on a loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "rendezvous/core/run_report.h"
#include "rendezvous/core/session.h"

namespace muster {

/// What a link reports, on the loop's thread. A listener must not destroy the link in these calls.
class RendezvousLinkListener {
 public:
  virtual ~RendezvousLinkListener() = default;

  /// For kOpened: unless `resumed`, the node has lost its earlier place. A round that the link has
  /// reported is not reported again.
  virtual void OnPush(const Push& push) = 0;
  /// The answer to RequestReport(). nullopt: the run is unknown.
  virtual void OnReport(std::optional<RunReport> report) = 0;
  /// The other end is out of reach for now; the link keeps trying.
  virtual void OnTrouble(const std::string& why) = 0;
  /// The server has no coordinator: it is PyTorch's. The link has stopped.
  virtual void OnPlainServer() = 0;
  /// The node has lost its place in the round, whether or not the others know it yet.
  virtual void OnPlaceLost(const std::string& /*why*/) {}
  /// The link has stopped, and a retry would not help. kProtocol: what other nodes have written
  /// cannot be read; any other code: access is denied.
  virtual void OnFailed(const Error& /*why*/) {}
};

class RendezvousLink {
 public:
  virtual ~RendezvousLink() = default;

  virtual void Start() = 0;

  /// Requests the next round; answered by kComplete, kClosed or kTimedOut. Tries again if an
  /// earlier request was refused: the cause (another node with the same name, or nodes with other
  /// settings) may be gone.
  virtual void Join(Duration timeout) = 0;
  /// Releases the node's place, or ends its wait. Answered by kLeft or kRefused; sent again with
  /// the next connection if there is none now, or if this one breaks.
  virtual void Leave() = 0;
  /// Drops the current join, which was not answered in time. A late answer must not be mistaken for
  /// the answer to a later join.
  virtual void Abandon() = 0;
  /// Closes the run. Answered by kClosed.
  virtual void Close(std::string reason) = 0;
  virtual void RequestReport(uint32_t names_max) = 0;
  /// Notifies the others that the node shuts down. False: there is nothing to send. True: `done` is
  /// called once the message is delivered.
  virtual bool Shutdown(std::function<void()> /*done*/) { return false; }

  /// Bytes of messages in both directions since the start.
  virtual uint64_t bytes() const = 0;
  virtual uint64_t messages() const = 0;
};

}  // namespace muster
