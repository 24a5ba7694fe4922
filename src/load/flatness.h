// Whether a quantity that was sampled for a while stays where it is, or grows without end.
#pragma once

#include <cstddef>
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

/// The first fifth of the samples is warm-up. Needs five at least, or says that nothing has grown.
Flatness FlatnessOf(std::vector<double> samples);

}  // namespace muster::load
