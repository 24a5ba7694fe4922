// The layout of each TCPStore request: one table for scanning, decoding and encoding.
// docs/reference/protocol.md has the same table in words, with worked examples in hex.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "store/core/request.h"

namespace muster::wire {

/// VALIDATE's argument: it filters out port scanners and is not a secret.
inline constexpr uint32_t kMagic = 0x3C85F7CE;

/// The fields after the opcode byte, one letter each:
///   k key, v value, e expected value (each a u64 length and bytes) · 4 u32 · 8 i64 ·
///   * a u64 count; the letters after it repeat that many times.
inline constexpr std::array<std::string_view, kOpCount> kLayouts = {
    "4",    // VALIDATE magic
    "kv",   // SET
    "kev",  // COMPARE_SET
    "k",    // GET
    "k8",   // ADD delta
    "*k",   // CHECK
    "*k",   // WAIT
    "",     // GETNUMKEYS
    "k",    // DELETE_KEY
    "kv",   // APPEND suffix
    "*k",   // MULTI_GET
    "*kv",  // MULTI_SET
    "",     // CANCEL_WAIT
    "4",    // PING nonce
    "kv",   // QUEUE_PUSH
    "k",    // QUEUE_POP
    "k",    // QUEUE_LEN
    "",     // LIST_KEYS
    "k8",   // BARRIER world size
};

}  // namespace muster::wire
