// `muster store`: one operation on any TCPStore server, or a prompt for many.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/endpoint.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "muster/tcp_store.h"

namespace muster::cli {
namespace {

// ----------------------------------------------------------------------------------------------
// the operations: one table for the command line and the prompt

using nlohmann::json;

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
  /// StoreTimeoutError names what is missing, the server and the timeout.
  std::function<Outcome(TcpStore& store, Arguments arguments)> run;

  /// Whether its last argument is a VALUE, which may be read from standard input.
  bool TakesValue() const { return usage.ends_with(" VALUE"); }
};

constexpr size_t kMany = SIZE_MAX;

std::string ServerOf(const TcpStore& store) {
  return Endpoint{store.host(), store.port()}.ToString();
}

int64_t Integer(const std::string& text, std::string_view what) {
  if (const auto number = ParseAll<int64_t>(text)) return *number;
  throw std::invalid_argument(Concat(what, " must be a whole number, not '", Printable(text), "'"));
}

std::string HexOf(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += Hex(static_cast<unsigned char>(c), 2);
  return hex;
}

// JSON has no bytes: a value that is not UTF-8 is written in hexadecimal, under another name.
Outcome Value(const std::string& value) {
  return {value, IsUtf8(value) ? json{{"value", value}} : json{{"value_hex", HexOf(value)}}};
}

Outcome Number(int64_t number) { return {Concat(number), {{"value", number}}}; }
Outcome Truth(bool truth) { return {truth ? "true" : "false", {{"value", truth}}}; }

Outcome Done() { return {"ok", {{"ok", true}}}; }

// Writes have no reply. The reply to an empty CHECK shows that the server has executed them.
Outcome Confirm(TcpStore& store) { return store.Check({}), Done(); }

std::vector<std::string> List(Arguments arguments) { return {arguments.begin(), arguments.end()}; }

/// "key 'a'", "keys 'a', 'b'".
std::string Names(Arguments keys) {
  std::string names = keys.size() == 1 ? "key " : "keys ";
  for (const std::string& key : keys)
    names += Concat(&key == &keys.front() ? "'" : ", '", Printable(key), "'");
  return names;
}

[[noreturn]] void ThrowTimeout(const TcpStore& store, std::string_view what) {
  throw StoreTimeoutError(Concat(what, " did not come within ", store.Timeout().count(),
                                 " ms on server ", ServerOf(store)));
}

Outcome Keys(TcpStore& store, Arguments arguments) {
  std::vector<std::string> keys = store.ListKeys();
  std::sort(keys.begin(), keys.end());
  const std::string start = arguments.empty() ? "" : arguments[0];
  std::erase_if(keys, [&](const std::string& key) { return !key.starts_with(start); });
  Outcome outcome{"", {{"keys", json::array()}}};
  for (const std::string& key : keys) {
    outcome.text += Concat(outcome.text.empty() ? "" : "\n", Printable(key, SIZE_MAX));
    outcome.json["keys"].push_back(IsUtf8(key) ? json(key) : json{{"hex", HexOf(key)}});
  }
  return outcome;
}

Outcome Wait(TcpStore& store, Arguments keys) {
  try {
    store.Wait(List(keys), store.Timeout());
  } catch (const StoreTimeoutError&) {
    std::vector<std::string> missing = List(keys);
    std::erase_if(missing, [&](const std::string& key) { return store.Check({key}); });
    ThrowTimeout(store, Names(missing));
  }
  return Done();
}

Outcome Get(TcpStore& store, Arguments arguments) {
  try {
    return Value(store.Get(arguments[0]));
  } catch (const StoreTimeoutError&) {
    ThrowTimeout(store, Names(arguments));
  }
}

Outcome Pop(TcpStore& store, Arguments arguments) {
  if (arguments.size() == 2 && arguments[1] != "now") {
    throw std::invalid_argument(
        Concat("pop KEY [now]: unknown argument '", Printable(arguments[1]), "'"));
  }
  try {
    return Value(
        store.QueuePop(arguments[0], arguments.size() == 2 ? PopMode::kDoNotWait : PopMode::kWait));
  } catch (const StoreTimeoutError&) {
    ThrowTimeout(store, Concat("an element of queue '", Printable(arguments[0]), "'"));
  }
}

Outcome Barrier(TcpStore& store, Arguments arguments) {
  const int64_t world_size = Integer(arguments[1], "WORLD_SIZE");
  try {
    store.Barrier(arguments[0], world_size, store.Timeout());
  } catch (const StoreTimeoutError&) {
    throw StoreTimeoutError(Concat("barrier '", Printable(arguments[0]), "' on server ",
                                   ServerOf(store), ": ", store.Add(arguments[0], 0), " of ",
                                   world_size, " arrived within ", store.Timeout().count(), " ms"));
  }
  return Done();
}

constexpr const char* kNoNumber = "the value of KEY is not a number";
constexpr const char* kTooLarge = "VALUE is over its limit (--value-bytes-max)";
constexpr const char* kNoQueues = "the server has no queues (PyTorch's older one)";

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = {
      {"set", "KEY VALUE", "Create or overwrite.", 2, 2, kTooLarge,
       [](TcpStore& store, Arguments a) { return store.Set(a[0], a[1]), Confirm(store); }},
      {"get", "KEY", "Wait for the key, print its value.", 1, 1,
       "the value is too large (--reply-bytes-max)", Get},
      {"add", "KEY [N]", "Add N (default 1) to a counter, print the sum.", 1, 2, kNoNumber,
       [](TcpStore& store, Arguments a) {
         return Number(store.Add(a[0], a.size() > 1 ? Integer(a[1], "N") : 1));
       }},
      {"cas", "KEY EXPECTED DESIRED",
       "Set if the value is EXPECTED ('': absent); print the value afterwards.", 3, 3,
       "EXPECTED or DESIRED is over its limit (--value-bytes-max)",
       [](TcpStore& store, Arguments a) { return Value(store.CompareSet(a[0], a[1], a[2])); }},
      {"wait", "KEY...", "Wait until all keys exist.", 1, kMany,
       "there are too many (--keys-per-request-max)", Wait},
      {"check", "KEY...", "Print whether all keys exist.", 1, kMany,
       "there are too many (--keys-per-request-max)",
       [](TcpStore& store, Arguments a) { return Truth(store.Check(List(a))); }},
      {"delete", "KEY", "Remove a value, print whether there was one.", 1, 1, "",
       [](TcpStore& store, Arguments a) { return Truth(store.DeleteKey(a[0])); }},
      {"count", "", "Print the number of keys, internal ones included.", 0, 0, "",
       [](TcpStore& store, Arguments) { return Number(store.GetNumKeys()); }},
      {"keys", "[PREFIX]", "List the keys.", 0, 1, "the list is too long (--reply-bytes-max)",
       Keys},
      {"append", "KEY VALUE", "Append to a value.", 2, 2,
       "VALUE is over its limit (--value-bytes-max), or the whole is (--reply-bytes-max)",
       [](TcpStore& store, Arguments a) { return store.Append(a[0], a[1]), Confirm(store); }},
      {"push", "KEY VALUE", "Add to a queue.", 2, 2,
       "VALUE is over its limit (--value-bytes-max), or the server has no queues (PyTorch's older "
       "one)",
       [](TcpStore& store, Arguments a) { return store.QueuePush(a[0], a[1]), Confirm(store); }},
      {"pop", "KEY [now]", "Take the oldest element of a queue, waiting for one unless 'now'.", 1,
       2, kNoQueues, Pop},
      {"len", "KEY", "Print the length of a queue.", 1, 1, kNoQueues,
       [](TcpStore& store, Arguments a) { return Number(store.QueueLen(a[0])); }},
      {"barrier", "KEY WORLD_SIZE", "Wait until WORLD_SIZE clients have called this.", 2, 2,
       kNoNumber, Barrier},
      {"ping", "", "One round trip that touches no key.", 0, 0, "",
       [](TcpStore& store, Arguments) { return store.Ping(), Done(); }},
  };
  return operations;
}

