// The operations of `muster store`: one table for the command line and the prompt.
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
  /// Why a server may refuse this operation, besides the reasons for all of them; nullptr: no
  /// others.
  const char* refusal;
  std::function<Outcome(TcpStore& store, Arguments arguments)> run;
};

const std::vector<Operation>& Operations();

/// The operation of that name, if it takes so many arguments; else std::invalid_argument.
const Operation& FindOperation(const std::string& name, size_t arguments);

/// Whether its last argument is a VALUE, which may be read from standard input.
bool TakesValue(const Operation& operation);

/// Runs one operation given by name. std::invalid_argument: no such operation, or wrong arguments.
/// StoreTimeoutError names what did not come, the server and the timeout.
Outcome RunOperation(TcpStore& store, const std::string& name, Arguments arguments);

/// Why a server that is alive may have closed the connection on this operation.
std::string PossibleRefusals(const std::string& name);

}  // namespace muster::cli
