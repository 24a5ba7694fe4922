#include "load/flatness.h"

#include <algorithm>

namespace muster::load {

namespace {

using Samples = std::vector<double>;

double Median(Samples::iterator from, Samples::iterator to) {
  const auto middle = from + (to - from) / 2;
  std::nth_element(from, middle, to);
  return *middle;
}

}  // namespace

Flatness FlatnessOf(Samples samples) {
  constexpr size_t kFewest = 5;
  if (samples.size() < kFewest) return {};
  const auto from = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 5);
  const auto half = from + (samples.end() - from) / 2;
  return {.earlier = Median(from, half), .later = Median(half, samples.end())};
}

}  // namespace muster::load
