// Makes a violation readable: the few operations that contradict each other, out of many. Pure.
#pragma once

#include "histories/operation.h"

namespace muster::test {

/// `history` is not linearizable; the result is a part of it that is not, either. Each call in it
/// is part of the contradiction (if nobody knew when it happened, or whether, there would be none),
/// or is needed to see that (without it, the others would contradict each other for another reason:
/// a value that nobody wrote, say).
History Shrink(const History& history);

}  // namespace muster::test
