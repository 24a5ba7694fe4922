// Little-endian integers in byte strings: the base of every format that muster reads and writes.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace muster {

static_assert(std::endian::native == std::endian::little,
              "TCPStore writes integers in host order; every platform it runs on is little-endian");

template <std::integral T>
void AppendInt(std::string& out, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  out.append(raw, sizeof value);
}

/// The caller has checked that there are enough bytes.
template <std::integral T>
T LoadInt(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// u64 length, then the bytes: TCPStore's `str` and `bytes`.
inline void AppendBlob(std::string& out, std::string_view bytes) {
  AppendInt<uint64_t>(out, bytes.size());
  out += bytes;
}

}  // namespace muster
