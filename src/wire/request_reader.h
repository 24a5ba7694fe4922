// Bytes to requests. The reader finds where a request ends, whatever the fragmentation, and then
// gives it as views into the bytes: nothing is copied, nothing is read twice, and a length is
// judged as soon as it is there, before anyone reserves memory for what it promises.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"
#include "core/store/request.h"

namespace muster::wire {

struct RequestLimits {
  uint64_t key_bytes_max = kKeyBytesMax;
  uint64_t value_bytes_max = kValueBytesMax;
  uint64_t keys_max = kKeysPerRequestMax;
  uint64_t request_bytes_max = kRequestBytesMax;
};

/// Finds the end of one request. Resumable: feed it the same bytes with more behind them, and it
/// goes on where it stopped, so that a request of a million pieces costs no more than one that
/// comes whole.
class RequestScanner {
 public:
  /// `bytes` starts at the request's opcode. Returns the request's size when it is complete, 0 when
  /// more bytes are needed, kProtocol when it can never become a request we accept.
  Result<size_t> Scan(std::string_view bytes, const RequestLimits& limits);

  /// Forget the request that was being scanned.
  void Reset() { *this = RequestScanner(); }

  /// Bytes that the request has at least, as far as its lengths are known: what a buffer may grow
  /// to.
  size_t known_bytes() const { return offset_; }

 private:
  Status Field(char field, std::string_view bytes, const RequestLimits& limits);
  Status Advance(Op op, uint64_t header, uint64_t body, const RequestLimits& limits);

  size_t offset_ = 0;  // where the next field starts; beyond the bytes while a blob is incomplete
  size_t letter_ = 0;  // index of that field in the layout
  size_t repeat_from_ = 0;  // letter after '*'
  uint64_t repeats_left_ = 0;
  bool stuck_ = false;  // the field's own header is incomplete
};

/// Takes a complete request (as the scanner found it) apart. Keeps the memory behind Request::keys
/// and Request::values of the requests decoded since Clear().
class RequestDecoder {
 public:
  RequestDecoder() : short_lists_(kShortListsMax) {}

  Request Decode(std::string_view bytes);
  void Clear();

 private:
  using List = std::vector<std::string_view>;
  static constexpr size_t kShortListsMax = 512;

  /// Room for `count` views that stays where it is until Clear().
  std::span<std::string_view> NewList(size_t count);

  // Nearly all lists name one key; those share one vector that never grows, so that a CHECK costs
  // no allocation. The others get a vector each.
  List short_lists_;
  size_t short_lists_used_ = 0;
  std::vector<List> long_lists_;
};

/// How many bytes AppendRequest() appends.
uint64_t RequestBytes(const Request& request);

/// Appends the request's bytes to `out`: the inverse of the decoder.
void AppendRequest(std::string& out, const Request& request);

}  // namespace muster::wire
