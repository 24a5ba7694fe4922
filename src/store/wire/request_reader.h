// Decodes requests. The scanner finds where a request ends, whatever the fragmentation; the decoder
// returns it as views into the bytes. Nothing is copied, a request that has arrived whole is read
// once, and a length is checked as soon as it has arrived, before memory is reserved for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/result.h"
#include "store/core/key_table.h"
#include "store/core/request.h"
#include "store/wire/layout.h"

namespace muster::wire {

struct RequestLimits {
  uint64_t key_bytes_max = kKeyBytesMax;
  uint64_t value_bytes_max = kValueBytesMax;
  uint64_t keys_max = kKeysPerRequestMax;
  uint64_t request_bytes_max = kRequestBytesMax;
};

/// Finds the end of one request. Resumable: given the same bytes followed by more, it continues
/// where it stopped. So a request in a million fragments costs no more than one that arrives whole.
class RequestScanner {
 public:
  /// `bytes` starts at the request's opcode. Returns the request's size when it is complete, 0 when
  /// more bytes are needed, kProtocol when it can never become an acceptable request.
  Result<size_t> Scan(std::string_view bytes, const RequestLimits& limits);

  /// Forget the request that was being scanned.
  void Reset() { *this = RequestScanner(); }

  /// The least size of the request, as far as its lengths are known; 0 before the first Scan().
  size_t known_bytes() const { return offset_; }

 private:
  size_t offset_ = 0;  // where the next field starts; beyond the bytes while a blob is incomplete
  size_t letter_ = 0;  // index of that field in the layout
  size_t repeat_from_ = 0;  // letter after '*'
  uint64_t repeats_left_ = 0;
};

/// Decodes complete requests. Owns the memory of Request::keys and Request::values of the requests
/// decoded since Clear().
class RequestDecoder {
 public:
  RequestDecoder() = default;
  /// With this constructor, requests also get their hashes.
  explicit RequestDecoder(const KeyHasher& hasher) : hasher_(hasher) {}

  /// Decodes a request that names at most one key into `request`, which is new, and returns its
  /// size. 0: it is incomplete, beyond the limits or has a longer list, and the scanner decides.
  size_t DecodeWhole(std::string_view bytes, const RequestLimits& limits, Request& request);
  /// Decodes any request, of exactly the bytes that the scanner found.
  void Decode(std::string_view bytes, Request& request);
  Request Decode(std::string_view bytes) {
    Request request;
    Decode(bytes, request);
    return request;
  }
  void Clear() {
    lists_.Clear();
    hashes_.Clear();
  }

 private:
  /// Memory for lists, which does not move until Clear(). Nearly all lists have one key; those
  /// share one vector that never grows, so that a CHECK needs no allocation. The others get one
  /// vector each.
  template <typename T>
  class Pool {
   public:
    std::span<T> Take(size_t count) {
      if (count > short_.size() - used_) return long_.emplace_back(count);
      used_ += count;
      return std::span(short_).subspan(used_ - count, count);
    }
    std::span<const T> Keep(const T& value) {
      const std::span<T> one = Take(1);
      one.front() = value;
      return one;
    }
    void Clear() {
      used_ = 0;
      long_.clear();
    }

   private:
    std::vector<T> short_ = std::vector<T>(512);
    size_t used_ = 0;
    std::vector<std::vector<T>> long_;
  };

  /// Moves the key, value and hash of a request into lists.
  void MakeList(Request& request, bool with_value);

  Pool<std::string_view> lists_;
  Pool<uint64_t> hashes_;
  std::optional<KeyHasher> hasher_;
};

/// Decodes a request with a list of keys (CHECK, WAIT, MULTI_GET, MULTI_SET) while it arrives: its
/// bytes need not be kept. Has the scanner's limits.
class ListReader {
 public:
  explicit ListReader(const RequestLimits& limits) : limits_(limits) {}

  /// `bytes` are not empty.
  static bool IsList(std::string_view bytes) {
    const auto opcode = static_cast<uint8_t>(bytes.front());
    return opcode < kOpCount && !kLayouts[opcode].empty() && kLayouts[opcode].front() == '*';
  }
  /// Whether `bytes` begin a request with a list; and its number of keys, if that has arrived.
  static std::optional<uint64_t> CountIn(std::string_view bytes) {
    if (bytes.size() < 9 || !IsList(bytes)) return std::nullopt;
    return LoadInt<uint64_t>(bytes.data() + 1);
  }

  /// `bytes` continue where the last call stopped, which is never within a key or a value. Reads at
  /// most `keys_max` keys into `keys` and `values` (empty except for MULTI_SET), as views of
  /// `bytes`. Returns how many bytes are consumed, or kProtocol.
  Result<size_t> Read(std::string_view bytes, size_t keys_max,
                      std::vector<std::pair<std::string_view, std::string_view>>& read);
  bool is_complete() const { return begun_ && left_ == 0; }
  /// Bytes that have been read.
  uint64_t total() const { return total_; }

 private:
  /// The end of the blob at `at`; 0 if its header is incomplete.
  Result<size_t> EndOfBlob(std::string_view bytes, size_t at, bool is_key) const;

  const RequestLimits limits_;
  bool begun_ = false;
  Op op_ = Op::kCheck;
  uint64_t left_ = 0;   // remaining keys
  uint64_t total_ = 0;  // bytes consumed
};

/// How many bytes AppendRequest() appends.
uint64_t RequestBytes(const Request& request);

/// Appends the request's bytes to `out`: the inverse of the decoder.
void AppendRequest(std::string& out, const Request& request);

}  // namespace muster::wire
