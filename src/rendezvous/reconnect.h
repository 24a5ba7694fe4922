// A store's connection that was lost is lost for good, as with PyTorch's. Whoever can go on with
// another one asks for it here.
#pragma once

#include <memory>

#include "muster/store.h"

namespace muster {

/// Whether the store still answers.
bool StillThere(Store& store);

/// Another connection to the same data, with the same timeout. Does not try for longer than a
/// second: whoever asks again later tries again. What Clone() throws.
std::shared_ptr<Store> Reconnected(Store& lost);

}  // namespace muster
