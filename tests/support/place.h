// Where the tests' own files are.
#pragma once

#include <string>

namespace muster::test {

/// This project's folder tests/.
std::string TestsFolder();

}  // namespace muster::test
