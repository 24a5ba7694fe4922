#include "sim/etcd_state.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/text.h"

namespace muster::sim {

namespace {

bool IsUnbounded(const EtcdRange& range) { return range.end == std::string_view("\0", 1); }

size_t BytesOf(const std::vector<EtcdOperation>& operations) {
  size_t bytes = 0;
  for (const EtcdOperation& each : operations)
    bytes += each.range.begin.size() + each.range.end.size() + each.value.size() + 16;
  return bytes;
}

// One key has one change in one revision.
Status WritesOnce(const std::vector<EtcdOperation>& operations) {
  std::set<std::string_view> put;
  for (const EtcdOperation& each : operations) {
    if (each.kind == EtcdOperation::Kind::kPut && !put.insert(each.range.begin).second)
      return Error{Code::kInvalid, Concat("'", Printable(each.range.begin),
                                          "' is written twice in one transaction")};
  }
  for (const EtcdOperation& each : operations) {
    if (each.kind != EtcdOperation::Kind::kDelete) continue;
    for (const std::string_view key : put) {
      if (Contains(each.range, key))
        return Error{Code::kInvalid,
                     Concat("'", Printable(key), "' is written and deleted in one transaction")};
    }
  }
  return Ok();
}

}  // namespace

bool Contains(const EtcdRange& range, std::string_view key) {
  if (range.end.empty()) return key == range.begin;
  return key >= range.begin && (IsUnbounded(range) || key < range.end);
}

const EtcdPair* EtcdState::Find(std::string_view key) const {
  const auto found = pairs_.find(key);
  return found == pairs_.end() ? nullptr : &found->second;
}

// ----------------------------------------------------------------------------------------------
// transactions

Status EtcdState::Validate(const EtcdTransaction& transaction) {
  const size_t most = std::max(
      {transaction.conditions.size(), transaction.then.size(), transaction.otherwise.size()});
  if (most > kEtcdOperationsMax)
    return Error{Code::kInvalid, Concat("a transaction with ", most,
                                        " conditions or operations, limit ", kEtcdOperationsMax)};
  size_t bytes = BytesOf(transaction.then) + BytesOf(transaction.otherwise);
  for (const EtcdCondition& each : transaction.conditions)
    bytes += each.key.size() + each.value.size() + 16;
  if (bytes > kEtcdRequestBytesMax)
    return Error{Code::kInvalid,
                 Concat("a transaction of ", bytes, " bytes, limit ", kEtcdRequestBytesMax)};
  for (const auto* operations : {&transaction.then, &transaction.otherwise}) {
    for (const EtcdOperation& each : *operations) {
      if (each.range.begin.empty()) return Error{Code::kInvalid, "an empty key"};
    }
    MUSTER_CHECK_OK(WritesOnce(*operations));
  }
  return Ok();
}

bool EtcdState::Holds(const EtcdCondition& condition) const {
  const EtcdPair* pair = Find(condition.key);
  switch (condition.kind) {
    case EtcdCondition::Kind::kCreatedAt:
      return (pair == nullptr ? 0 : pair->created) == condition.revision;
    case EtcdCondition::Kind::kChangedAt:
      return (pair == nullptr ? 0 : pair->changed) == condition.revision;
    case EtcdCondition::Kind::kValueIs:
      return pair != nullptr && pair->value == condition.value;
  }
  return false;
}

Result<EtcdAnswer> EtcdState::Commit(const EtcdTransaction& transaction) {
  MUSTER_CHECK_OK(Validate(transaction));
  EtcdAnswer answer;
  answer.held = std::ranges::all_of(transaction.conditions,
                                    [this](const EtcdCondition& each) { return Holds(each); });
  const auto& operations = answer.held ? transaction.then : transaction.otherwise;
  for (const EtcdOperation& each : operations) {
    if (each.kind == EtcdOperation::Kind::kPut && each.lease != 0 && !leases_.contains(each.lease))
      return Error{Code::kNotFound, Concat("there is no lease ", each.lease, " for '",
                                           Printable(each.range.begin), "'")};
  }
  Changes changes;
  for (const EtcdOperation& each : operations) answer.results.push_back(Apply(each, changes));
  Remember(std::move(changes));
  answer.revision = revision_;
  return answer;
}

EtcdAnswer::Result EtcdState::Apply(const EtcdOperation& operation, Changes& changes) {
  switch (operation.kind) {
    case EtcdOperation::Kind::kPut:
      Put(operation, changes);
      break;
    case EtcdOperation::Kind::kGet:
      return Get(operation.range);
    case EtcdOperation::Kind::kDelete:
      return {.count = Delete(operation.range, changes)};
  }
  return {};
}

void EtcdState::Put(const EtcdOperation& operation, Changes& changes) {
  const std::string& key = operation.range.begin;
  EtcdPair& pair = pairs_[key];
  if (pair.lease != 0) leases_.at(pair.lease).keys.erase(key);
  pair.key = key;
  pair.value = operation.value;
  pair.changed = revision_ + 1;
  if (pair.created == 0) pair.created = pair.changed;
  pair.lease = operation.lease;
  if (pair.lease != 0) leases_.at(pair.lease).keys.insert(key);
  changes.push_back({.pair = pair});
}

int64_t EtcdState::Delete(const EtcdRange& range, Changes& changes) {
  int64_t count = 0;
  auto each = pairs_.lower_bound(range.begin);
  while (each != pairs_.end() && Contains(range, each->first)) {
    if (each->second.lease != 0) leases_.at(each->second.lease).keys.erase(each->first);
    changes.push_back({.deleted = true, .pair = {.key = each->first, .changed = revision_ + 1}});
    each = pairs_.erase(each);
    ++count;
  }
  return count;
}

EtcdAnswer::Result EtcdState::Get(const EtcdRange& range) const {
  EtcdAnswer::Result result;
  for (auto each = pairs_.lower_bound(range.begin);
       each != pairs_.end() && Contains(range, each->first); ++each) {
    ++result.count;
    if (range.limit > 0 && result.count > range.limit) continue;
    result.pairs.push_back(each->second);
    if (range.keys_only) result.pairs.back().value.clear();
  }
  return result;
}

void EtcdState::Remember(Changes changes) {
  if (changes.empty()) return;
  history_[++revision_] = std::move(changes);
}

// ----------------------------------------------------------------------------------------------
// leases

EtcdLease EtcdState::Grant(Duration ttl, Instant now) {
  const Duration granted =
      std::max<Duration>(std::chrono::ceil<std::chrono::seconds>(ttl), kEtcdLeaseMin);
  const auto id = static_cast<int64_t>((prng_.Next() >> 1) | 1);
  leases_[id] = {.ttl = granted, .ends = now + granted};
  return {id, granted};
}

bool EtcdState::IsExpired(int64_t lease, Instant now) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.ends <= now;
}

