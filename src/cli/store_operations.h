// What `muster store` can do to a store: one table, used by the command line and by the prompt.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "muster/tcp_store.h"

namespace muster::cli {

/// An operation's outcome. `text` is what a person or a script reads (may be bytes); `json` the
/// same for programs.
struct Outcome {
  std::string text;
  nlohmann::json json;
};

using Arguments = std::span<const std::string>;

struct Operation {
  const char* name;
  const char* usage;  ///< The arguments, as in "KEY VALUE".
  const char* help;
  size_t arguments_min;
  size_t arguments_max;
  std::function<Outcome(TcpStore& store, Arguments arguments)> run;
};

const std::vector<Operation>& Operations();

/// Runs one operation given by name. std::invalid_argument: no such operation, or wrong arguments.
/// StoreTimeoutError says what did not come, where, and how long it was waited for.
Outcome RunOperation(TcpStore& store, const std::string& name, Arguments arguments);

}  // namespace muster::cli
