#include "etcd/layout.h"

#include <charconv>
#include <system_error>

#include "base/percent.h"
#include "base/text.h"

namespace muster {

namespace {

constexpr char kBeforeNumber = '#';
constexpr size_t kDigits = 20;  // of the largest number of 64 bits

bool IsPlain(char c) { return c > ' ' && c <= '~' && c != '%' && c != kBeforeNumber; }

std::string NameOf(std::string_view key) { return PercentEncoded(key, &IsPlain); }

/// nullopt: not such a name.
std::optional<std::string> KeyOf(std::string_view name) {
  auto key = PercentDecoded(name);
  if (key && NameOf(*key) != name) return std::nullopt;
  return key;
}

}  // namespace

EtcdLayout::EtcdLayout(std::string_view prefix)
    : values_(Concat(prefix, "/keys/")),
      queues_(Concat(prefix, "/queues/")),
      tails_(Concat(prefix, "/tails/")) {}

std::string EtcdLayout::ValueOf(std::string_view key) const { return Concat(values_, NameOf(key)); }

EtcdRange EtcdLayout::Values() const { return EtcdPrefix(values_); }

std::optional<std::string> EtcdLayout::KeyOfValue(std::string_view etcd_key) const {
  if (!etcd_key.starts_with(values_)) return std::nullopt;
  return KeyOf(etcd_key.substr(values_.size()));
}

EtcdRange EtcdLayout::QueueOf(std::string_view key) const {
  return EtcdPrefix(Concat(queues_, NameOf(key), kBeforeNumber));
}

std::string EtcdLayout::ElementOf(std::string_view key, uint64_t number) const {
  const std::string digits = Concat(number);
  return Concat(queues_, NameOf(key), kBeforeNumber, std::string(kDigits - digits.size(), '0'),
                digits);
}

std::string EtcdLayout::TailOf(std::string_view key) const { return Concat(tails_, NameOf(key)); }

std::optional<std::string> EtcdLayout::KeyOfElement(std::string_view etcd_key) const {
  const size_t end = etcd_key.rfind(kBeforeNumber);
  if (!etcd_key.starts_with(queues_) || end == std::string_view::npos || end < queues_.size())
    return std::nullopt;
  return KeyOf(etcd_key.substr(queues_.size(), end - queues_.size()));
}

std::optional<uint64_t> EtcdLayout::NumberOf(std::string_view etcd_key) const {
  if (!KeyOfElement(etcd_key)) return std::nullopt;
  const std::string_view digits = etcd_key.substr(etcd_key.rfind(kBeforeNumber) + 1);
  uint64_t number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.size() != kDigits || failure != std::errc() || end != digits.data() + kDigits)
    return std::nullopt;
  return number;
}

}  // namespace muster
