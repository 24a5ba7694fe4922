// A request on so many keys that one step would take too long: it is decoded while it arrives, and
// executed in short steps.
//
// MULTI_SET is still atomic: its keys are prepared in pieces, and get their values in one step.
// CHECK, WAIT, MULTI_GET and LIST_KEYS read their keys piece by piece: a concurrent write may be
// visible in one part and not in another. Pure; one owner.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/memory_account.h"
#include "store/core/machine.h"

namespace muster {

class LongStep {
 public:
  /// The account outlives it.
  LongStep(Op op, ClientId client, const KeyHasher& hasher, MemoryAccount& account)
      : op_(op), client_(client), hasher_(hasher), account_(account), charge_(account) {}

  Op op() const { return op_; }
  /// Memory that it has allocated.
  size_t bytes() const { return charge_.bytes() + piece_bytes_; }

  /// Adds one key, with its value in a MULTI_SET; before the first Advance(), and without the
  /// machine. False: there is no room for it.
  bool Add(std::string_view key, std::string_view value);

  /// Receives the values or keys of the reply to MULTI_GET and LIST_KEYS. False: no more of them.
  using Take = std::function<bool(const ValueView&)>;

  /// Executes one short step. True: the request is done, and reply() is the answer (for kValues and
  /// kKeys, after what `take` received).
  bool Advance(StoreMachine& machine, Instant now, const Take& take, Released& released);
  const Reply& reply() const { return reply_; }

  /// The client is disconnected, or the request is refused: undoes what was prepared, in short
  /// steps. True: there is more to do.
  bool Abandon(StoreMachine& machine, Released& released);

 private:
  /// The next keys, in the form that the machine needs.
  std::span<const HashedKey> NextPiece(size_t keys_max = kKeysPerPiece);
  bool Finish(const Reply& reply);
  bool AdvanceWait(StoreMachine& machine, Instant now);
  bool AdvanceSet(StoreMachine& machine, Instant now, Released& released);
  bool AdvanceGet(StoreMachine& machine, const Take& take);
  bool AdvanceList(StoreMachine& machine, const Take& take);

  const Op op_;
  const ClientId client_;
  const KeyHasher hasher_;
  MemoryAccount& account_;
  Charge charge_;  // for all but pieces, which are charged separately
  size_t piece_bytes_ = 0;
  std::vector<OwnedKey> keys_;
  StoreMachine::StagedSet set_;
  bool begun_ = false;
  bool committed_ = false;
  size_t done_ = 0;                 // keys or shards that are done
  std::optional<HashedKey> queue_;  // a view of queue_name_
  std::optional<OwnedKey> queue_name_;
  std::vector<HashedKey> piece_;
  Reply reply_;
};

}  // namespace muster
