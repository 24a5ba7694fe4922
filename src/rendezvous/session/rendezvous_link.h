// A node's end of its rendezvous: whoever is at the other end, the node says what it wants and is
// told what concerns it. On a loop's thread.
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

/// Who is told, on the loop's thread. May not destroy the link from inside.
class RendezvousLinkOwner {
 public:
  virtual ~RendezvousLinkOwner() = default;

  /// Of kOpened: unless `resumed`, whatever the node was in before is over.
  virtual void OnPush(const Push& push) = 0;
  /// The answer to AskHowItStands(). nullopt: nobody knows the run.
  virtual void OnReport(std::optional<RunReport> report) = 0;
  /// The other end is out of reach for now; the link goes on trying.
  virtual void OnTrouble(const std::string& why) = 0;
  /// The server has no coordinator: it is PyTorch's. The link has stopped.
  virtual void OnPlainServer() = 0;
  /// The node is out of its round, whoever may know it already.
  virtual void OnPlaceLost(const std::string& why) { static_cast<void>(why); }
  /// The link has stopped, and trying again would not help. kProtocol: what others have written
  /// there cannot be read; else: we are not let in.
  virtual void OnFailed(const Error& why) { static_cast<void>(why); }
};

class RendezvousLink {
 public:
  virtual ~RendezvousLink() = default;

  virtual void Start() = 0;

  /// Wants the next round; answered by kComplete, kClosed or kTimedOut. Tries anew where it was
  /// refused before: another node that had our name may be gone, or those who were told otherwise.
  virtual void Join(Duration timeout) = 0;
  /// Gives up its place, or its wait. Answered by kLeft or kRefused; said again with the next
  /// connection where there is none now, or this one breaks.
  virtual void Leave() = 0;
  /// Gives the join under way up: it was not answered in time. What is said of it later must not be
  /// taken for the answer to another one.
  virtual void Abandon() = 0;
  /// Answered by kClosed.
  virtual void Close(std::string reason) = 0;
  virtual void AskHowItStands(uint32_t names_max) = 0;
  /// The node goes, and the others are to know at once. False: they will. True: once it is said,
  /// `done` is called.
  virtual bool Farewell(std::function<void()> done) {
    static_cast<void>(done);
    return false;
  }

  /// Of messages both ways since the start.
  virtual uint64_t bytes() const = 0;
  virtual uint64_t messages() const = 0;
};

}  // namespace muster
