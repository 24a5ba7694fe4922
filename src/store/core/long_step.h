// A request on so many keys that it would take too long as one step: it is taken apart while it
// arrives, and executed in short steps.
//
// MULTI_SET is still atomic: its keys are prepared in pieces, and get their values in one step.
// CHECK, WAIT, MULTI_GET and LIST_KEYS look at their keys piece by piece: what others write
// meanwhile may be seen in one part and not in another. Pure; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/memory_account.h"
#include "store/core/client_id.h"
#include "store/core/machine.h"

namespace muster {

class LongStep {
 public:
  /// The account outlives it.
  LongStep(Op op, ClientId client, const KeyHasher& hasher, MemoryAccount& account)
      : op_(op), client_(client), hasher_(hasher), account_(account), charge_(account) {}

  Op op() const { return op_; }
  /// What it has allocated.
  size_t bytes() const { return charge_.bytes() + piece_bytes_; }

  /// One more key, with its value in a MULTI_SET; before the first Advance(), and without the
  /// machine. False: there is no room for it.
  bool Add(std::string_view key, std::string_view value);

  /// Where values and keys go that MULTI_GET and LIST_KEYS answer with. False: no more of them.
  using Take = std::function<bool(const ValueView&)>;

  /// One short step. True: all is done, and reply() is the answer (kValues and kKeys: behind what
  /// `take` got).
  bool Advance(StoreMachine& machine, Instant now, const Take& take, Released& released);
  const Reply& reply() const { return reply_; }

  /// The client has gone, or the request is refused: takes back what was prepared, in short steps.
  /// True: there is more to do.
  bool Abandon(StoreMachine& machine, Released& released);

 private:
  struct OwnedKey {
    std::string text;
    uint64_t hash;
  };

  /// The next keys, as the machine wants them.
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
  Charge charge_;  // for all but pieces, which pay for themselves
  size_t piece_bytes_ = 0;
  std::vector<OwnedKey> keys_;
  StoreMachine::StagedSet set_;
  bool begun_ = false;
  bool committed_ = false;
  size_t done_ = 0;                 // keys, or shards
  std::optional<HashedKey> queue_;  // its text is queue_name_
  std::string queue_name_;
  std::vector<HashedKey> piece_;
  Reply reply_;
};

}  // namespace muster
