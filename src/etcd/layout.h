// The keys of a store in etcd, readable with etcdctl:
//
//   PREFIX/keys/KEY             a value
//   PREFIX/queues/KEY#NUMBER    an element of a queue; twenty digits, the smallest is the oldest
//   PREFIX/tails/KEY            the number of the queue's next element
//
// KEY is the key itself, with %XX for '%', '#', blanks and bytes that are not printable ASCII. So
// each key has one name, no queue's name begins another's, and etcd sorts elements by number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "etcd/etcd_port.h"

namespace muster {

class EtcdLayout {
 public:
  /// `prefix` is printable, without a slash at its end.
  explicit EtcdLayout(std::string_view prefix);

  std::string ValueOf(std::string_view key) const;
  /// All values.
  EtcdRange Values() const;
  /// The key whose value this is; nullopt: none.
  std::optional<std::string> KeyOfValue(std::string_view etcd_key) const;

  EtcdRange QueueOf(std::string_view key) const;
  std::string ElementOf(std::string_view key, uint64_t number) const;
  std::string TailOf(std::string_view key) const;
  /// The key of the queue that has this element; nullopt: not an element.
  std::optional<std::string> KeyOfElement(std::string_view etcd_key) const;

  /// The number of an element; nullopt: not an element.
  std::optional<uint64_t> NumberOf(std::string_view etcd_key) const;

 private:
  const std::string values_;
  const std::string queues_;
  const std::string tails_;
};

}  // namespace muster
