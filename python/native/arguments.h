// From Python's objects to ours. The error for a wrong argument names the argument, what was
// expected and what was given.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::python {

namespace nb = nanobind;
using std::chrono::milliseconds;

/// An argument that our own converter must see, whatever it is: nanobind would refuse None without
/// naming the argument.
inline auto Any(const char* name) { return nb::arg(name).none(); }

/// nb::python_error (TypeError): "timeout must be a datetime.timedelta or a number of seconds, not
/// str".
[[noreturn]] void RaiseWrongType(const char* argument, const char* wanted, nb::handle given);

/// str, in UTF-8.
std::string Text(nb::handle given, const char* argument);
/// str or bytes (or anything with a buffer).
std::string Bytes(nb::handle given, const char* argument);
bool Flag(nb::handle given, const char* argument);
/// An int (not a bool, not a float) within the bounds; ValueError names them.
int64_t Integer(nb::handle given, const char* argument, int64_t least = INT64_MIN,
                int64_t most = INT64_MAX);
bool IsTimedelta(nb::handle given);
/// datetime.timedelta, or a number of seconds.
milliseconds Time(nb::handle given, const char* argument);
/// A sequence of str.
std::vector<std::string> Texts(nb::handle given, const char* argument);
/// A sequence of str or bytes.
std::vector<std::string> ManyBytes(nb::handle given, const char* argument);

}  // namespace muster::python
