#include "store/core/long_step.h"

#include <algorithm>

namespace muster {

bool LongStep::Add(std::string_view key, std::string_view value) {
  const bool is_large = value.size() > kSmallValueBytes;
  if (!account_.HasRoomFor(key.size() + value.size() + sizeof(OwnedKey))) return false;
  const HashedKey hashed = hasher_(key);
  if (op_ == Op::kMultiSet) {
    charge_.Add(set_.Add(hashed, is_large ? Value(MakePiece(value, account_)) : Value(value)));
    if (is_large) piece_bytes_ += value.size();
  } else {
    charge_.Add(sizeof(OwnedKey) + HeapBytes(keys_.emplace_back(hashed).text));
  }
  return true;
}

std::span<const HashedKey> LongStep::NextPiece(size_t keys_max) {
  // The machine is done with the previous keys: their memory is used for the next ones.
  for (size_t i = done_ - piece_.size(); i < done_; ++i) {
    charge_.Subtract(HeapBytes(keys_[i].text));
    std::string().swap(keys_[i].text);
  }
  piece_.clear();
  const size_t end = std::min(done_ + keys_max, keys_.size());
  for (; done_ < end; ++done_) piece_.push_back(keys_[done_].hashed());
  return piece_;
}

bool LongStep::Finish(const Reply& reply) {
  reply_ = reply;
  return true;
}

bool LongStep::Advance(StoreMachine& machine, Instant now, const Take& take, Released& released) {
  if (!begun_) machine.GiveUpReservation(client_, now, released);
  switch (op_) {
    case Op::kMultiSet:
      return AdvanceSet(machine, now, released);
    case Op::kWait:
      return AdvanceWait(machine, now);
    case Op::kMultiGet:
      return AdvanceGet(machine, take);
    case Op::kListKeys:
      return AdvanceList(machine, take);
    default:
      break;
  }
  begun_ = true;
  if (!machine.AreThere(NextPiece())) return Finish(Reply::Of(Reply::Kind::kNotReady));
  return done_ == keys_.size() && Finish(Reply::Of(Reply::Kind::kReady));
}

bool LongStep::AdvanceWait(StoreMachine& machine, Instant now) {
  if (!begun_) {
    const Reply begun = machine.BeginWait(client_);
    if (begun.kind == Reply::Kind::kRefused) return Finish(begun);
    begun_ = true;
  }
  const bool knew_queue = queue_.has_value();
  const Reply added = machine.AddToWait(client_, NextPiece(), queue_);
  if (added.kind == Reply::Kind::kRefused) return Finish(added);
  if (queue_ && !knew_queue) queue_ = queue_name_.emplace(*queue_).hashed();
  return done_ == keys_.size() && Finish(machine.EndWait(client_, queue_, now));
}

bool LongStep::AdvanceSet(StoreMachine& machine, Instant now, Released& released) {
  if (!begun_) {
    begun_ = !machine.Prepare(set_, kKeysPerPiece, now);
    return false;
  }
  if (!committed_) {
    machine.Commit(set_);
    committed_ = true;
    return false;
  }
  return !machine.Settle(set_, kKeysPerPiece, released) && Finish(Reply::None());
}

bool LongStep::AdvanceGet(StoreMachine& machine, const Take& take) {
  constexpr size_t kKeysPerLook = 16;  // between two checks of how much has been copied
  begun_ = true;
  bool taken = true;
  size_t bytes = 0;
  const size_t end = std::min(done_ + kKeysPerPiece, keys_.size());
  while (taken && done_ < end && bytes < StoreMachine::kBytesPerPiece) {
    machine.ForEachValue(NextPiece(std::min(kKeysPerLook, end - done_)), [&](const auto& value) {
      taken = taken && take(value);
      bytes += value.tail.size();
    });
  }
  if (!taken) return Finish(Reply::Refused(Reply::Why::kTooMuch));
  return done_ == keys_.size() && Finish(Reply::Of(Reply::Kind::kValues));
}

bool LongStep::AdvanceList(StoreMachine& machine, const Take& take) {
  begun_ = true;
  bool taken = true;
  // A step lists several small shards, or one large one.
  size_t keys = 0;
  while (keys < kKeysPerPiece && done_ < StoreMachine::kShards) {
    machine.ForEachKey(done_++, [&](const ValueView& key) {
      taken = taken && take(key);
      ++keys;
    });
  }
  if (!taken) return Finish(Reply::Refused(Reply::Why::kTooMuch));
  return done_ == StoreMachine::kShards && Finish(Reply::Of(Reply::Kind::kKeys));
}

bool LongStep::Abandon(StoreMachine& machine, Released& released) {
  return machine.Settle(set_, kKeysPerPiece, released);
}

}  // namespace muster
