#include "support/place.h"

#ifndef MUSTER_TESTS_DIR
#error "MUSTER_TESTS_DIR must name this project's tests folder"
#endif

namespace muster::test {

std::string TestsFolder() { return MUSTER_TESTS_DIR; }

}  // namespace muster::test