/// The operation of that name, if it takes so many arguments; else std::invalid_argument.
const Operation& FindOperation(const std::string& name, size_t arguments) {
  std::string names;
  for (const Operation& operation : Operations()) {
    names += Concat(" ", operation.name);
    if (operation.name != name) continue;
    if (arguments < operation.arguments_min || arguments > operation.arguments_max) {
      throw std::invalid_argument(Concat("usage: ", name, " ", operation.usage));
    }
    return operation;
  }
  throw std::invalid_argument(Concat("no operation '", Printable(name), "'; there are:", names));
}

// ----------------------------------------------------------------------------------------------
// the command

struct StoreFlags {
  std::string server = "127.0.0.1:29500";
  double timeout_seconds = 30;
  double connect_seconds = 5;
  bool json = false;
  std::vector<std::string> words;  ///< The operation and its arguments.
  size_t plain_words = 0;          ///< How many of them came before "--".
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
                              operation.refusal, operation.refusal.empty() ? "" : "; or ",
                              "a key is over its limit (--key-bytes-max of muster serve)"));
    }
  }

 private:
  bool Reconnect() {
    constexpr milliseconds kReconnect(500);  // a live server answers immediately
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
      status = ReportError(error.what(), StatusOf(error), flags.json);
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
  auto at = command + 1;
  for (; at != arguments->end() && *at != "--"; ++at) {
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
  if (at != arguments->end()) flags->words.insert(flags->words.end(), at + 1, arguments->end());
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
