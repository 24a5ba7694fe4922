// `muster store`: one operation on any TCPStore server, or a prompt for many.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/failure.h"
#include "cli/flags.h"
#include "cli/store_operations.h"
#include "muster/tcp_store.h"

namespace muster::cli {
namespace {

struct StoreFlags {
  std::string server = "127.0.0.1:29500";
  double timeout_seconds = 30;
  double connect_seconds = 5;
  bool json = false;
  std::vector<std::string> words;  ///< The operation and its arguments.
  size_t plain_words = 0;          ///< So many of them came before "--".
};

std::unique_ptr<TcpStore> Connect(const StoreFlags& flags, milliseconds timeout) {
  const Result<Endpoint> endpoint = ParseHostPort(flags.server);
  if (!endpoint) throw std::invalid_argument("--server " + endpoint.error().message);
  if (endpoint->port == 0) {
    throw std::invalid_argument(
        Concat("--server '", Printable(flags.server), "' has no port from 1 to 65535"));
  }
  const std::string host = endpoint->host.empty() ? "localhost" : endpoint->host;
  auto store = std::make_unique<TcpStore>(
      host, TcpStoreOptions{.port = endpoint->port, .timeout = timeout, .wait_for_workers = false});
  store->SetTimeout(ToMilliseconds(flags.timeout_seconds));
  return store;
}

/// The server, over one connection at a time.
class Connection {
 public:
  explicit Connection(const StoreFlags& flags)
      : flags_(flags), store_(Connect(flags, ToMilliseconds(flags.connect_seconds))) {}

  /// A server that closed the connection but can be reached again has refused
  /// the operation: StoreError names possible reasons, and the next operation is possible.
  Outcome Run(const Operation& operation, Arguments arguments) {
    try {
      return operation.run(*store_, arguments);
    } catch (const NetworkError&) {
      if (!Reconnect()) throw;
      throw StoreError(Concat("server ", flags_.server, " closed the connection on '",
                              operation.name, "' and still accepts others. Perhaps ",
                              PossibleRefusals(operation)));
    }
  }

 private:
  bool Reconnect() {
    constexpr milliseconds kReconnect(500);  // a server that is alive answers at once
    try {
      store_ = Connect(flags_, kReconnect);
      return true;
    } catch (const DistError&) {
      return false;
    }
  }

