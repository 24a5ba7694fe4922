// A store whose connection broke stays broken, as with PyTorch's. This is how to continue with
// another one.
#pragma once

#include <memory>

#include "muster/store.h"

namespace muster {

/// Whether the store still answers.
bool StillThere(Store& store);

/// Another connection to the same data, with the same timeout. Tries for a second at most: the
/// caller may try again later. What Clone() throws.
std::shared_ptr<Store> Reconnected(Store& lost);

}  // namespace muster
