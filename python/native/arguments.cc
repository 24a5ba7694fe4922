#include "arguments.h"

#include <cmath>
#include <limits>
#include <string_view>

namespace muster::python {

namespace {

std::string TypeName(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

[[noreturn]] void RaiseValue(const std::string& message) {
  PyErr_SetString(PyExc_ValueError, message.c_str());
  throw nb::python_error();
}

/// For messages: the number as Python writes it, however large.
std::string Written(nb::handle number) {
  const nb::object text = nb::steal(PyObject_Str(number.ptr()));
  if (!text.is_valid()) {
    PyErr_Clear();
    return "a number too long to be written";
  }
  return nb::borrow<nb::str>(text).c_str();
}

std::string Utf8(nb::handle text, const char* argument) {
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) {  // Lone surrogates.
    PyErr_Clear();
    RaiseValue(std::string(argument) + " must be text that UTF-8 can hold");
  }
  return {bytes, static_cast<size_t>(size)};
}

/// "key 3" of "keys": which element was wrong.
std::string ElementName(const char* argument, Py_ssize_t index) {
  return std::string(argument) + "[" + std::to_string(index) + "]";
}

template <typename Convert>
std::vector<std::string> Elements(nb::handle given, const char* argument, const char* wanted,
                                  Convert&& convert) {
  // A str is a sequence of str, but a caller that passes one for several keys does not mean its
  // characters.
  if (PyUnicode_Check(given.ptr()) || PyBytes_Check(given.ptr()) ||
      PyByteArray_Check(given.ptr())) {
    RaiseWrongType(argument, wanted, given);
  }
  const nb::object items = nb::steal(PySequence_Fast(given.ptr(), ""));
  if (!items.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    RaiseWrongType(argument, wanted, given);
  }
  const Py_ssize_t size = PySequence_Size(items.ptr());
  std::vector<std::string> converted;
  converted.reserve(static_cast<size_t>(size));
  for (Py_ssize_t index = 0; index < size; ++index) {
    const nb::object item = nb::steal(PySequence_GetItem(items.ptr(), index));
    if (!item.is_valid()) throw nb::python_error();
    converted.push_back(convert(item, ElementName(argument, index).c_str()));
  }
  return converted;
}

}  // namespace

void RaiseWrongType(const char* argument, const char* wanted, nb::handle given) {
  const std::string message =
      std::string(argument) + " must be " + wanted + ", not " + TypeName(given);
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

// timedelta has no C interface that works for every Python and under the stable ABI.
bool IsTimedelta(nb::handle given) {
  // Looked up once; kept until the process ends, hence never a leak to report.
  static PyObject* const timedelta = [] {
    const nb::object type = nb::module_::import_("datetime").attr("timedelta");
    return type.inc_ref().ptr();
  }();
  return PyObject_IsInstance(given.ptr(), timedelta) == 1;
}

std::string Text(nb::handle given, const char* argument) {
  if (PyUnicode_Check(given.ptr()) == 0) RaiseWrongType(argument, "a str", given);
  return Utf8(given, argument);
}

std::string Bytes(nb::handle given, const char* argument) {
  if (PyUnicode_Check(given.ptr())) {
    // list_keys() returns a key that is not UTF-8 with surrogates; they become that key again.
    const nb::object bytes =
        nb::steal(PyUnicode_AsEncodedString(given.ptr(), "utf-8", "surrogateescape"));
    if (!bytes.is_valid()) {
      PyErr_Clear();
      RaiseValue(std::string(argument) + " must be text that UTF-8 can hold");
    }
    return Bytes(bytes, argument);
  }
  Py_buffer buffer{};
  if (PyObject_GetBuffer(given.ptr(), &buffer, PyBUF_SIMPLE) != 0) {
    PyErr_Clear();
    RaiseWrongType(argument, "a str or bytes", given);
  }
  std::string copy(static_cast<const char*>(buffer.buf), static_cast<size_t>(buffer.len));
  PyBuffer_Release(&buffer);
  return copy;
}

bool Flag(nb::handle given, const char* argument) {
  if (PyBool_Check(given.ptr()) == 0) RaiseWrongType(argument, "a bool", given);
  return given.is(Py_True);
}

int64_t Integer(nb::handle given, const char* argument, int64_t least, int64_t most) {
  // Integers of numpy and torch have __index__; a bool has it, too, and is refused.
  if (PyBool_Check(given.ptr()) || PyIndex_Check(given.ptr()) == 0) {
    RaiseWrongType(argument, "an int", given);
  }
  const nb::object number = nb::steal(PyNumber_Index(given.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (value == -1 && overflow == 0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  if (overflow != 0 || value < least || value > most) {
    RaiseValue(std::string(argument) + " must be from " + std::to_string(least) + " to " +
               std::to_string(most) + ", not " + Written(number));
  }
  return value;
}

milliseconds Time(nb::handle given, const char* argument) {
  static constexpr const char* kWanted = "a datetime.timedelta or a number of seconds";
  double seconds = 0;
  if (IsTimedelta(given)) {
    seconds = nb::cast<double>(given.attr("total_seconds")());
  } else {
    const bool is_number = PyFloat_Check(given.ptr()) || PyIndex_Check(given.ptr());
    if (PyBool_Check(given.ptr()) || !is_number) RaiseWrongType(argument, kWanted, given);
    seconds = PyFloat_AsDouble(given.ptr());
    if (seconds == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();  // An int that no double holds.
      seconds = std::numeric_limits<double>::infinity();
    }
  }
  // A century: larger values are mistakes, and would overflow when they are added to a clock.
  static constexpr double kSecondsMax = 100.0 * 366 * 24 * 3600;
  if (!(std::abs(seconds) <= kSecondsMax)) {
    RaiseValue(std::string(argument) + " must be at most a hundred years, not " + Written(given));
  }
  // Rounded away from zero: a wait of 0.1 ms must not become one without a limit.
  const double exact = seconds * 1000;
  return milliseconds(
      static_cast<int64_t>(exact < 0 ? std::floor(exact) : std::ceil(exact - 1e-6)));
}

std::vector<std::string> Texts(nb::handle given, const char* argument) {
  return Elements(given, argument, "a list of str",
                  [](nb::handle item, const char* name) { return Text(item, name); });
}

std::vector<std::string> ManyBytes(nb::handle given, const char* argument) {
  return Elements(given, argument, "a list of str or bytes",
                  [](nb::handle item, const char* name) { return Bytes(item, name); });
}

}  // namespace muster::python
