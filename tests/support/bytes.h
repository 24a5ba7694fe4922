// TCPStore's requests as bytes, written independently of src/store/wire, so that a mistake there is
// not repeated here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::test {

/// Hex("00 ce f7 85 3c"): blanks are ignored.
std::string Hex(std::string_view digits);
/// The opposite, for messages: "00 ce f7 85 3c", cut after a few bytes.
std::string ToHex(std::string_view bytes);

std::string U32(uint32_t number);
std::string U64(uint64_t number);
std::string I64(int64_t number);
/// A length and the bytes.
std::string Blob(std::string_view bytes);

using Keys = std::vector<std::string>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

/// Requests. Keys are wire keys: no prefix is added.
std::string ValidateBytes();
std::string PingBytes(uint32_t nonce);
std::string SetBytes(std::string_view key, std::string_view value);
std::string CompareSetBytes(std::string_view key, std::string_view expected,
                            std::string_view desired);
std::string GetBytes(std::string_view key);
std::string AddBytes(std::string_view key, int64_t delta);
std::string CheckBytes(const Keys& keys);
std::string WaitBytes(const Keys& keys);
std::string NumKeysBytes();
std::string DeleteBytes(std::string_view key);
std::string AppendBytes(std::string_view key, std::string_view suffix);
std::string MultiGetBytes(const Keys& keys);
std::string MultiSetBytes(const Pairs& pairs);
std::string CancelBytes();
std::string PushBytes(std::string_view key, std::string_view element);
std::string PopBytes(std::string_view key);
std::string QueueLenBytes(std::string_view key);
std::string ListKeysBytes();
std::string BarrierBytes(std::string_view key, int64_t world_size);

/// The one-byte replies.
inline const std::string kStop = std::string(1, '\0');
inline const std::string kReady = kStop;
inline const std::string kCancelled = "\x01";
inline const std::string kNotReady = kCancelled;

}  // namespace muster::test
