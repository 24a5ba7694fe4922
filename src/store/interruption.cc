#include "muster/interruption.h"

#include <utility>

#include "base/interruption.h"
#include "store/throw.h"

namespace muster {

ScopedInterruption::ScopedInterruption(std::function<bool()> is_asked)
    : scope_(std::make_unique<InterruptionScope>(
          InterruptionScope{.is_asked = std::move(is_asked), .outer = this_threads_interruption})) {
  if (!scope_->is_asked) {
    throw Invalid("ScopedInterruption: there is no function to ask");
  }
  this_threads_interruption = scope_.get();
}

ScopedInterruption::~ScopedInterruption() { this_threads_interruption = scope_->outer; }

bool ScopedInterruption::is_pending() const { return scope_->is_pending; }

}  // namespace muster
