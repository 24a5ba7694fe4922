#include "launch/options/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/text.h"

namespace muster {

namespace {

/// How many letters must be inserted, removed or changed to get one from the other.
size_t Distance(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= one.size(); ++i) {
    size_t corner = std::exchange(row[0], i);
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t changed = corner + (one[i - 1] == other[j - 1] ? 0 : 1);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

constexpr size_t kWordBytesMax = 64;  // more is no typing error

std::string Plain(std::string_view word) {
  return LowerCase(word.substr(std::min(word.find_first_not_of('-'), word.size())));
}

}  // namespace

std::string DidYouMean(std::string_view word, std::span<const std::string> names) {
  if (word.size() > kWordBytesMax) return "";
  const std::string plain = Plain(word);
  const std::string* nearest = nullptr;
  size_t least = plain.size() / 2 + 1;
  for (const std::string& name : names) {
    const std::string other = Plain(name);
    const size_t distance = Distance(plain, other);
    if (other.size() < 2 || distance >= least) continue;  // a letter is like many words
    least = distance;
    nearest = &name;
  }
  return nearest == nullptr ? "" : Concat("; did you mean '", *nearest, "'?");
}

}  // namespace muster
