// Scopes: sets of keys that are deleted together.
//
// The keys of one round of one run begin with "/muster.run/GENERATION/ROUND/" on the wire and form
// one scope; no other key is in a scope. A live run opens the scope of a round and drops it when
// the round is over. Keys of an unopened scope (of a late client, or from before a restart of the
// server) are kept for a while. Pure; one owner.
#pragma once

#include <cstddef>
#include <list>
#include <string_view>

#include "base/memory_account.h"
#include "base/time.h"
#include "store/core/key_table.h"

namespace muster {

/// The scope that a key of the wire belongs to; empty if none.
std::string_view ScopeOf(std::string_view key);

class Scopes {
 public:
  struct Scope;

  /// Base of members of a scope, which must leave it before they are destroyed.
  struct Member {
    enum class Kind : uint8_t { kEntry, kQueue };
    explicit Member(Kind of) : kind(of) {}
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    Member* before = nullptr;
    Member* after = nullptr;
    Scope* scope = nullptr;  // null: in no scope
    const Kind kind;
  };

  /// The account, which outlives this object, counts the memory of the scopes, without their
  /// members.
  Scopes(const KeyHasher& hasher, Duration stray_kept, MemoryAccount& account)
      : hasher_(hasher), stray_kept_(stray_kept), account_(account), scopes_(account) {}

  size_t size() const { return scopes_.size(); }
  /// Whether there are unopened scopes.
  bool has_strays() const { return !strays_.empty(); }

  /// The scope now exists until it is dropped.
  void Open(std::string_view name);

  /// Puts a new member into the scope of its key, if that has one.
  void Join(Member& member, std::string_view key, Instant now) {
    if (const std::string_view name = ScopeOf(key); !name.empty()) JoinNamed(member, name, now);
  }

  /// An unopened scope is forgotten with its last member.
  void Leave(Member& member) {
    if (member.scope != nullptr) LeaveNamed(member);
  }

  /// Some member of the scope; null if there is none.
  Member* AnyOf(std::string_view name) const;
  /// Closes the scope: its members are overdue immediately. A scope without members is forgotten.
  void Close(std::string_view name);

  /// Some member of a scope that was not opened in time; null if there is none.
  Member* Overdue(Instant now) const;

 private:
  using Strays = std::list<Scope*>;

  void JoinNamed(Member& member, std::string_view name, Instant now);
  void LeaveNamed(Member& member);
  void Erase(Scope& scope);

  const KeyHasher hasher_;
  const Duration stray_kept_;
  MemoryAccount& account_;
  KeyTable<Scope> scopes_;
  Strays strays_;  // unopened ones, oldest first
};

struct Scopes::Scope : KeyNode<Scope> {
  // Includes its entries in the table and in the list of strays.
  Scope(const HashedKey& name, MemoryAccount& account)
      : KeyNode(name),
        charge(account, AllocatedBytes(sizeof(Scope)) + HeapBytes(key) +
                            AllocatedBytes(4 * sizeof(void*))) {}

  const Charge charge;

  Member* first = nullptr;
  bool open = false;
  Instant ends{};            // unless it is open
  Strays::iterator stray{};  // unless it is open
};

}  // namespace muster
