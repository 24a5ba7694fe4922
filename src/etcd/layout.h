// Where a store's keys are in etcd, so that a person with etcdctl finds them:
//
//   PREFIX/keys/KEY             a value
//   PREFIX/queues/KEY#NUMBER    an element of a queue; twenty digits, the smallest is the oldest
//   PREFIX/tails/KEY            the number of the queue's next element
//
// KEY is the key itself, with %XX for '%', '#' and every byte that is no printable ASCII. So each
// key has one name, no name contains another queue's, and the order of numbers is that of etcd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "etcd/etcd_port.h"

namespace muster {

/// The key as it is written in etcd, and back. nullopt: nobody writes a key like that.
std::string EscapedEtcdKey(std::string_view key);
std::optional<std::string> UnescapedEtcdKey(std::string_view name);

/// Names are those of EscapedEtcdKey().
class EtcdLayout {
 public:
  /// `prefix` is printable text, without a slash at its end.
  explicit EtcdLayout(std::string_view prefix);

  std::string ValueOf(std::string_view key) const;
  /// All values.
  EtcdRange Values() const;
  /// The key whose value is there; nullopt if no value is.
  std::optional<std::string> KeyOfValue(std::string_view etcd_key) const;

  EtcdRange QueueOf(std::string_view key) const;
  std::string ElementOf(std::string_view key, uint64_t number) const;
  std::string TailOf(std::string_view key) const;
  /// The key whose queue an element is in; nullopt if no element is.
  std::optional<std::string> KeyOfElement(std::string_view etcd_key) const;

  /// The number of an element; nullopt if none is there.
  std::optional<uint64_t> NumberOf(std::string_view etcd_key) const;

 private:
  const std::string values_;
  const std::string queues_;
  const std::string tails_;
};

}  // namespace muster
