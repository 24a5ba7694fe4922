// Where a client records its calls and what it sees. One thread.
//
// A session is one connection. An operation without a reply (SET, for example) is settled by the
// next answer on its session. Operations that are open when the session ends stay unknown.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "histories/operation.h"

namespace muster::test {

class Journal {
 public:
  explicit Journal(int client) : client_(client) {}

  /// Records that `operation` is about to be requested. Returns its number.
  size_t Call(Operation operation) {
    operation.client = client_;
    operation.session = client_ * kSessionsMax + session_;
    operation.order = order_++;
    operation.outcome = Outcome::kUnknown;
    operation.called = Now();
    operation.returned = kNever;
    history_.push_back(std::move(operation));
    return history_.size() - 1;
  }

  /// The answer to operation `number` has arrived, and with it everything before it has happened.
  void Answered(size_t number, Outcome outcome, std::vector<std::string> saw = {}) {
    Settled(number);
    Operation& operation = history_[number];
    operation.outcome = outcome;
    operation.saw = std::move(saw);
    operation.returned = Now();
  }

  /// All operations so far have happened, or all before operation `end`.
  void Settled() { Settled(history_.size()); }

  /// The connection is gone.
  void EndSession() {
    ++session_;
    open_from_ = history_.size();
  }

  const Operation& at(size_t number) const { return history_[number]; }
  const History& history() const { return history_; }

 private:
  static constexpr int kSessionsMax = 1'000;

  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  void Settled(size_t end) {
    const int64_t now = Now();
    for (; open_from_ < end; ++open_from_) {
      Operation& operation = history_[open_from_];
      if (HasReply(operation.kind)) continue;
      operation.outcome = Outcome::kDone;
      operation.returned = now;
    }
  }

  const int client_;
  int session_ = 0;
  int order_ = 0;
  size_t open_from_ = 0;  // the first that an answer would settle
  History history_;
};

}  // namespace muster::test