  const StoreFlags& flags_;
  std::unique_ptr<TcpStore> store_;
};

/// Values go byte for byte to files and pipes. On a terminal control sequences are escaped.
void Print(const StoreFlags& flags, const Outcome& outcome) {
  const bool on_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string line = flags.json    ? outcome.json.dump(-1, ' ', on_terminal)
                           : on_terminal ? SeveralLines(outcome.text)
                                         : outcome.text;
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fputc('\n', stdout);
  std::fflush(stdout);
}

/// Words of a line; '...' and "..." keep spaces, a backslash keeps the next character.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      words.back() += line[++i];
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string OperationsHelp() {
  std::string help;
  for (const Operation& operation : Operations()) {
    std::string call = Concat("  ", operation.name, ' ', operation.usage);
    call.resize(std::max<size_t>(call.size() + 1, 30), ' ');
    help += Concat(call, operation.help, '\n');
  }
  return help;
}

// An error ends one operation; only a lost server ends the prompt. '-' is an ordinary value here:
// standard input has the operations.
int Prompt(Connection& server, const StoreFlags& flags) {
  const bool interactive = isatty(STDIN_FILENO) != 0;
  int status = kOk;
  std::string line;
  while (true) {
    if (interactive) std::cout << flags.server << "> " << std::flush;
    if (!std::getline(std::cin, line)) break;
    const std::vector<std::string> words = Words(line);
    if (words.empty() || words[0].starts_with('#')) continue;
    if (words[0] == "quit" || words[0] == "exit") break;
    if (words[0] == "help") {
      std::cout << OperationsHelp() << std::flush;
      continue;
    }
    try {
      const Operation& operation = FindOperation(words[0], words.size() - 1);
      Print(flags, server.Run(operation, std::span(words).subspan(1)));
    } catch (const NetworkError&) {
      throw;
    } catch (const std::exception& error) {
      status = ReportError(error, flags.json);
    }
  }
  if (interactive) std::cout << '\n';
  return interactive ? kOk : status;
}

int Store(StoreFlags& flags) {
  Connection server(flags);
  if (flags.words.empty()) return Prompt(server, flags);
  std::string& last = flags.words.back();
  const Operation& operation = FindOperation(flags.words[0], flags.words.size() - 1);
  if (operation.TakesValue() && last == "-" && flags.plain_words == flags.words.size()) {
    last.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  Print(flags, server.Run(operation, std::span(flags.words).subspan(1)));
  return kOk;
}

/// "--json" and "-h", but neither "-" nor "-5".
bool IsFlag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word[1] != '.' &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

/// Moves the operation and its arguments from the command line to `flags`, byte for byte; flags and
/// their values are left. After "--" nothing is a flag.
void TakeWords(const CLI::App& store, std::vector<std::string>* arguments, StoreFlags* flags) {
  const auto command = std::ranges::find_if_not(*arguments, IsFlag);
  if (command == arguments->end() || *command != store.get_name()) return;
  std::vector<std::string> left(arguments->begin(), command + 1);
  for (auto at = command + 1; at != arguments->end(); ++at) {
    if (*at == "--") {
      flags->plain_words = flags->words.size();
      flags->words.insert(flags->words.end(), at + 1, arguments->end());
      *arguments = std::move(left);
      return;
    }
    if (!IsFlag(*at)) {
      flags->words.push_back(*at);
      continue;
    }
    left.push_back(*at);
    const CLI::Option* option = store.get_option_no_throw(*at);
    const bool has_value = option != nullptr && option->get_items_expected_min() > 0;
    if (has_value && at + 1 != arguments->end()) left.push_back(*++at);
  }
  flags->plain_words = flags->words.size();
  *arguments = std::move(left);
}

constexpr const char* kAbout =
    R"(Read and change the keys of a TCPStore server, muster's or PyTorch's.

Without an operation: a prompt (or, from a pipe, one operation a line).

  muster store --server node1:29500 get ready      wait for a key and print it
  muster store --server node1:29500 --json keys    list the keys, for programs

Operations:
)";

constexpr const char* kMore = R"(
A VALUE of - is read from standard input, to its end (not at the prompt). Words that start with '-'
go after '--', which may be anywhere: 'set KEY -- --flag', 'set -- KEY --flag' and
'-- set KEY --flag' are the same. Negative numbers need no '--': 'add KEY -5'.

Exit status: 1 if the operation failed or the server refused it, 2 after a usage error, 3 after a
timeout, 4 if there is no server. From a pipe, all lines are run, also after a failure, and the
status is that of the last operation that failed; only a lost server ends it early.

With --json, each operation prints one object on stdout: its result or, if it failed,
{"error": "...", "status": N} with the exit status (and the message on stderr).)";

}  // namespace

void AddStore(CLI::App& app, Run* run, std::vector<std::string>* arguments) {
  auto [store, flags] =
      AddCommand(app, run, "store", Concat(kAbout, OperationsHelp(), kMore), Store);
  AddText(store, "--server", flags.server, "HOST:PORT of the server");
  AddSeconds(store, "--timeout", flags.timeout_seconds, 0.001, kSecondsMax,
             "Seconds to wait for keys, elements and participants");
  AddSeconds(store, "--connect-timeout", flags.connect_seconds, 0.001, kSecondsMax,
             "Seconds to keep trying to reach the server");
  store.add_flag("--json", flags.json, "Print one JSON object for each result");
  // For the help only: TakeWords() has removed them.
  store.add_option("operation", "One of the above");
  store.add_option("arguments", "Its arguments")->expected(0, -1);
  TakeWords(store, arguments, &flags);
}

}  // namespace muster::cli
