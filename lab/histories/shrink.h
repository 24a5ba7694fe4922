// Makes a violation readable: finds the few operations that contradict each other. Pure.
#pragma once

#include "histories/operation.h"

namespace muster::test {

/// `history` is not linearizable; the result is a part of it that is not, either. Each call in it
/// is needed. Either it is part of the contradiction: if its outcome or its time were unknown,
/// there would be none. Or the contradiction would have another reason without it, for example a
/// value that no client wrote.
History Shrink(const History& history);

}  // namespace muster::test
