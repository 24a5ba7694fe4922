// A command line, read by the rules of Python's argparse. Scripts of users rely on its corners:
// options cut short, two spellings, letters in clusters.
//
// The line is: options, then one script, then what belongs to the script.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace muster {

/// One option. Its texts outlive it.
struct ArgumentSpec {
  enum class Kind {
    kFlag,      ///< Takes no value.
    kText,      ///< Any text.
    kWhole,     ///< A number that ParseWholeNumber() reads.
    kFraction,  ///< A number that ParseFraction() reads.
    kHelp,      ///< Ends the reading.
  };

  std::string_view name;  ///< "node-rank": "--node-rank" and "--node_rank".
  Kind kind = Kind::kText;
  std::string_view placeholder{};  ///< The name of the value in the help.
  std::string_view initial{};      ///< The default value.
  std::string_view help{};         ///< A sentence or two.

  char letter = 0;                    ///< 't': also "-t". 0: none.
  std::string_view choices{};         ///< "spawn,fork": no other value. Empty: any.
  bool has_variable = true;           ///< See VariableOf().
  std::string_view older_variable{};  ///< Has the same effect if that one is not set.
  bool ours = false;                  ///< Not torchrun's: never makes an abbreviation ambiguous.
  std::string_view group{};           ///< The help's heading above it; empty: none.
};

struct CommandLine {
  /// The given options by name; the last value of each. Flags have no text.
  std::map<std::string, std::string, std::less<>> given{};
  bool help = false;  ///< Requested: the words after it were not read.
  std::optional<std::string> script{};
  std::vector<std::string> rest{};  ///< The script's, untouched.

  bool operator==(const CommandLine&) const = default;
};

/// kInvalid: a reason for the user, in one line. A missing script is no error here.
Result<CommandLine> ReadCommandLine(std::span<const ArgumentSpec> specs,
                                    std::span<const std::string> words);

/// The environment variable that replaces the default value: "PET_NODE_RANK". Empty: none, as for
/// all options of ours.
std::string VariableOf(const ArgumentSpec& spec);

/// Whether `text` is of this kind; its choices do not matter. `source` names where it comes from.
Status CheckKind(const ArgumentSpec& spec, std::string_view source, std::string_view text);

/// As Python's float() reads it, infinities included. Numbers that a double cannot hold are
/// refused.
std::optional<double> ParseFraction(std::string_view text);

/// "; did you mean 'NAME'?", with the name that differs least from a mistyped word, in any case;
/// empty if all of them differ in half of it or more.
std::string DidYouMean(std::string_view word, std::span<const std::string> names);

/// All options under their groups, in the table's order, at most `columns` wide.
std::string HelpOn(std::span<const ArgumentSpec> specs, size_t columns);

}  // namespace muster
