#include "load/flatness.h"

#include <algorithm>

namespace muster::load {

namespace {

using Samples = std::vector<double>;

double LowerQuartile(Samples::iterator from, Samples::iterator to) {
  const auto quarter = from + (to - from) / 4;
  std::nth_element(from, quarter, to);
  return *quarter;
}

}  // namespace

Flatness FlatnessOf(Samples samples) {
  constexpr size_t kFewest = 5;
  if (samples.size() < kFewest) return {};
  const auto from = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 5);
  const auto half = from + (samples.end() - from) / 2;
  return {.earlier = LowerQuartile(from, half), .later = LowerQuartile(half, samples.end())};
}

}  // namespace muster::load
