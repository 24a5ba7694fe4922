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

std::optional<Flatness> FlatnessOf(Samples samples) {
  if (samples.size() < kFlatnessSamplesMin) return std::nullopt;
  const auto from = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 5);
  const auto half = from + (samples.end() - from) / 2;
  return Flatness{.earlier = LowerQuartile(from, half),
                  .later = LowerQuartile(half, samples.end())};
}

}  // namespace muster::load
