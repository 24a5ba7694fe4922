// As in PyTorch, a store whose connection broke stays broken. These functions replace it by another
// one.
#pragma once

#include <exception>
#include <memory>
#include <string_view>

#include "base/text.h"
#include "muster/rendezvous_error.h"
#include "muster/store.h"

namespace muster {

/// Whether the store still answers.
bool StillThere(Store& store);

/// Opens another connection to the same data, with the same timeout. Tries for at most a second:
/// the caller may try again later. Throws what Clone() throws.
std::shared_ptr<Store> Reconnected(Store& lost);

/// Runs an operation of a store. What it throws means that the store is out of reach:
/// RendezvousConnectionError, "<failure>: <what it threw>".
auto Reaching(std::string_view failure, const auto& operation) {
  try {
    return operation();
  } catch (const InterruptedError&) {
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(RendezvousConnectionError(Concat(failure, ": ", error.what())));
  }
}

}  // namespace muster
