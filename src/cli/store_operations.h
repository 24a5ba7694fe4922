// The operations of `muster store`: one table for the command line and the prompt.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
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
  std::string_view name;
  std::string_view usage;  ///< The arguments, as in "KEY VALUE".
  std::string_view help;
  size_t arguments_min;
  size_t arguments_max;
  /// Why a server may refuse this operation, besides the reasons for all of them; empty: no others.
  std::string_view refusal;
  /// StoreTimeoutError names what did not come, the server and the timeout.
  std::function<Outcome(TcpStore& store, Arguments arguments)> run;

  /// Whether its last argument is a VALUE, which may be read from standard input.
  bool TakesValue() const { return usage.ends_with(" VALUE"); }
};

const std::vector<Operation>& Operations();

/// The operation of that name, if it takes so many arguments; else std::invalid_argument.
const Operation& FindOperation(const std::string& name, size_t arguments);

/// Why a server that is alive may have closed the connection on this operation.
std::string PossibleRefusals(const Operation& operation);

}  // namespace muster::cli
