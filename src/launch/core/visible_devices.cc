#include "launch/core/visible_devices.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>
#include <system_error>

#include "base/text.h"

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
  size_t number = 0;
  const auto failure = std::from_chars(text.data(), text.data() + text.size(), number).ec;
  // No node has so many devices: all numbers that do not fit are alike.
  if (failure == std::errc::result_out_of_range) number = SIZE_MAX;
  if (failure == std::errc::invalid_argument || (negative && number != 0)) return std::nullopt;
  return number;
}

std::optional<Entry> ReadEntry(std::string_view text, Spelling spelling) {
  const bool may_be_number = spelling == Spelling::kNumbers || spelling == Spelling::kEither;
  // Blanks around a number are ignored; around a UUID they are part of it.
  if (may_be_number) text = Trim(text);
  const bool is_uuid = text.starts_with(spelling == Spelling::kParts ? kPartPrefix : kUuidPrefix);
  if (is_uuid && spelling != Spelling::kNumbers) return Entry{.uuid = text};
  const std::optional<size_t> number = may_be_number ? LeadingNumber(text) : std::nullopt;
  return number ? std::optional(Entry{.number = *number}) : std::nullopt;
}

// Reads up to the first entry that cannot be read.
std::vector<Entry> ReadEntries(std::string_view text, Spelling spelling) {
  std::vector<Entry> entries;
  for (const std::string_view piece : Split(text, ',')) {
    const std::optional<Entry> entry = ReadEntry(piece, spelling);
    if (!entry) break;
    entries.push_back(*entry);
  }
  return entries;
}

const Gpu* Find(const Entry& entry, const Gpus& all) {
  if (entry.uuid.empty()) return entry.number < all.size() ? &all[entry.number] : nullptr;
  const auto is_it = [&](const Gpu& gpu) { return gpu.uuid.starts_with(entry.uuid); };
  // Where there are two, it could be either.
  return std::ranges::count_if(all, is_it) == 1 ? &*std::ranges::find_if(all, is_it) : nullptr;
}

bool HasRepeat(const std::vector<Entry>& entries) {
  for (auto at = entries.begin(); at != entries.end(); ++at) {
    if (std::find(entries.begin(), at, *at) != at) return true;
  }
  return false;
}

Gpus Chosen(std::string_view text, Spelling spelling, const Gpus& all) {
  const std::vector<Entry> entries = ReadEntries(text, spelling);
  // A repeated entry is a mistake, even after an entry that ends the list.
  if (HasRepeat(entries)) return {};
  std::set<const Gpu*> seen;
  Gpus chosen;
  for (const Entry& entry : entries) {
    const Gpu* const gpu = Find(entry, all);
    if (gpu == nullptr) break;
    if (!seen.insert(gpu).second) return {};  // Two spellings of one device.
    chosen.push_back(*gpu);
  }
  return chosen;
}

}  // namespace

VisibleDevices CudaVisible(const std::optional<std::string>& variable, const Gpus& all) {
  if (!variable) return {.gpus = all};
  if (variable->starts_with(kPartPrefix))
    return {.ask_driver = !HasRepeat(ReadEntries(*variable, Spelling::kParts))};
  // The beginning of the list determines the spelling of all entries.
  const bool uuids = variable->starts_with(kUuidPrefix);
  return {.gpus = Chosen(*variable, uuids ? Spelling::kUuids : Spelling::kNumbers, all)};
}

Gpus RocmVisible(const RocmVariables& variables, const Gpus& all) {
  const Gpus first = variables.rocr ? Chosen(*variables.rocr, Spelling::kEither, all) : all;
  const std::optional<std::string>& second = variables.hip ? variables.hip : variables.cuda;
  return second ? Chosen(*second, Spelling::kEither, first) : first;
}

Result<std::string> OnlyDeviceOf(size_t worker, const std::optional<std::string>& visible,
                                 std::string_view variable) {
  if (!visible) return Concat(worker);
  const std::vector<std::string_view> named = Split(*visible, ',');
  const size_t count = visible->empty() ? 0 : named.size();
  if (worker < count) return std::string(Trim(named[worker]));
  return MakeError(Code::kInvalid, variable, "='", Printable(*visible), "' names ", count,
                   " devices, and worker ", worker, " needs one of its own");
}

}  // namespace muster
