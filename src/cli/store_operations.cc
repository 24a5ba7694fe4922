#include "cli/store_operations.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "base/endpoint.h"
#include "base/text.h"

namespace muster::cli {

namespace {

using nlohmann::json;

constexpr size_t kMany = SIZE_MAX;

std::string ServerOf(const TcpStore& store) {
  return Endpoint{store.host(), store.port()}.ToString();
}

int64_t Integer(const std::string& text, std::string_view what) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty()) {
    throw std::invalid_argument(
        Concat(what, " must be a whole number, not '", Printable(text), "'"));
  }
  return value;
}

// "-" means: from standard input, all of it.
std::string ValueOf(const std::string& argument) {
  if (argument != "-") return argument;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

bool IsUtf8(std::string_view bytes) {
  try {
    (void)json(std::string(bytes)).dump();
    return true;
  } catch (const json::exception&) {
    return false;
  }
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

// JSON has no bytes: what is not text goes as hexadecimal, under a name that says so.
Outcome Value(const std::string& value) {
  return {value, IsUtf8(value) ? json{{"value", value}} : json{{"value_hex", Hex(value)}}};
}

Outcome Number(int64_t number) { return {Concat(number), {{"value", number}}}; }
Outcome Truth(bool truth) { return {truth ? "true" : "false", {{"value", truth}}}; }

// Writes have no reply of their own. An empty CHECK behind one shows that the server has taken it.
Outcome Confirm(TcpStore& store) {
  store.Check({});
  return {"ok", {{"ok", true}}};
}

std::vector<std::string> List(Arguments arguments) { return {arguments.begin(), arguments.end()}; }

std::string Names(Arguments keys) {
  std::string names;
  for (const std::string& key : keys)
    names += Concat(names.empty() ? "'" : ", '", Printable(key), "'");
  return names;
}

[[noreturn]] void NeverCame(const TcpStore& store, std::string_view what) {
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
    NeverCame(store, Concat("key ", Names(missing)));
  }
  return {"ok", {{"ok", true}}};
}

Outcome Get(TcpStore& store, Arguments arguments) {
  try {
    return Value(store.Get(arguments[0]));
  } catch (const StoreTimeoutError&) {
    NeverCame(store, Concat("key ", Names(arguments)));
  }
}

Outcome Pop(TcpStore& store, Arguments arguments) {
  if (arguments.size() == 2 && arguments[1] != "now") {
    throw std::invalid_argument(Concat("pop KEY [now]: what is '", Printable(arguments[1]), "'?"));
  }
  try {
    return Value(
        store.QueuePop(arguments[0], arguments.size() == 2 ? PopMode::kDoNotWait : PopMode::kWait));
  } catch (const StoreTimeoutError&) {
    NeverCame(store, Concat("an element of queue ", Names(arguments.first(1))));
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
  return {"ok", {{"ok", true}}};
}

std::vector<Operation> MakeOperations() {
  return {
      {"set", "KEY VALUE", "Create or overwrite; VALUE - reads it from standard input.", 2, 2,
       [](TcpStore& store, Arguments a) { return store.Set(a[0], ValueOf(a[1])), Confirm(store); }},
      {"get", "KEY", "Wait for the key, print its value.", 1, 1, Get},
      {"add", "KEY [N]", "Add N (default 1) to a counter, print the sum.", 1, 2,
       [](TcpStore& store, Arguments a) {
         return Number(store.Add(a[0], a.size() > 1 ? Integer(a[1], "N") : 1));
       }},
      {"cas", "KEY EXPECTED DESIRED",
       "Set if the value is EXPECTED ('': absent); print the value afterwards.", 3, 3,
       [](TcpStore& store, Arguments a) { return Value(store.CompareSet(a[0], a[1], a[2])); }},
      {"wait", "KEY...", "Wait until all keys exist.", 1, kMany, Wait},
      {"check", "KEY...", "Print whether all keys exist.", 1, kMany,
       [](TcpStore& store, Arguments a) { return Truth(store.Check(List(a))); }},
      {"delete", "KEY", "Remove a value, print whether there was one.", 1, 1,
       [](TcpStore& store, Arguments a) { return Truth(store.DeleteKey(a[0])); }},
      {"count", "", "Print the number of keys, internal ones included.", 0, 0,
       [](TcpStore& store, Arguments) { return Number(store.GetNumKeys()); }},
      {"keys", "[PREFIX]", "List the keys.", 0, 1, Keys},
      {"append", "KEY VALUE", "Add to the end of a value; VALUE - as for set.", 2, 2,
       [](TcpStore& store, Arguments a) {
         return store.Append(a[0], ValueOf(a[1])), Confirm(store);
       }},
      {"push", "KEY VALUE", "Add to a queue; VALUE - as for set.", 2, 2,
       [](TcpStore& store, Arguments a) {
         return store.QueuePush(a[0], ValueOf(a[1])), Confirm(store);
       }},
      {"pop", "KEY [now]", "Take the oldest element of a queue, waiting for one unless 'now'.", 1,
       2, Pop},
      {"len", "KEY", "Print the length of a queue.", 1, 1,
       [](TcpStore& store, Arguments a) { return Number(store.QueueLen(a[0])); }},
      {"barrier", "KEY WORLD_SIZE", "Wait until WORLD_SIZE clients have called this.", 2, 2,
       Barrier},
      {"ping", "", "One round trip that touches nothing.", 0, 0,
       [](TcpStore& store, Arguments) {
         return store.Ping(), Outcome{"ok", {{"ok", true}}};
       }},
  };
}

}  // namespace

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = MakeOperations();
  return operations;
}

Outcome RunOperation(TcpStore& store, const std::string& name, Arguments arguments) {
  for (const Operation& operation : Operations()) {
    if (operation.name != name) continue;
    if (arguments.size() < operation.arguments_min || arguments.size() > operation.arguments_max) {
      throw std::invalid_argument(Concat("usage: ", name, " ", std::string_view(operation.usage)));
    }
    return operation.run(store, arguments);
  }
  std::string names;
  for (const Operation& operation : Operations())
    names += Concat(" ", std::string_view(operation.name));
  throw std::invalid_argument(Concat("no operation '", Printable(name), "'; there are:", names));
}

}  // namespace muster::cli
