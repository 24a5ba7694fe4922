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

#include "base/encoding.h"
#include "base/text.h"
#include "etcd/etcd_port.h"

namespace muster {

class EtcdLayout {
 public:
  /// `prefix` is printable, without a slash at its end.
  explicit EtcdLayout(std::string_view prefix)
      : values_(Concat(prefix, "/keys/")),
        queues_(Concat(prefix, "/queues/")),
        tails_(Concat(prefix, "/tails/")) {}

  std::string ValueOf(std::string_view key) const { return Concat(values_, NameOf(key)); }
  /// All values.
  EtcdRange Values() const { return EtcdPrefix(values_); }
  /// The key whose value this is; nullopt: none.
  std::optional<std::string> KeyOfValue(std::string_view etcd_key) const {
    if (!etcd_key.starts_with(values_)) return std::nullopt;
    return KeyOf(etcd_key.substr(values_.size()));
  }

  EtcdRange QueueOf(std::string_view key) const {
    return EtcdPrefix(Concat(queues_, NameOf(key), kBeforeNumber));
  }
  std::string ElementOf(std::string_view key, uint64_t number) const {
    const std::string digits = Concat(number);
    return Concat(queues_, NameOf(key), kBeforeNumber, std::string(kDigits - digits.size(), '0'),
                  digits);
  }
  std::string TailOf(std::string_view key) const { return Concat(tails_, NameOf(key)); }
  /// The key of the queue that has this element; nullopt: not an element.
  std::optional<std::string> KeyOfElement(std::string_view etcd_key) const {
    const size_t end = etcd_key.rfind(kBeforeNumber);
    if (!etcd_key.starts_with(queues_) || end == std::string_view::npos || end < queues_.size())
      return std::nullopt;
    return KeyOf(etcd_key.substr(queues_.size(), end - queues_.size()));
  }

  /// The number of an element; nullopt: not an element.
  std::optional<uint64_t> NumberOf(std::string_view etcd_key) const {
    if (!KeyOfElement(etcd_key)) return std::nullopt;
    const std::string_view digits = etcd_key.substr(etcd_key.rfind(kBeforeNumber) + 1);
    return digits.size() == kDigits ? ParseAll<uint64_t>(digits) : std::nullopt;
  }

 private:
  static constexpr char kBeforeNumber = '#';
  static constexpr size_t kDigits = 20;  // of the largest number of 64 bits

  static bool IsPlain(char c) { return c > ' ' && c <= '~' && c != '%' && c != kBeforeNumber; }
  static std::string NameOf(std::string_view key) { return PercentEncoded(key, &IsPlain); }
  /// nullopt: it is not such a name.
  static std::optional<std::string> KeyOf(std::string_view name) {
    auto key = PercentDecoded(name);
    if (key && NameOf(*key) != name) return std::nullopt;
    return key;
  }

  const std::string values_;
  const std::string queues_;
  const std::string tails_;
};

}  // namespace muster
