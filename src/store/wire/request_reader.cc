#include "store/wire/request_reader.h"

#include <algorithm>

#include "base/text.h"

namespace muster::wire {

namespace {

Error TooLarge(Op op, std::string_view what, uint64_t came, uint64_t allowed) {
  return MakeError(Code::kProtocol, Name(op), ": ", what, " of ", came, ", limit ", allowed);
}

Status CheckBlob(Op op, bool is_key, uint64_t bytes, const RequestLimits& limits) {
  const uint64_t allowed = is_key ? limits.key_bytes_max : limits.value_bytes_max;
  if (bytes <= allowed) return Ok();
  return TooLarge(op, is_key ? "key bytes" : "value bytes", bytes, allowed);
}

// The end of a field whose body begins at `before`. Compares before adding: with limits that an
// operator has raised, the sum must not wrap.
Result<uint64_t> EndOf(Op op, uint64_t before, uint64_t body, const RequestLimits& limits) {
  const uint64_t most = limits.request_bytes_max;
  if (body <= most && before <= most - body) return before + body;
  return TooLarge(op, "request bytes", body > UINT64_MAX - before ? UINT64_MAX : before + body,
                  most);
}

}  // namespace

Result<size_t> RequestScanner::Scan(std::string_view bytes, const RequestLimits& limits) {
  if (bytes.empty()) return size_t{0};
  const auto opcode = static_cast<uint8_t>(bytes[0]);
  if (opcode >= kOpCount) {
    return MakeError(Code::kProtocol, "opcode ", opcode, ", the highest known is ", kOpCount - 1);
  }
  const auto op = static_cast<Op>(opcode);
  const std::string_view layout = kLayouts[opcode];
  if (offset_ == 0) offset_ = 1;
  while (letter_ < layout.size()) {
    const char field = layout[letter_];
    const size_t header = field == '4' ? 4 : 8;
    if (offset_ > bytes.size() || bytes.size() - offset_ < header) return size_t{0};
    uint64_t count = 1;  // remaining keys, if a field gives their number
    uint64_t body = 0;
    if (field == '*') {
      count = LoadInt<uint64_t>(bytes.data() + offset_);
      if (count > limits.keys_max) return TooLarge(op, "key count", count, limits.keys_max);
      repeats_left_ = count;
      repeat_from_ = letter_ + 1;
    } else if (field != '4' && field != '8') {
      body = LoadInt<uint64_t>(bytes.data() + offset_);
      MUSTER_CHECK_OK(CheckBlob(op, field == 'k', body, limits));
    }
    MUSTER_TRY(offset_, EndOf(op, offset_ + header, body, limits));
    letter_ = count == 0 ? layout.size() : letter_ + 1;
    if (letter_ == layout.size() && repeats_left_ > 1) {
      --repeats_left_;
      letter_ = repeat_from_;
    }
  }
  return offset_ <= bytes.size() ? offset_ : size_t{0};
}

// Nearly all requests take this way: each byte is looked at once, and nothing is remembered.
size_t RequestDecoder::DecodeWhole(std::string_view bytes, const RequestLimits& limits,
                                   Request& request) {
  if (bytes.empty() || static_cast<uint8_t>(bytes[0]) >= kOpCount) return 0;
  request.op = static_cast<Op>(bytes[0]);
  const std::string_view layout = kLayouts[static_cast<uint8_t>(bytes[0])];
  size_t at = 1;
  for (const char field : layout) {
    const size_t header = field == '4' ? 4 : 8;
    if (bytes.size() - at < header) return 0;
    const char* const body = bytes.data() + at + header;
    if (field == '4') {
      request.number = LoadInt<uint32_t>(bytes.data() + at);
      at += header;
      continue;
    }
    const auto word = LoadInt<uint64_t>(bytes.data() + at);
    at += header;
    if (field == '8') {
      request.number = static_cast<int64_t>(word);
    } else if (field == '*') {
      if (word != 1 || limits.keys_max == 0) return 0;
    } else {
      if (word > (field == 'k' ? limits.key_bytes_max : limits.value_bytes_max)) return 0;
      if (word > bytes.size() - at) return 0;
      at += word;
      if (field == 'k') {
        request.key = {body, word};
        if (hasher_) request.hash = hasher_->Hash(request.key);
      } else {
        (field == 'v' ? request.value : request.expected) = {body, word};
      }
    }
  }
  if (at > limits.request_bytes_max) return 0;
  if (layout.starts_with('*')) MakeList(request, layout.ends_with('v'));
  return at;
}

void RequestDecoder::MakeList(Request& request, bool with_value) {
  request.keys = lists_.Keep(std::exchange(request.key, {}));
  if (with_value) request.values = lists_.Keep(std::exchange(request.value, {}));
  if (hasher_) request.hashes = hashes_.Keep(std::exchange(request.hash, 0));
}

void RequestDecoder::Decode(std::string_view bytes, Request& request) {
  constexpr RequestLimits kChecked{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
  if (DecodeWhole(bytes, kChecked, request) > 0) return;
  const bool with_values = kLayouts[static_cast<uint8_t>(bytes[0])].ends_with('v');
  const auto count = LoadInt<uint64_t>(bytes.data() + 1);
  size_t at = 9;
  const auto blob = [&] {
    const auto size = LoadInt<uint64_t>(bytes.data() + at);
    const std::string_view out(bytes.data() + at + 8, size);  // the scanner has checked the size
    at += 8 + size;
    return out;
  };
  const std::span<std::string_view> keys = lists_.Take(count);
  const std::span<std::string_view> values = lists_.Take(with_values ? count : 0);
  const std::span<uint64_t> hashes = hashes_.Take(hasher_ ? count : 0);
  for (uint64_t i = 0; i < count; ++i) {
    keys[i] = blob();
    if (with_values) values[i] = blob();
    if (hasher_) hashes[i] = hasher_->Hash(keys[i]);
  }
  request.keys = keys;
  request.values = values;
  request.hashes = hashes;
}

Result<size_t> ListReader::EndOfBlob(std::string_view bytes, size_t at, bool is_key) const {
  constexpr size_t kHeader = 8;
  if (at > bytes.size() || bytes.size() - at < kHeader) return size_t{0};
  const auto size = LoadInt<uint64_t>(bytes.data() + at);
  MUSTER_CHECK_OK(CheckBlob(op_, is_key, size, limits_));
  MUSTER_TRY(const uint64_t end, EndOf(op_, total_ + at + kHeader, size, limits_));
  return end - total_;
}

Result<size_t> ListReader::Read(std::string_view bytes, size_t keys_max,
                                std::vector<std::pair<std::string_view, std::string_view>>& read) {
  size_t done = 0;
  if (!begun_) {
    if (bytes.size() < 9) return size_t{0};
    op_ = static_cast<Op>(bytes[0]);
    left_ = *CountIn(bytes);
    if (left_ > limits_.keys_max) return TooLarge(op_, "key count", left_, limits_.keys_max);
    MUSTER_TRY(done, EndOf(op_, 9, 0, limits_));
    begun_ = true;
  }
  for (size_t count = 0; left_ > 0 && count < keys_max; ++count, --left_) {
    MUSTER_TRY(const size_t key_end, EndOfBlob(bytes, done, true));
    if (key_end == 0 || key_end > bytes.size()) break;
    size_t end = key_end;
    if (op_ == Op::kMultiSet) {
      MUSTER_TRY(end, EndOfBlob(bytes, key_end, false));
      if (end == 0 || end > bytes.size()) break;
    }
    const size_t value_at = std::min(key_end + 8, end);
    read.emplace_back(bytes.substr(done + 8, key_end - done - 8),
                      bytes.substr(value_at, end - value_at));
    done = end;
  }
  total_ += done;
  return done;
}

uint64_t RequestBytes(const Request& request) {
  const std::string_view layout = kLayouts[static_cast<uint8_t>(request.op)];
  uint64_t bytes = 1;
  for (const char field : layout) {
    if (field == '4') bytes += 4;
    if (field == '8' || field == '*') bytes += 8;
    if (layout.starts_with('*')) continue;
    if (field == 'k') bytes += 8 + request.key.size();
    if (field == 'e') bytes += 8 + request.expected.size();
    if (field == 'v') bytes += 8 + request.value.size();
  }
  if (!layout.starts_with('*')) return bytes;
  for (const std::string_view key : request.keys) bytes += 8 + key.size();
  for (const std::string_view value : request.values) bytes += 8 + value.size();
  return bytes;
}

void AppendRequest(std::string& out, const Request& request) {
  out += static_cast<char>(request.op);
  const std::string_view layout = kLayouts[static_cast<uint8_t>(request.op)];
  if (layout.starts_with('*')) {
    AppendInt<uint64_t>(out, request.keys.size());
    for (size_t i = 0; i < request.keys.size(); ++i) {
      AppendBlob(out, request.keys[i]);
      if (layout == "*kv") AppendBlob(out, request.values[i]);
    }
    return;
  }
  for (const char field : layout) {
    if (field == 'k') AppendBlob(out, request.key);
    if (field == 'e') AppendBlob(out, request.expected);
    if (field == 'v') AppendBlob(out, request.value);
    if (field == '4') AppendInt<uint32_t>(out, static_cast<uint32_t>(request.number));
    if (field == '8') AppendInt<int64_t>(out, request.number);
  }
}

}  // namespace muster::wire
