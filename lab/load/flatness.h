// Whether a quantity that was sampled for a while stays where it is, or grows without end.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace muster::load {

/// Of the samples after the warm-up, the earlier and the later half, each by its lower quartile:
/// what is needed for a moment says nothing, what is never given back does.
struct Flatness {
  double earlier = 0;
  double later = 0;

  /// The share by which it has grown; negative if it has shrunk.
  double growth() const { return earlier > 0 ? later / earlier - 1 : 0; }
};

/// With fewer nothing can be said: the warm-up and a half each need some.
inline constexpr size_t kFlatnessSamplesMin = 10;

/// The first fifth of the samples is warm-up. Nothing, if there are too few.
std::optional<Flatness> FlatnessOf(std::vector<double> samples);

}  // namespace muster::load
