#include "support/bytes.h"

#include <bit>
#include <cctype>
#include <stdexcept>

namespace muster::test {

namespace {

static_assert(std::endian::native == std::endian::little);

std::string LittleEndian(uint64_t number, size_t bytes) {
  return std::string(reinterpret_cast<const char*>(&number), bytes);
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  throw std::invalid_argument(std::string("not a hex digit: ") + c);
}

std::string Op(int number) { return std::string(1, static_cast<char>(number)); }

std::string List(int op, const Keys& keys) {
  std::string out = Op(op) + U64(keys.size());
  for (const std::string& key : keys) out += Blob(key);
  return out;
}

}  // namespace

std::string Hex(std::string_view digits) {
  std::string out;
  int high = -1;
  for (const char c : digits) {
    if (std::isspace(static_cast<unsigned char>(c))) continue;
    if (high < 0) {
      high = Digit(c);
    } else {
      out += static_cast<char>(high * 16 + Digit(c));
      high = -1;
    }
  }
  if (high >= 0) throw std::invalid_argument("half a byte");
  return out;
}

std::string ToHex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr size_t kShown = 64;
  std::string out;
  for (const char c : bytes.substr(0, kShown)) {
    if (!out.empty()) out += ' ';
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  if (bytes.size() > kShown) out += " ... (" + std::to_string(bytes.size()) + " bytes)";
  return out;
}

std::string U32(uint32_t number) { return LittleEndian(number, 4); }
std::string U64(uint64_t number) { return LittleEndian(number, 8); }
std::string I64(int64_t number) { return U64(static_cast<uint64_t>(number)); }
std::string Blob(std::string_view bytes) { return U64(bytes.size()) + std::string(bytes); }

std::string ValidateBytes() { return Hex("00 ce f7 85 3c"); }
std::string PingBytes(uint32_t nonce) { return Op(13) + U32(nonce); }
std::string SetBytes(std::string_view key, std::string_view value) {
  return Op(1) + Blob(key) + Blob(value);
}
std::string CompareSetBytes(std::string_view key, std::string_view expected,
                            std::string_view desired) {
  return Op(2) + Blob(key) + Blob(expected) + Blob(desired);
}
std::string GetBytes(std::string_view key) { return Op(3) + Blob(key); }
std::string AddBytes(std::string_view key, int64_t delta) { return Op(4) + Blob(key) + I64(delta); }
std::string CheckBytes(const Keys& keys) { return List(5, keys); }
std::string WaitBytes(const Keys& keys) { return List(6, keys); }
std::string NumKeysBytes() { return Op(7); }
std::string DeleteBytes(std::string_view key) { return Op(8) + Blob(key); }
std::string AppendBytes(std::string_view key, std::string_view suffix) {
  return Op(9) + Blob(key) + Blob(suffix);
}
std::string MultiGetBytes(const Keys& keys) { return List(10, keys); }
std::string MultiSetBytes(const Pairs& pairs) {
  std::string out = Op(11) + U64(pairs.size());
  for (const auto& [key, value] : pairs) out += Blob(key) + Blob(value);
  return out;
}
std::string CancelBytes() { return Op(12); }
std::string PushBytes(std::string_view key, std::string_view element) {
  return Op(14) + Blob(key) + Blob(element);
}
std::string PopBytes(std::string_view key) { return Op(15) + Blob(key); }
std::string QueueLenBytes(std::string_view key) { return Op(16) + Blob(key); }
std::string ListKeysBytes() { return Op(17); }
std::string BarrierBytes(std::string_view key, int64_t world_size) {
  return Op(18) + Blob(key) + I64(world_size);
}

}  // namespace muster::test
