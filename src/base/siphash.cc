#include "base/siphash.h"

#include <bit>
#include <cstddef>

#include "base/bytes.h"

namespace muster {

namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void Round() {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }

  void Absorb(uint64_t word) {
    v3 ^= word;
    Round();
    v0 ^= word;
  }
};

// The `count` bytes, fewer than eight, after the last whole word.
uint64_t LoadRest(const char* bytes, size_t count, size_t before) {
  if (count == 0) return 0;
  // Reads them from the whole word that ends at the same byte, if there is one: no loop, no call.
  if (before >= 8) return LoadInt<uint64_t>(bytes + count - 8) >> (64 - 8 * count);
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i) word |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return word;
}

}  // namespace

uint64_t SipHash13(const SipKey& key, std::string_view text) {
  State state{key.first ^ 0x736f6d6570736575, key.second ^ 0x646f72616e646f6d,
              key.first ^ 0x6c7967656e657261, key.second ^ 0x7465646279746573};
  const char* at = text.data();
  const char* const end_of_words = at + text.size() / 8 * 8;
  for (; at != end_of_words; at += 8) state.Absorb(LoadInt<uint64_t>(at));
  state.Absorb(LoadRest(at, text.size() % 8, text.size()) |
               (static_cast<uint64_t>(text.size()) << 56));
  state.v2 ^= 0xff;
  for (int i = 0; i < 3; ++i) state.Round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace muster
