// As in PyTorch, a store whose connection broke stays broken. These functions replace it by another
// one.
#pragma once

#include <memory>

#include "muster/store.h"

namespace muster {

/// Whether the store still answers.
bool StillThere(Store& store);

/// Opens another connection to the same data, with the same timeout. Tries for at most a second:
/// the caller may try again later. Throws what Clone() throws.
std::shared_ptr<Store> Reconnected(Store& lost);

}  // namespace muster
