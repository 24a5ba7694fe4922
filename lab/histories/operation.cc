#include "histories/operation.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "base/text.h"

namespace muster::test {

namespace {

struct KindFacts {
  std::string_view name;
  bool has_reply;
  bool changes;
  bool blocks;
};

constexpr KindFacts kFacts[kKindCount] = {
    {"set", false, true, false},       {"get", true, false, true},
    {"read", true, false, false},      {"add", true, true, false},
    {"compareSet", true, true, false}, {"check", true, false, false},
    {"wait", true, false, true},       {"delete", true, true, false},
    {"append", false, true, false},    {"multiSet", false, true, false},
    {"multiGet", true, false, true},   {"push", false, true, false},
    {"pop", true, true, true},         {"tryPop", true, true, false},
    {"queueLen", true, false, false},
};

const KindFacts& Facts(Kind kind) { return kFacts[static_cast<size_t>(kind)]; }

std::string Quoted(const std::string& bytes) {
  constexpr size_t kShown = 24;
  if (bytes.size() <= kShown) return Concat('"', Printable(bytes), '"');
  return Concat('"', Printable(bytes.substr(0, kShown)), "...\" (", bytes.size(), " bytes)");
}

std::string List(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += Concat(list.empty() ? "" : ", ", Quoted(word));
  return list;
}

std::string Result(const Operation& operation) {
  switch (operation.outcome) {
    case Outcome::kDone:
      if (!HasReply(operation.kind) || operation.kind == Kind::kWait) return "done";
      return List(operation.saw);
    case Outcome::kTimedOut:
      return "timed out";
    case Outcome::kEmpty:
      return "empty";
    case Outcome::kRefused:
      return "refused";
    case Outcome::kUnknown:
      return "unknown";
  }
  return "";
}

}  // namespace

std::string_view Name(Kind kind) { return Facts(kind).name; }
bool HasReply(Kind kind) { return Facts(kind).has_reply; }
bool Changes(Kind kind) { return Facts(kind).changes; }
bool Blocks(Kind kind) { return Facts(kind).blocks; }

std::string Describe(const Operation& operation) {
  std::string keys;
  for (const std::string& key : operation.keys) keys += Concat(keys.empty() ? "" : " ", key);
  std::string arguments;
  if (operation.kind == Kind::kAdd) arguments = Concat(", ", operation.delta);
  if (operation.kind == Kind::kCompareSet) arguments = Concat(", ", Quoted(operation.expected));
  if (!operation.values.empty()) arguments += Concat(", ", List(operation.values));
  return Concat(Name(operation.kind), "(", keys, arguments, ") -> ", Result(operation));
}

std::string Describe(History history) {
  std::sort(history.begin(), history.end(), [](const Operation& a, const Operation& b) {
    return std::tie(a.called, a.session, a.order) < std::tie(b.called, b.session, b.order);
  });
  std::string table = "    called  returned  client  connection  call\n";
  for (const Operation& operation : history) {
    const auto since = [&](int64_t moment) {
      return moment == kNever ? std::string("?") : Concat((moment - history.front().called) / 1000);
    };
    char line[80];
    std::snprintf(line, sizeof line, "  %8s  %8s  %6d  %10d  ", since(operation.called).c_str(),
                  since(operation.returned).c_str(), operation.client, operation.session);
    table += Concat(line, Describe(operation), "\n");
  }
  return table;
}

}  // namespace muster::test
