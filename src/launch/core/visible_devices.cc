#include "launch/core/visible_devices.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/parse.h"
#include "base/text.h"
#include "base/trim.h"

namespace muster {

namespace {

constexpr std::string_view kUuidPrefix = "GPU-";
constexpr std::string_view kPartPrefix = "MIG-";

enum class Spelling { kNumbers, kUuids, kParts, kEither };

struct Entry {
  std::string_view uuid{};  // Or the beginning of one. Empty: a number.
  size_t number = 0;

  bool operator==(const Entry&) const = default;
};

// As C's strtoul, which the drivers use: "1gpu" is 1. Nothing: negative, or no number at all.
std::optional<size_t> LeadingNumber(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  constexpr size_t kLargest = std::numeric_limits<size_t>::max();
  std::optional<size_t> number;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    const size_t digit = static_cast<size_t>(c - '0');
    const size_t before = number.value_or(0);
    // No node has so many devices: all numbers that do not fit are alike.
    number = before > (kLargest - digit) / 10 ? kLargest : 10 * before + digit;
  }
  if (negative && number != size_t{0}) return std::nullopt;
  return number;
}

std::optional<Entry> ReadEntry(std::string_view text, Spelling spelling) {
  // Blanks around a number do not matter; around a UUID they make it another one.
  if (spelling == Spelling::kNumbers || spelling == Spelling::kEither) text = Trim(text);
  if (text.starts_with(spelling == Spelling::kParts ? kPartPrefix : kUuidPrefix)) {
    if (spelling == Spelling::kNumbers) return std::nullopt;
    return Entry{.uuid = text};
  }
  if (spelling == Spelling::kUuids || spelling == Spelling::kParts) return std::nullopt;
  const std::optional<size_t> number = LeadingNumber(text);
  if (!number) return std::nullopt;
  return Entry{.number = *number};
}

// Up to the first that cannot be read.
std::vector<Entry> ReadEntries(std::string_view text, Spelling spelling) {
  std::vector<Entry> entries;
  for (const std::string_view piece : Split(text, ',')) {
    const std::optional<Entry> entry = ReadEntry(piece, spelling);
    if (!entry) break;
    entries.push_back(*entry);
  }
  return entries;
}

std::optional<size_t> IndexOf(const Entry& entry, const DeviceList& devices) {
  if (entry.uuid.empty()) {
    if (entry.number >= devices.uuids.size()) return std::nullopt;
    return entry.number;
  }
  std::optional<size_t> found;
  for (size_t i = 0; i < devices.uuids.size(); ++i) {
    if (!devices.uuids[i].starts_with(entry.uuid)) continue;
    if (found) return std::nullopt;  // It could be either.
    found = i;
  }
  return found;
}

bool HasRepeat(const std::vector<Entry>& entries) {
  for (auto at = entries.begin(); at != entries.end(); ++at) {
    if (std::find(entries.begin(), at, *at) != at) return true;
  }
  return false;
}

std::vector<size_t> Chosen(std::string_view text, Spelling spelling, const DeviceList& devices) {
  const std::vector<Entry> entries = ReadEntries(text, spelling);
  // A repeated entry is a mistake, even after an entry that ends the list.
  if (HasRepeat(entries)) return {};
  std::vector<size_t> indices;
  for (const Entry& entry : entries) {
    const std::optional<size_t> index = IndexOf(entry, devices);
    if (!index) break;
    // Two spellings of one device.
    if (std::find(indices.begin(), indices.end(), *index) != indices.end()) return {};
    indices.push_back(*index);
  }
  return indices;
}

std::vector<size_t> All(const DeviceList& devices) {
  std::vector<size_t> indices(devices.uuids.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

}  // namespace

VisibleDevices CudaVisible(const std::optional<std::string>& variable, const DeviceList& devices) {
  if (!variable) return {.indices = All(devices)};
  if (variable->starts_with(kPartPrefix))
    return {.ask_driver = !HasRepeat(ReadEntries(*variable, Spelling::kParts))};
  // How the list begins decides how all of it is spelled.
  const bool uuids = variable->starts_with(kUuidPrefix);
  return {.indices = Chosen(*variable, uuids ? Spelling::kUuids : Spelling::kNumbers, devices)};
}

VisibleDevices RocmVisible(const RocmVariables& variables, const DeviceList& devices) {
  const std::vector<size_t> first =
      variables.rocr ? Chosen(*variables.rocr, Spelling::kEither, devices) : All(devices);
  const std::optional<std::string>& second = variables.hip ? variables.hip : variables.cuda;
  if (!second) return {.indices = first};
  DeviceList left;
  for (const size_t index : first) left.uuids.push_back(devices.uuids[index]);
  VisibleDevices visible;
  for (const size_t index : Chosen(*second, Spelling::kEither, left))
    visible.indices.push_back(first[index]);
  return visible;
}

Result<std::string> OnlyDeviceOf(size_t worker, const std::optional<std::string>& visible) {
  if (!visible) return Concat(worker);
  const std::vector<std::string_view> named = Split(*visible, ',');
  const size_t count = visible->empty() ? 0 : named.size();
  if (worker < count) return std::string(Trim(named[worker]));
  return Error{Code::kInvalid,
               Concat("CUDA_VISIBLE_DEVICES='", Printable(*visible), "' names ", count,
                      " devices, and worker ", worker, " needs one of its own")};
}

}  // namespace muster
