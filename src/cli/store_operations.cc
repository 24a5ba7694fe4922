#include "cli/store_operations.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "base/endpoint.h"
#include "base/parse.h"
#include "base/text.h"
#include "base/utf8.h"

namespace muster::cli {

namespace {

using nlohmann::json;

constexpr size_t kMany = SIZE_MAX;

std::string ServerOf(const TcpStore& store) {
  return Endpoint{store.host(), store.port()}.ToString();
}

int64_t Integer(const std::string& text, std::string_view what) {
  if (const auto number = ParseAll<int64_t>(text)) return *number;
  throw std::invalid_argument(Concat(what, " must be a whole number, not '", Printable(text), "'"));
}

std::string Hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// JSON has no bytes: what is no UTF-8 is written in hexadecimal, under another name.
Outcome Value(const std::string& value) {
  return {value, IsUtf8(value) ? json{{"value", value}} : json{{"value_hex", Hex(value)}}};
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
  for (size_t i = 0; i < keys.size(); ++i) {
    names += Concat(i == 0 ? "'" : ", '", Printable(keys[i]), "'");
  }
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
    outcome.json["keys"].push_back(IsUtf8(key) ? json(key) : json{{"hex", Hex(key)}});
  }
  return outcome;
}

Outcome Wait(TcpStore& store, Arguments keys) {
  try {
    store.Wait(List(keys), store.Timeout());
  } catch (const StoreTimeoutError&) {
    std::vector<std::string> missing;
    for (const std::string& key : keys) {
      if (!store.Check({key})) missing.push_back(key);
    }
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

std::vector<Operation> MakeOperations() {
  return {
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
}

}  // namespace

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = MakeOperations();
  return operations;
}

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

std::string PossibleRefusals(const Operation& operation) {
  return Concat(operation.refusal, operation.refusal.empty() ? "" : "; or ",
                "a key is over its limit (--key-bytes-max of muster serve)");
}

}  // namespace muster::cli
