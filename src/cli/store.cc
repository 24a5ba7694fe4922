// `muster store`: one operation on any TCPStore server, or a prompt for many.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/endpoint.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/store_operations.h"
#include "muster/tcp_store.h"

namespace muster::cli {
namespace {

struct StoreFlags {
  std::string server = "127.0.0.1:29500";
  double timeout_seconds = 30;
  double connect_seconds = 5;
  bool json = false;
  std::string operation;
  std::vector<std::string> arguments;
};

milliseconds Milliseconds(double seconds, std::string_view name) {
  const auto ms = static_cast<int64_t>(seconds * 1000);
  if (ms <= 0) throw std::invalid_argument(Concat(name, " must be more than 0"));
  return milliseconds(ms);
}

std::unique_ptr<TcpStore> Connect(const StoreFlags& flags) {
  const Result<Endpoint> endpoint = ParseHostPort(flags.server);
  if (!endpoint) throw std::invalid_argument("--server " + endpoint.error().message);
  const milliseconds timeout = Milliseconds(flags.timeout_seconds, "--timeout");
  const milliseconds patience = Milliseconds(flags.connect_seconds, "--connect-timeout");
  const std::string host = endpoint->host.empty() ? "localhost" : endpoint->host;
  auto store = std::make_unique<TcpStore>(
      host,
      TcpStoreOptions{.port = endpoint->port, .timeout = patience, .wait_for_workers = false});
  store->SetTimeout(timeout);
  return store;
}

void Print(const StoreFlags& flags, const Outcome& outcome) {
  const std::string& line = flags.json ? outcome.json.dump() : outcome.text;
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
    std::string call =
        Concat("  ", std::string_view(operation.name), ' ', std::string_view(operation.usage));
    call.resize(std::max<size_t>(call.size() + 1, 30), ' ');
    help += Concat(call, std::string_view(operation.help), '\n');
  }
  return help;
}

// Mistakes cost one line and lose nothing; only a lost server ends the prompt.
int Prompt(TcpStore& store, const StoreFlags& flags) {
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
      Print(flags, RunOperation(store, words[0], std::span(words).subspan(1)));
    } catch (const NetworkError&) {
      throw;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster: %s\n", error.what());
      status = kFailed;
    }
  }
  if (interactive) std::cout << '\n';
  return interactive ? kOk : status;
}

int Store(const StoreFlags& flags) {
  const std::unique_ptr<TcpStore> store = Connect(flags);
  if (flags.operation.empty()) return Prompt(*store, flags);
  Print(flags, RunOperation(*store, flags.operation, flags.arguments));
  return kOk;
}

}  // namespace

void AddStore(CLI::App& app, Run* run) {
  auto flags = std::make_shared<StoreFlags>();
  CLI::App* store = app.add_subcommand(
      "store",
      Concat("Look into a TCPStore server, muster's or PyTorch's, and change what is there.\n"
             "\n"
             "Without an operation: a prompt (or, from a pipe, one operation a line).\n"
             "\n"
             "  muster store --server node1:29500 get ready      wait for a key and print it\n"
             "  muster store --server node1:29500 --json keys    list what is there, for programs\n"
             "\n"
             "Operations:\n",
             OperationsHelp(),
             "\n"
             "Exit status: 3 if what was waited for did not come, 4 if there is no server or it "
             "hung up.\n"
             "Values that start with '-' go behind '--'."));
  store->add_option("--server", flags->server, "HOST:PORT of the server")->capture_default_str();
  store
      ->add_option("--timeout", flags->timeout_seconds,
                   "Seconds to wait for keys, elements, others")
      ->capture_default_str();
  store
      ->add_option("--connect-timeout", flags->connect_seconds,
                   "Seconds to keep trying to reach the server")
      ->capture_default_str();
  store->add_flag("--json", flags->json, "Print one JSON object for each result");
  store->add_option("operation", flags->operation, "One of the above");
  store->add_option("arguments", flags->arguments, "What it needs");
  store->callback([flags, run] { *run = [flags] { return Store(*flags); }; });
}

}  // namespace muster::cli
