// TCPStore requests. Any bytes, cut into any pieces, are the same requests and get the same
// verdict. What is read as a request encodes to exactly the bytes that it was read from. A request
// that was built encodes to what is read as the same.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "store/wire/layout.h"
#include "store/wire/request_reader.h"

namespace muster::fuzz {
namespace {

using wire::RequestDecoder;
using wire::RequestLimits;
using wire::RequestScanner;

constexpr RequestLimits kAllLimits[] = {
    {},
    {.key_bytes_max = 8, .value_bytes_max = 16, .keys_max = 3, .request_bytes_max = 64},
    // The highest limits that an operator may set: no addition may overflow.
    {.key_bytes_max = UINT64_MAX,
     .value_bytes_max = UINT64_MAX,
     .keys_max = UINT64_MAX,
     .request_bytes_max = UINT64_MAX},
    {.key_bytes_max = UINT64_MAX, .value_bytes_max = UINT64_MAX, .request_bytes_max = 1 << 20},
};

/// The result of a stream: the sizes of its requests, and why it was not read further.
struct Verdict {
  std::vector<size_t> sizes;
  std::string refusal;
  bool operator==(const Verdict&) const = default;
};

/// Scans complete requests at the beginning of `arrived` (all bytes of the stream so far).
void ScanOn(RequestScanner& scanner, std::string_view arrived, size_t& done,
            const RequestLimits& limits, Verdict& verdict) {
  while (verdict.refusal.empty()) {
    const ExactCopy rest(arrived.substr(done));
    const Result<size_t> size = scanner.Scan(rest.view(), limits);
    FUZZ_CHECK(scanner.known_bytes() <= std::max<uint64_t>(limits.request_bytes_max, 1));
    if (!size) {
      FUZZ_CHECK(size.error().code == Code::kProtocol);
      CheckMessage(size.error().message);
      verdict.refusal = size.error().message;
    } else if (*size == 0) {
      return;
    } else {
      FUZZ_CHECK(*size <= rest.view().size());
      verdict.sizes.push_back(*size);
      done += *size;
      scanner.Reset();
    }
  }
}

Verdict ScanWhole(std::string_view stream, const RequestLimits& limits) {
  Verdict verdict;
  RequestScanner scanner;
  size_t done = 0;
  ScanOn(scanner, stream, done, limits, verdict);
  return verdict;
}

/// A stream that does not come whole comes in pieces of up to 1, 4, 16 or 64 bytes.
Verdict ScanPieces(std::string_view stream, const RequestLimits& limits, uint8_t cuts) {
  const uint64_t piece_max = uint64_t{1} << 2 * (cuts & 3);
  Prng prng(cuts);
  Verdict verdict;
  RequestScanner scanner;
  size_t done = 0;
  for (size_t arrived = 0; arrived < stream.size() && verdict.refusal.empty();) {
    arrived = std::min(arrived + 1 + prng.Below(piece_max), stream.size());
    ScanOn(scanner, stream.substr(0, arrived), done, limits, verdict);
  }
  return verdict;
}

void CheckLimits(const Request& request, const RequestLimits& limits) {
  FUZZ_CHECK(request.key.size() <= limits.key_bytes_max);
  FUZZ_CHECK(request.value.size() <= limits.value_bytes_max);
  FUZZ_CHECK(request.expected.size() <= limits.value_bytes_max);
  FUZZ_CHECK(request.keys.size() <= limits.keys_max);
  for (const std::string_view key : request.keys) FUZZ_CHECK(key.size() <= limits.key_bytes_max);
  for (const std::string_view value : request.values)
    FUZZ_CHECK(value.size() <= limits.value_bytes_max);
}

bool Same(const Request& a, const Request& b) {
  return a.op == b.op && a.key == b.key && a.expected == b.expected && a.value == b.value &&
         a.number == b.number && std::ranges::equal(a.keys, b.keys) &&
         std::ranges::equal(a.values, b.values);
}

/// Whether all views of the request lie in these bytes.
bool ShowsOnly(const Request& request, std::string_view bytes) {
  const auto inside = [&](std::string_view view) {
    return view.data() == nullptr || (view.data() >= bytes.data() &&
                                      view.data() + view.size() <= bytes.data() + bytes.size());
  };
  return inside(request.key) && inside(request.expected) && inside(request.value) &&
         std::ranges::all_of(request.keys, inside) && std::ranges::all_of(request.values, inside);
}

/// As in a connection, all requests are decoded before the first is looked at. Requests with long
/// lists are decoded several times, until the memory for short ones is used up. What a decoder has
/// returned must not change.
void CheckDecoded(std::string_view stream, const std::vector<size_t>& sizes,
                  const RequestLimits& limits) {
  constexpr size_t kLong = 8 * 64;  // bytes of 64 empty keys; a decoder has room for 512
  const bool is_long = std::ranges::any_of(sizes, [](size_t size) { return size > kLong; });
  const std::vector<ExactCopy> copies = {is_long ? size_t{9} : size_t{1}, ExactCopy(stream)};
  RequestDecoder decoder;
  std::vector<Request> requests;
  for (const ExactCopy& copy : copies) {
    std::string_view rest = copy.view();
    for (const size_t size : sizes) {
      const Request& request = requests.emplace_back(decoder.Decode(rest.substr(0, size)));
      Request at_once;
      const size_t whole = decoder.DecodeWhole(rest, limits, at_once);
      const bool is_short = !wire::ListReader::IsList(rest) || request.keys.size() == 1;
      FUZZ_CHECK(whole == (is_short ? size : 0));
      FUZZ_CHECK(!is_short || Same(at_once, request));
      rest.remove_prefix(size);
    }
    Request refused;
    FUZZ_CHECK(decoder.DecodeWhole(rest, limits, refused) == 0);
  }
  std::string encoded;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string_view copy = copies[i / sizes.size()].view();
    if (i % sizes.size() == 0) encoded.clear();
    const size_t before = encoded.size();
    FUZZ_CHECK(ShowsOnly(requests[i], copy.substr(before, sizes[i % sizes.size()])));
    CheckLimits(requests[i], limits);
    wire::AppendRequest(encoded, requests[i]);
    FUZZ_CHECK(wire::RequestBytes(requests[i]) == encoded.size() - before);
    FUZZ_CHECK(copy.starts_with(encoded));
  }
}

/// Lists that are parsed while they arrive have the same result as in the scanner, and are refused
/// for the same reason.
void CheckLists(std::string_view stream, const Verdict& whole, const RequestLimits& limits) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  for (const size_t size : whole.sizes) {
    if (wire::ListReader::IsList(stream)) {
      wire::ListReader reader(limits);
      pairs.clear();
      const Result<size_t> read = reader.Read(stream, SIZE_MAX, pairs);
      FUZZ_CHECK(read && *read == size && reader.is_complete());
      RequestDecoder decoder;
      const Request request = decoder.Decode(stream.substr(0, size));
      FUZZ_CHECK(pairs.size() == request.keys.size());
      for (size_t i = 0; i < pairs.size(); ++i) {
        FUZZ_CHECK(pairs[i].first == request.keys[i]);
        FUZZ_CHECK(request.values.empty() || pairs[i].second == request.values[i]);
      }
    }
    stream.remove_prefix(size);
  }
  if (whole.refusal.empty() || stream.empty() || !wire::ListReader::IsList(stream)) return;
  wire::ListReader reader(limits);
  const Result<size_t> read = reader.Read(stream, SIZE_MAX, pairs);
  FUZZ_CHECK(!read && read.error().message == whole.refusal);
}

