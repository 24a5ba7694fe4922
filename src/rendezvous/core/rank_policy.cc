#include "rendezvous/core/rank_policy.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/text.h"

namespace muster {

namespace {

// In the order of the enumerators.
constexpr std::array<std::string_view, 4> kNames = {"natural", "text", "stable", "label"};
static_assert(static_cast<size_t>(RankPolicy::kLabel) + 1 == kNames.size());

// The digits at the beginning of `text`: their number, and the digits without leading zeros.
std::pair<size_t, std::string_view> DigitsOf(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && IsDigit(text[end])) ++end;
  const size_t zeros = std::min(text.substr(0, end).find_first_not_of('0'), end);
  return {end, text.substr(zeros, end - zeros)};
}

bool NodeBefore(const Node& a, const Node& b) {
  if (a.addr != b.addr) return NaturalLess(a.addr, b.addr);
  return std::tie(a.pid, a.local_id) < std::tie(b.pid, b.local_id);
}

bool Before(RankPolicy policy, const Candidate& a, const Candidate& b) {
  if (policy == RankPolicy::kText) return a.node < b.node;
  if (policy == RankPolicy::kLabel && a.label != b.label) return NaturalLess(a.label, b.label);
  return NodeBefore(a.node, b.node);
}

}  // namespace

std::optional<RankPolicy> ParseRankPolicy(std::string_view word) {
  const auto found = std::ranges::find(kNames, word);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<RankPolicy>(found - kNames.begin());
}

std::string_view Name(RankPolicy policy) {
  const auto index = static_cast<size_t>(policy);
  return index < kNames.size() ? kNames[index] : "";
}

std::vector<int64_t> AssignRanks(RankPolicy policy, std::span<const Candidate> candidates) {
  std::vector<size_t> order(candidates.size());  // candidates in the order of the policy, by index
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(
      order, [&](size_t a, size_t b) { return Before(policy, candidates[a], candidates[b]); });
  std::vector<int64_t> ranks(candidates.size(), -1);
  std::vector<bool> taken(candidates.size(), false);
  if (policy == RankPolicy::kStable) {
    for (const size_t index : order) {
      const auto before = candidates[index].rank_before;
      if (!before || *before < 0 || *before >= std::ssize(candidates)) continue;
      if (taken[static_cast<size_t>(*before)]) continue;
      taken[static_cast<size_t>(*before)] = true;
      ranks[index] = *before;
    }
  }
  size_t next = 0;
  for (const size_t index : order) {
    if (ranks[index] >= 0) continue;
    while (taken[next]) ++next;
    ranks[index] = static_cast<int64_t>(next++);
  }
  return ranks;
}

bool NaturalLess(std::string_view a, std::string_view b) {
  // The names of a fleet begin alike. A number in which they differ is compared as a whole.
  auto same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  while (same > 0 && IsDigit(a[same - 1])) --same;
  std::string_view x = a.substr(same);
  std::string_view y = b.substr(same);
  while (!x.empty() && !y.empty()) {
    if (IsDigit(x.front()) && IsDigit(y.front())) {
      const auto [x_end, x_value] = DigitsOf(x);
      const auto [y_end, y_value] = DigitsOf(y);
      if (x_value.size() != y_value.size()) return x_value.size() < y_value.size();
      if (x_value != y_value) return x_value < y_value;
      x.remove_prefix(x_end);
      y.remove_prefix(y_end);
      continue;
    }
    if (x.front() != y.front())
      return static_cast<unsigned char>(x.front()) < static_cast<unsigned char>(y.front());
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty();
  return a < b;  // they differ at most in leading zeros
}

}  // namespace muster
