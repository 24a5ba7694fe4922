#include "store/core/scopes.h"

#include <memory>
#include <utility>

#include "base/assert.h"

namespace muster {

std::string_view ScopeOf(std::string_view key) {
  constexpr std::string_view kPrefix = "/muster.run/";
  if (!key.starts_with(kPrefix)) return {};
  const size_t after_generation = key.find('/', kPrefix.size());
  if (after_generation == std::string_view::npos) return {};
  const size_t after_round = key.find('/', after_generation + 1);
  if (after_round == std::string_view::npos) return {};
  return key.substr(0, after_round + 1);
}

void Scopes::Erase(Scope& scope) {
  MUSTER_ASSERT(scope.first == nullptr);
  if (!scope.open) strays_.erase(scope.stray);
  scopes_.Remove(scope);
}

void Scopes::Open(std::string_view name) {
  const HashedKey key = hasher_(name);
  Scope* scope = scopes_.Find(key);
  if (scope == nullptr) {
    scopes_.Insert(std::make_unique<Scope>(key, account_)).open = true;
  } else if (!scope->open) {
    strays_.erase(scope->stray);
    scope->open = true;
  }
}

void Scopes::JoinNamed(Member& member, std::string_view name, Instant now) {
  const HashedKey key = hasher_(name);
  Scope* scope = scopes_.Find(key);
  if (scope == nullptr) {
    scope = &scopes_.Insert(std::make_unique<Scope>(key, account_));
    scope->ends = now + stray_kept_;
    scope->stray = strays_.insert(strays_.end(), scope);
  }
  member.scope = scope;
  member.before = nullptr;
  member.after = scope->first;
  if (scope->first != nullptr) scope->first->before = &member;
  scope->first = &member;
}

void Scopes::LeaveNamed(Member& member) {
  Scope& scope = *std::exchange(member.scope, nullptr);
  (member.before != nullptr ? member.before->after : scope.first) = member.after;
  if (member.after != nullptr) member.after->before = member.before;
  if (scope.first == nullptr && !scope.open) Erase(scope);
}

Scopes::Member* Scopes::AnyOf(std::string_view name) const {
  const Scope* scope = scopes_.Find(hasher_(name));
  return scope == nullptr ? nullptr : scope->first;
}

void Scopes::Close(std::string_view name) {
  Scope* scope = scopes_.Find(hasher_(name));
  if (scope == nullptr) return;
  if (scope->first == nullptr) return Erase(*scope);
  if (!scope->open) strays_.erase(scope->stray);
  scope->open = false;
  scope->ends = Instant{};
  scope->stray = strays_.insert(strays_.begin(), scope);
}

Scopes::Member* Scopes::Overdue(Instant now) const {
  if (strays_.empty() || strays_.front()->ends > now) return nullptr;
  return strays_.front()->first;
}

}  // namespace muster
