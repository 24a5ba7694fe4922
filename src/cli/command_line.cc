#include "cli/command_line.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <stdexcept>

#include "base/text.h"
#include "cli/process.h"
#include "launch/options/arguments.h"
#include "muster/error.h"
#include "muster/rendezvous_error.h"
#include "store/throw.h"

namespace muster::cli {
namespace {

/// The subcommands of `app` that are not hidden: "serve, store, status".
std::string Offered(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;  // hidden
    names += Concat(names.empty() ? "" : ", ", command->get_name());
  }
  return names;
}

/// What is wrong with the command line, and which --help to read.
std::string Explain(const CLI::App& app, const CLI::ParseError& wrong) {
  // The (sub)command in question: the first with unknown words, or else the innermost.
  const CLI::App* at = &app;
  std::string name = app.get_name();
  while (at->remaining().empty() && !at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  std::vector<std::string> unknown = at->remaining();
  std::erase(unknown, "--");
  const std::string word = unknown.empty() ? "" : Printable(unknown.front());
  const bool wants_command =
      at->get_require_subcommand_min() > 0 && (at->get_subcommands().empty() || !word.empty());

  std::string what = wrong.what();
  std::vector<std::string> names;
  for (const CLI::Option* option : at->get_options()) {
    for (const std::string& flag : option->get_lnames()) names.push_back("--" + flag);
  }
  for (const CLI::App* command : at->get_subcommands(nullptr)) names.push_back(command->get_name());
  if (wants_command && (word.empty() || word.starts_with('-'))) {
    what = Concat(word.empty() ? "" : Concat("'", word, "' was not expected; "),
                  "name one of: ", Offered(*at));
  } else if (wants_command) {
    what =
        Concat("no command '", word, "'", DidYouMean(word, names), "; there are: ", Offered(*at));
  } else if (dynamic_cast<const CLI::ExtrasError*>(&wrong) != nullptr && !word.empty()) {
    what = Concat("'", word, "' was not expected", DidYouMean(word, names));
    if (name == "muster store" && word.starts_with('-'))
      what += "; a word that starts with '-' goes after '--'";
  }
  return Concat(what, " (see '", name, " --help')");
}

// "0.001", "4294967", "1000000000": no exponent, no zeros at the end.
std::string Plain(double number) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, number, std::chars_format::fixed);
  return {digits, end.ptr};
}

template <typename T>
bool Is(const std::exception& error) {
  return dynamic_cast<const T*>(&error) != nullptr;
}

}  // namespace

CLI::Validator WholeNumber(uint64_t least, uint64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        const auto number = ParseAll<uint64_t>(text);
        if (!number || *number < least || *number > most) {
          return Concat("'", Printable(text), "' is not a whole number from ", least, " to ", most);
        }
        text = Concat(*number);  // CLI11 would read 010 as 8
        return "";
      },
      "");
}

CLI::Validator Bytes(uint64_t least) {
  return CLI::Validator(
      [least](std::string& text) -> std::string {
        constexpr std::pair<std::string_view, int> kUnits[] = {
            {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
        std::string digits = text;
        int shift = 0;
        for (const auto& [unit, bits] : kUnits) {
          if (!text.ends_with(unit)) continue;
          digits.resize(text.size() - unit.size());
          shift = bits;
        }
        const auto number = ParseAll<uint64_t>(digits);
        const bool fits = number && *number <= (uint64_t{1} << 62 >> shift);
        const uint64_t bytes = fits ? *number << shift : 0;
        if (!fits || (bytes != 0 && bytes < least)) {
          return Concat("'", Printable(text), "' is not 0 and not a number of bytes of at least ",
                        HumanBytes(least), ", such as 256MiB");
        }
        text = Concat(bytes);
        return "";
      },
      "");
}

CLI::Validator SecondsFrom(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        const auto number = ParseAll<double>(text);
        // Written so that nan, which is neither more nor less, is refused.
        if (number && *number >= least && *number <= most) return "";
        return Concat("'", Printable(text), "' is not within ", Plain(least), " to ", Plain(most),
                      " seconds");
      },
      "");
}

void AddSeconds(CLI::App& command, const std::string& name, double& value, double least,
                double most, const std::string& help) {
  command.add_option(name, value, help)->transform(SecondsFrom(least, most))->capture_default_str();
}

void AddText(CLI::App& command, const std::string& name, std::string& value,
             const std::string& help) {
  command.add_option(name, value, help)->capture_default_str();
}

std::chrono::milliseconds ToMilliseconds(double seconds) {
  return std::chrono::round<std::chrono::milliseconds>(ToDuration(seconds));
}

Duration ToDuration(double seconds) {
  // CLI11 accepts nan in every range.
  if (!(seconds >= 0 && seconds <= kSecondsMax)) {
    throw std::invalid_argument(Concat("'", std::to_string(seconds), "' is not a time in seconds"));
  }
  return Duration(static_cast<int64_t>(seconds * 1e9));
}

void Prepare(CLI::App& app) {
  app.set_version_flag("--version", app.get_name() + " " MUSTER_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(34);
}

int ReadAndRun(CLI::App& app, std::vector<std::string> arguments, const Run& run) {
  // Searched by hand: a command line that cannot be parsed has no flags.
  const bool json = std::ranges::find(arguments, "--json") != arguments.end();
  try {
    std::ranges::reverse(arguments);  // the order that CLI11 expects
    app.parse(std::move(arguments));
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    return ReportError(Explain(app, wrong), kUsage, json, app.get_name());
  }
  try {
    return run();
  } catch (const std::exception& error) {
    return ReportError(error.what(), StatusOf(error), json, app.get_name());
  }
}

void PrintJson(const nlohmann::ordered_json& line) {
  const auto replace = nlohmann::ordered_json::error_handler_t::replace;
  std::printf("%s\n", line.dump(-1, ' ', true, replace).c_str());
  std::fflush(stdout);
}

void PrintResult(bool as_json, const nlohmann::ordered_json& json, const std::string& text) {
  if (as_json) return PrintJson(json);
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

ExitStatus StatusOf(const std::exception& error) {
  if (Is<StoreTimeoutError>(error) || Is<RendezvousTimeoutError>(error)) return kTimedOut;
  if (Is<RendezvousConnectionError>(error) || Is<NetworkError>(error)) return kNoServer;
  if (Is<RendezvousClosedError>(error)) return kClosed;
  if (Is<std::invalid_argument>(error)) return kUsage;
  return kFailed;
}

int ReportError(const std::string& what, int status, bool json, const std::string& program) {
  if (json) PrintJson({{"error", what}, {"status", status}});
  ReportStderr(Concat(program, ": ", what, "\n"));
  return status;
}

void ThrowAsCliError(const Error& error, const std::string& what) {
  // What the command line names must exist: otherwise it is a usage error.
  const Code code = error.code == Code::kNotFound ? Code::kInvalid : error.code;
  Throw({code, Concat(what, ": ", error.message)});
}

int Finish(int status, const char* program) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  ReportStderr(Concat(program, ": cannot write to standard output\n"));
  return status == kOk ? kFailed : status;
}

}  // namespace muster::cli
