#include "rendezvous_arguments.h"

#include <string>

#include "arguments.h"
#include "errors.h"

namespace muster::python {

namespace {

nb::object Attribute(nb::handle given, const char* name, const char* argument, const char* wanted) {
  if (!nb::hasattr(given, name)) RaiseWrongType(argument, wanted, given);
  return given.attr(name);
}

/// Options of custom backends may be any object. The native backends receive its text, and reject
/// it when they read the option.
ConfigValue OptionValue(nb::handle given, const std::string& option) {
  if (given.is_none()) return std::monostate();
  if (PyBool_Check(given.ptr())) return given.is(Py_True);
  if (PyFloat_Check(given.ptr())) return PyFloat_AsDouble(given.ptr());
  if (PyUnicode_Check(given.ptr())) return Text(given, option.c_str());
  if (PyIndex_Check(given.ptr())) return Integer(given, option.c_str());
  if (IsTimedelta(given)) return nb::cast<double>(given.attr("total_seconds")());
  return Written(given);
}

RendezvousConfig ConfigOf(nb::handle given) {
  if (PyDict_Check(given.ptr()) == 0) RaiseWrongType("config", "a dict", given);
  RendezvousConfig config;
  for (const auto& [key, value] : nb::borrow<nb::dict>(given)) {
    std::string name = Text(key, "a key of config");
    const std::string option = "the rendezvous option '" + name + "'";
    config.emplace(std::move(name), OptionValue(value, option));
  }
  return config;
}

std::string TextOrNone(nb::handle given, const char* argument) {
  return given.is_none() ? "" : Text(given, argument);
}

}  // namespace

RendezvousParameters ParametersOf(nb::handle given) {
  const auto attribute = [&](const char* name) {
    return Attribute(given, name, "params", "a RendezvousParameters");
  };
  return {Text(attribute("backend"), "backend"),
          Text(attribute("endpoint"), "endpoint"),
          Text(attribute("run_id"), "run_id"),
          Integer(attribute("min_nodes"), "min_nodes"),
          Integer(attribute("max_nodes"), "max_nodes"),
          TextOrNone(attribute("local_addr"), "local_addr"),
          ConfigOf(attribute("config"))};
}

RendezvousSettings SettingsOf(nb::handle given) {
  const auto attribute = [&](const char* name) {
    return Attribute(given, name, "settings", "a RendezvousSettings");
  };
  const nb::object timeout = attribute("timeout");
  const auto limit = [&](const char* name) {
    return Time(Attribute(timeout, name, "timeout", "a RendezvousTimeout"), name);
  };
  return {.run_id = Text(attribute("run_id"), "run_id"),
          .min_nodes = Integer(attribute("min_nodes"), "min_nodes"),
          .max_nodes = Integer(attribute("max_nodes"), "max_nodes"),
          .join_timeout = limit("join"),
          .last_call = limit("last_call"),
          .close_timeout = limit("close"),
          .heartbeat_timeout = limit("heartbeat"),
          .keep_alive_interval = Time(attribute("keep_alive_interval"), "keep_alive_interval"),
          .keep_alive_max_attempt =
              Integer(attribute("keep_alive_max_attempt"), "keep_alive_max_attempt"),
          .cas_backoff_max = Time(attribute("cas_backoff_max_seconds"), "cas_backoff_max_seconds")};
}

}  // namespace muster::python
