// The clients of a history: each performs the calls that it drew, and records what it saw. One
// thread each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "histories/journal.h"
#include "histories/plan.h"
#include "muster/tcp_store.h"
#include "support/raw_client.h"

namespace muster::test {

/// All that one client does in a history. A failure that no fault explains is a complaint.
class Client {
 public:
  Client(const Plan& plan, int number, uint16_t port)
      : plan_(plan), port_(port), drawer_(plan, number), journal_(number) {}
  virtual ~Client() = default;

  virtual void Run() = 0;

  const History& history() const { return journal_.history(); }
  const std::vector<std::string>& complaints() const { return complaints_; }

 protected:
  /// Whether the network may fail a call although the server is correct.
  bool FaultsExplain() const { return plan_.faults.any(); }
  void Complain(const std::string& about, const std::string& what);

  const Plan& plan_;
  const uint16_t port_;
  Drawer drawer_;
  Journal journal_;
  std::vector<std::string> complaints_;
};

/// A TcpStore: one call at a time.
class StoreClientOfHistory final : public Client {
 public:
  using Client::Client;
  void Run() override;
  /// The final state: looks at every key, and empties the queues.
  void Observe(bool queues);

 private:
  void Connect();
  /// Performs the call and records how it ended; false if the connection was lost.
  bool Perform(const Operation& operation, milliseconds patience);
  bool Settle();
  void Lose(size_t number, const std::string& why, bool impatient);

  std::unique_ptr<TcpStore> store_;
};

/// Raw bytes: several requests leave together, and the answers are read afterwards.
class PipelinedClient final : public Client {
 public:
  using Client::Client;
  void Run() override;

 private:
  void Burst(RawClient& wire, int requests);
};

}  // namespace muster::test
