// Any requests, encoded, cut anywhere, scanned and decoded, are the same requests; and no other
// bytes are decoded as one.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <ostream>

#include "store/wire/request_reader.h"

namespace muster::wire {
namespace {

using Strings = std::vector<std::string>;
using Views = std::vector<std::string_view>;

/// A request with memory of its own.
struct Owned {
  Op op = Op::kPing;
  std::string key, expected, value;
  int64_t number = 0;
  Strings keys, values;
  bool operator==(const Owned&) const = default;

  static Owned Of(const Request& request) {
    return {.op = request.op,
            .key = std::string(request.key),
            .expected = std::string(request.expected),
            .value = std::string(request.value),
            .number = request.number,
            .keys = Strings(request.keys.begin(), request.keys.end()),
            .values = Strings(request.values.begin(), request.values.end())};
  }

  void AppendTo(std::string& out) const {
    const Views key_views(keys.begin(), keys.end()), value_views(values.begin(), values.end());
    AppendRequest(out, {.op = op,
                        .key = key,
                        .expected = expected,
                        .value = value,
                        .number = number,
                        .keys = key_views,
                        .values = value_views});
  }
};

std::ostream& operator<<(std::ostream& out, const Owned& request) {
  return out << Name(request.op) << ' ' << rc::toString(request.key) << ' '
             << rc::toString(request.expected) << ' ' << rc::toString(request.value) << ' '
             << request.number << ' ' << rc::toString(request.keys) << ' '
             << rc::toString(request.values);
}

/// A request whose unused fields are empty, as the decoder returns it.
rc::Gen<Owned> AnyRequest() {
  return rc::gen::exec([] {
    const auto text = rc::gen::arbitrary<std::string>();
    Owned out;
    out.op = static_cast<Op>(*rc::gen::inRange<int>(0, kOpCount));
    switch (out.op) {
      case Op::kValidate:
      case Op::kPing:
        out.number = *rc::gen::arbitrary<uint32_t>();
        break;
      case Op::kCompareSet:
        out.expected = *text;
        [[fallthrough]];
      case Op::kSet:
      case Op::kAppend:
      case Op::kQueuePush:
        out.value = *text;
        [[fallthrough]];
      case Op::kGet:
      case Op::kDeleteKey:
      case Op::kQueuePop:
      case Op::kQueueLen:
        out.key = *text;
        break;
      case Op::kAdd:
      case Op::kBarrier:
        out.key = *text;
        out.number = *rc::gen::arbitrary<int64_t>();
        break;
      case Op::kMultiSet:
      case Op::kMultiGet:
      case Op::kCheck:
      case Op::kWait:
        out.keys = *rc::gen::container<Strings>(text);
        if (out.op == Op::kMultiSet)
          out.values = *rc::gen::container<Strings>(out.keys.size(), text);
        break;
      case Op::kGetNumKeys:
      case Op::kCancelWait:
      case Op::kListKeys:
        break;
    }
    return out;
  });
}

/// Works like a connection: keeps the received bytes, and removes every complete request. After
/// each fragment all kept bytes are moved to fresh memory, so that nothing can refer to old bytes.
class Reader {
 public:
  Status Feed(std::string_view bytes) {
    kept_ += bytes;
    auto fresh = std::make_unique<char[]>(kept_.size());
    std::copy(kept_.begin(), kept_.end(), fresh.get());
    size_t done = 0;
    while (true) {
      const std::string_view rest(fresh.get() + done, kept_.size() - done);
      MUSTER_TRY(const size_t size, scanner_.Scan(rest, {}));
      if (size == 0) break;
      RC_ASSERT(size <= rest.size());
      requests.push_back(Owned::Of(decoder_.Decode(rest.substr(0, size))));
      scanner_.Reset();
      decoder_.Clear();
      done += size;
    }
    kept_.erase(0, done);
    return Ok();
  }

  size_t kept() const { return kept_.size(); }
  std::vector<Owned> requests;

 private:
  std::string kept_;
  RequestScanner scanner_;
  RequestDecoder decoder_;
};

std::string Bytes(const std::vector<Owned>& requests) {
  std::string out;
  for (const Owned& request : requests) request.AppendTo(out);
  return out;
}

RC_GTEST_PROP(RequestStreamTest, RequestsSurviveAnyFragmentation, ()) {
  const auto sent = *rc::gen::scale(0.3, rc::gen::container<std::vector<Owned>>(AnyRequest()));
  const std::string bytes = Bytes(sent);
  Reader reader;
  for (size_t at = 0; at < bytes.size();) {
    const size_t step =
        *rc::gen::oneOf(rc::gen::inRange<size_t>(1, 10), rc::gen::inRange<size_t>(1, 2000));
    RC_ASSERT(reader.Feed(std::string_view(bytes).substr(at, step)).has_value());
    at += step;
  }
  RC_ASSERT(reader.requests == sent);
  RC_ASSERT(reader.kept() == 0u);
}

RC_GTEST_PROP(RequestStreamTest, ATruncatedRequestIsNeverARequest, ()) {
  const Owned request = *AnyRequest();
  const std::string bytes = Bytes({request});
  for (size_t size = 0; size < bytes.size(); ++size) {
    Reader reader;
    RC_ASSERT(reader.Feed(std::string_view(bytes).substr(0, size)).has_value());
    RC_ASSERT(reader.requests.empty());
  }
}

// Whatever a hostile peer sends, the reader stays inside its bytes (the sanitizer checks this), and
// accepts only requests that encode to exactly the received bytes.
RC_GTEST_PROP(RequestStreamTest, OfDamagedBytesOnlyWhatEncodesToThemIsARequest, ()) {
  std::string bytes =
      Bytes(*rc::gen::scale(0.2, rc::gen::container<std::vector<Owned>>(AnyRequest())));
  const int wounds = *rc::gen::inRange(1, 8);
  for (int i = 0; i < wounds && !bytes.empty(); ++i) {
    const size_t at = *rc::gen::inRange<size_t>(0, bytes.size());
    const char byte = *rc::gen::oneOf(rc::gen::arbitrary<char>(), rc::gen::inRange('\0', '\x14'));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        bytes[at] = byte;
        break;
      case 1:
        bytes.insert(at, 1, byte);
        break;
      default:
        bytes.erase(at, *rc::gen::inRange<size_t>(1, 9));
    }
  }
  Reader reader;
  const Status fed = reader.Feed(bytes);
  const std::string read = Bytes(reader.requests);
  RC_ASSERT(bytes.starts_with(read));
  if (fed) RC_ASSERT(read.size() + reader.kept() == bytes.size());
  if (!fed) RC_ASSERT(fed.error().code == Code::kProtocol);
}

RC_GTEST_PROP(RequestStreamTest, FragmentationDoesNotChangeTheVerdictOnDamagedBytes, ()) {
  std::string bytes =
      Bytes(*rc::gen::scale(0.2, rc::gen::container<std::vector<Owned>>(AnyRequest())));
  RC_PRE(!bytes.empty());
  bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  Reader whole, pieces;
  const bool accepted = whole.Feed(bytes).has_value();
  bool still = true;
  for (size_t at = 0; at < bytes.size() && still; ++at)
    still = pieces.Feed(bytes.substr(at, 1)).has_value();
  RC_ASSERT(still == accepted);
  RC_ASSERT(pieces.requests == whole.requests);
}

}  // namespace
}  // namespace muster::wire