Result<Duration> EtcdState::KeepAlive(int64_t lease, Instant now) {
  const auto found = leases_.find(lease);
  if (found == leases_.end() || found->second.ends <= now)
    return Error{Code::kNotFound, Concat("there is no lease ", lease)};
  found->second.ends = now + found->second.ttl;
  return found->second.ttl;
}

Status EtcdState::Revoke(int64_t lease) {
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return Error{Code::kNotFound, Concat("there is no lease ", lease)};
  Changes changes;
  const std::set<std::string> keys = found->second.keys;
  for (const std::string& key : keys) Delete({.begin = key}, changes);
  leases_.erase(found);
  Remember(std::move(changes));
  return Ok();
}

size_t EtcdState::Expire(Instant now, size_t most) {
  std::vector<std::pair<Instant, int64_t>> expired;
  for (const auto& [id, lease] : leases_) {
    if (lease.ends <= now) expired.emplace_back(lease.ends, id);
  }
  std::ranges::sort(expired);
  if (expired.size() > most) expired.resize(most);
  for (const auto& [ends, id] : expired) {
    const Status revoked = Revoke(id);
    MUSTER_ASSERT(revoked.has_value());
  }
  return expired.size();
}

void EtcdState::Promote(Instant now) {
  for (auto& [id, lease] : leases_) lease.ends = now + lease.ttl + kEtcdElection;
}

void EtcdState::Restore(const EtcdState& backup) {
  const Prng ids = prng_;
  *this = backup;
  prng_ = ids;
}

// ----------------------------------------------------------------------------------------------
// history

void EtcdState::Compact(int64_t revision) {
  MUSTER_ASSERT(revision <= revision_);
  compacted_ = std::max(compacted_, revision);
  history_.erase(history_.begin(), history_.lower_bound(compacted_));
}

std::vector<EtcdChange> EtcdState::ChangesFrom(const EtcdRange& range, int64_t revision) const {
  Changes found;
  for (auto each = history_.lower_bound(revision); each != history_.end(); ++each) {
    for (const EtcdChange& change : each->second) {
      if (Contains(range, change.pair.key)) found.push_back(change);
    }
  }
  return found;
}

std::optional<int64_t> EtcdState::FirstChangeFrom(const EtcdRange& range, int64_t revision) const {
  for (auto each = history_.lower_bound(revision); each != history_.end(); ++each) {
    for (const EtcdChange& change : each->second) {
      if (Contains(range, change.pair.key)) return each->first;
    }
  }
  return std::nullopt;
}

}  // namespace muster::sim