void CheckStream(std::string_view stream, const RequestLimits& limits, uint8_t cuts) {
  const Verdict whole = ScanWhole(stream, limits);
  const Verdict pieces = ScanPieces(stream, limits, cuts);
  FUZZ_CHECK(pieces.sizes == whole.sizes);
  FUZZ_CHECK(pieces.refusal == whole.refusal, pieces.refusal, "\n", whole.refusal);
  CheckDecoded(stream, whole.sizes, limits);
  CheckLists(stream, whole, limits);
}

/// A request made from the input, with exactly the fields of its layout.
void CheckBuilt(Input& input, const RequestLimits& limits, uint8_t cuts) {
  std::vector<std::string_view> keys, values;
  Request request{.op = static_cast<Op>(input.Byte() % kOpCount)};
  const std::string_view layout = wire::kLayouts[static_cast<uint8_t>(request.op)];
  const bool is_list = layout.starts_with('*');
  for (int count = is_list ? input.Byte() % 8 : 0; count > 0; --count) {
    keys.push_back(input.Text());
    if (layout == "*kv") values.push_back(input.Text());
  }
  request.keys = keys;
  request.values = values;
  for (const char field : is_list ? "" : layout) {
    if (field == 'k') request.key = input.Text();
    if (field == 'e') request.expected = input.Text();
    if (field == 'v') request.value = input.Text();
    if (field == '4') request.number = input.Number<uint32_t>();
    if (field == '8') request.number = input.Number<int64_t>();
  }
  std::string bytes;
  wire::AppendRequest(bytes, request);
  CheckStream(bytes, limits, cuts);
  const Verdict verdict = ScanWhole(bytes, {});
  FUZZ_CHECK(verdict.refusal.empty() && verdict.sizes == std::vector{bytes.size()});
  RequestDecoder decoder;
  FUZZ_CHECK(Same(decoder.Decode(bytes), request));
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::Input input(data, size);
  const uint8_t mode = input.Byte();
  const auto& limits = muster::fuzz::kAllLimits[mode & 3];
  const uint8_t cuts = input.Byte();
  if ((mode & 4) != 0) {
    muster::fuzz::CheckBuilt(input, limits, cuts);
  } else {
    muster::fuzz::CheckStream(input.Rest(), limits, cuts);
  }
  return 0;
}
