#include "muster/interruption.h"

#include <stdexcept>
#include <utility>

#include "base/interruption.h"

namespace muster {

namespace {

std::function<bool()> MustBeThere(std::function<bool()> is_asked) {
  if (!is_asked) throw std::invalid_argument("ScopedInterruption: there is no function to ask");
  return is_asked;
}

}  // namespace

ScopedInterruption::ScopedInterruption(std::function<bool()> is_asked)
    : scope_(std::make_unique<InterruptionScope>(InterruptionScope{
          .is_asked = MustBeThere(std::move(is_asked)), .outer = this_threads_interruption})) {
  this_threads_interruption = scope_.get();
}

ScopedInterruption::~ScopedInterruption() { this_threads_interruption = scope_->outer; }

bool ScopedInterruption::is_pending() const { return scope_->is_pending; }

}  // namespace muster
