// Whether a sampled quantity stays constant or keeps growing.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace muster::load {

/// The earlier and the later half of the samples after the warm-up, each as its lower quartile.
/// Memory that is needed for a moment does not show in it; memory that is never returned does.
struct Flatness {
  double earlier = 0;
  double later = 0;

  /// The share by which it has grown; negative if it has shrunk.
  double growth() const { return earlier > 0 ? later / earlier - 1 : 0; }
};

/// With fewer samples there is no result: the warm-up and each half need some.
inline constexpr size_t kFlatnessSamplesMin = 10;

/// The first fifth of the samples is the warm-up. Nothing, if there are too few.
std::optional<Flatness> FlatnessOf(std::vector<double> samples);

}  // namespace muster::load
