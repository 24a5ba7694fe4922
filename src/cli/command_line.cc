#include "cli/command_line.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

#include "base/text.h"
#include "cli/failure.h"
#include "cli/process.h"
#include "launch/options/nearest.h"

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

}  // namespace

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

int Finish(int status, const char* program) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  ReportStderr(Concat(program, ": cannot write to standard output\n"));
  return status == kOk ? kFailed : status;
}

}  // namespace muster::cli
