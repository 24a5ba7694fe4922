// The bytes that libFuzzer made, as values that a fuzzer needs. After their end come zeros, so
// every input is complete, and a shorter input is a simpler one.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace muster::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : bytes_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return bytes_.empty(); }

  template <std::integral T>
  T Number() {
    std::string raw(Rest(sizeof(T)));
    raw.resize(sizeof(T));
    return LoadInt<T>(raw.data());
  }
  uint8_t Byte() { return Number<uint8_t>(); }
  bool Flag() { return (Byte() & 1) != 0; }

  /// One of the values, chosen by one byte.
  template <typename List>
  const auto& OneOf(const List& list) {
    return std::data(list)[Byte() % std::size(list)];
  }

  /// As many bytes as the next byte says.
  std::string_view Text() { return Rest(Byte()); }

  /// All that is left, but at most so much.
  std::string_view Rest(size_t most = std::string_view::npos) {
    const std::string_view taken = bytes_.substr(0, most);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view bytes_;
};

/// A copy of exactly the size of the bytes: AddressSanitizer sees reads past the end.
class ExactCopy {
 public:
  explicit ExactCopy(std::string_view bytes) : bytes_(bytes.begin(), bytes.end()) {
    bytes_.shrink_to_fit();
  }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::vector<char> bytes_;
};

}  // namespace muster::fuzz
