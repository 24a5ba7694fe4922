#include "histories/plan.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace muster::test {

namespace {

std::string_view Name(Flavour flavour) {
  constexpr std::string_view kNames[] = {"counter", "text", "queue", "both"};
  return kNames[static_cast<size_t>(flavour)];
}

Faults DrawFaults(Prng& prng) {
  // At least one of the four, each equally likely.
  const uint64_t drawn = 1 + prng.Below(15);
  return {.splits = (drawn & 1) != 0,
          .delays = (drawn & 2) != 0,
          .cuts = (drawn & 4) != 0,
          .abandons = (drawn & 8) != 0};
}

Operation On(Kind kind, const std::string& key) { return {.kind = kind, .keys = {key}}; }

Operation On(Kind kind, const std::string& key, std::string value) {
  return {.kind = kind, .keys = {key}, .values = {std::move(value)}};
}

/// A choice by weight.
Kind Choose(Prng& prng, const std::vector<std::pair<Kind, uint64_t>>& weights) {
  uint64_t total = 0;
  for (const auto& [kind, weight] : weights) total += weight;
  uint64_t at = prng.Below(total);
  for (const auto& [kind, weight] : weights) {
    if (at < weight) return kind;
    at -= weight;
  }
  return weights.front().first;
}

}  // namespace

Plan DrawPlan(uint64_t seed, const PlanOptions& options) {
  Prng prng(seed);
  Plan plan{.seed = seed,
            .clients = static_cast<int>(2 + prng.Below(5)),
            .operations = static_cast<int>(5 + prng.Below(11))};
  const size_t keys = 1 + prng.Below(3);
  const uint64_t flavours = options.queues ? 4 : 2;
  for (size_t i = 0; i < keys; ++i) {
    plan.keys.push_back({Concat(options.key_prefix, "k", i), Flavour{int(prng.Below(flavours))}});
  }
  plan.joined_percent = keys > 1 && prng.Below(2) == 0 ? 25 : 0;
  plan.settled_percent = prng.Below(3) * 50;
  plan.pipelined_percent = options.pipelined ? prng.Below(3) * 25 : 0;
  if (prng.Below(100) < options.fault_percent) plan.faults = DrawFaults(prng);
  // Every operation with unknown outcome doubles the checker's search.
  if (plan.faults.cuts || plan.faults.abandons) plan.clients = std::min(plan.clients, 4);
  return plan;
}

std::string Describe(const Plan& plan) {
  std::string keys;
  for (const PlannedKey& key : plan.keys) {
    keys += Concat(keys.empty() ? "" : ",", Name(key.flavour));
  }
  std::string faults;
  const auto name = [&faults](bool on, std::string_view fault) {
    if (on) faults += Concat(faults.empty() ? "" : ",", fault);
  };
  name(plan.faults.splits, "split");
  name(plan.faults.delays, "delay");
  name(plan.faults.cuts, "cut");
  name(plan.faults.abandons, "abandon");
  return Concat("seed=", plan.seed, " clients=", plan.clients, " operations=", plan.operations,
                " keys=", keys, " joined=", plan.joined_percent, "% settled=", plan.settled_percent,
                "% pipelined=", plan.pipelined_percent,
                "% faults=", faults.empty() ? "none" : faults);
}

Drawer::Drawer(const Plan& plan, int client)
    : plan_(plan), client_(client), prng_(Prng(plan.seed + uint64_t(client) + 1).Next()) {}

Operation Drawer::Next(bool waiting) {
  while (true) {
    ++made_;
    if (Chance(plan_.joined_percent)) return Joined(waiting);
    const PlannedKey& key = plan_.keys[prng_.Below(plan_.keys.size())];
    Operation drawn;
    switch (key.flavour) {
      case Flavour::kCounter:
        drawn = OnCounter(key.name);
        break;
      case Flavour::kText:
        drawn = OnText(key.name);
        break;
      case Flavour::kQueue:
        drawn = OnQueue(key.name);
        break;
      case Flavour::kBoth:
        drawn = Chance(50) ? OnText(key.name) : OnQueue(key.name);
        break;
    }
    if (waiting) return drawn;
    // A client that does not wait reads and pops what is there. Where an addition may be refused,
    // everything behind it in the pipe would be lost with it.
    if (drawn.kind == Kind::kGet) drawn.kind = Kind::kRead;
    if (drawn.kind == Kind::kPop) drawn.kind = Kind::kTryPop;
    if (drawn.kind == Kind::kAdd && key.flavour != Flavour::kCounter) continue;
    if (!Blocks(drawn.kind)) return drawn;
  }
}

Operation Drawer::Joined(bool waiting) {
  Operation drawn;
  for (const PlannedKey& key : plan_.keys) {
    drawn.keys.push_back(key.name);
    drawn.values.push_back(key.flavour == Flavour::kCounter ? Number() : Text());
  }
  drawn.kind = Choose(prng_, {{Kind::kMultiSet, 4},
                              {waiting ? Kind::kMultiGet : Kind::kRead, 5},
                              {Kind::kCheck, 2},
                              {waiting ? Kind::kWait : Kind::kCheck, 1}});
  if (drawn.kind != Kind::kMultiSet) drawn.values.clear();
  return drawn;
}

Operation Drawer::OnCounter(const std::string& key) {
  const Kind kind = Choose(prng_, {{Kind::kAdd, 45},
                                   {Kind::kGet, 15},
                                   {Kind::kSet, 8},
                                   {Kind::kCompareSet, 14},
                                   {Kind::kDelete, 8},
                                   {Kind::kCheck, 5},
                                   {Kind::kWait, 5}});
  Operation drawn = On(kind, key);
  if (kind == Kind::kAdd) drawn.delta = static_cast<int64_t>(prng_.Below(20)) - 5;
  if (kind == Kind::kSet || kind == Kind::kCompareSet) drawn.values = {Number()};
  if (kind == Kind::kCompareSet) drawn.expected = Expectation(key);
  return drawn;
}

Operation Drawer::OnText(const std::string& key) {
  const Kind kind = Choose(prng_, {{Kind::kSet, 20},
                                   {Kind::kGet, 20},
                                   {Kind::kCompareSet, 20},
                                   {Kind::kAppend, 14},
                                   {Kind::kDelete, 10},
                                   {Kind::kCheck, 6},
                                   {Kind::kWait, 7},
                                   {Kind::kAdd, 3}});
  Operation drawn = On(kind, key);
  if (kind == Kind::kAdd) drawn.delta = 1;
  if (kind == Kind::kSet || kind == Kind::kCompareSet || kind == Kind::kAppend) {
    drawn.values = {Text()};
  }
  if (kind == Kind::kCompareSet) drawn.expected = Expectation(key);
  return drawn;
}

Operation Drawer::OnQueue(const std::string& key) {
  const Kind kind = Choose(prng_, {{Kind::kPush, 38},
                                   {Kind::kPop, 18},
                                   {Kind::kTryPop, 22},
                                   {Kind::kQueueLen, 12},
                                   {Kind::kCheck, 5},
                                   {Kind::kWait, 5}});
  return kind == Kind::kPush ? On(kind, key, Text()) : On(kind, key);
}

/// Unique among all clients: what is read shows which client wrote it. Some are counters, some are
/// larger than one read.
std::string Drawer::Text() {
  std::string text = Concat(char('a' + client_), made_, '.');
  if (Chance(10)) text.insert(0, Concat(prng_.Below(100), '-'));
  if (Chance(2)) text.append(1 + prng_.Below(9'000), 'x');
  return text;
}

std::string Drawer::Number() { return Concat(prng_.Below(1'000)); }

std::string Drawer::Expectation(const std::string& key) {
  const uint64_t luck = prng_.Below(10);
  if (luck == 0) return "wrong";
  const auto seen = last_seen_.find(key);
  return luck < 3 || seen == last_seen_.end() ? "" : seen->second;
}

void Drawer::Note(const Operation& operation) {
  const bool writes = operation.kind == Kind::kSet || operation.kind == Kind::kMultiSet;
  const std::vector<std::string>& words = writes ? operation.values : operation.saw;
  const bool tells = writes || operation.kind == Kind::kGet || operation.kind == Kind::kRead ||
                     operation.kind == Kind::kMultiGet || operation.kind == Kind::kAdd ||
                     operation.kind == Kind::kCompareSet;
  if (!tells) return;
  for (size_t i = 0; i < std::min(words.size(), operation.keys.size()); ++i) {
    last_seen_[operation.keys[i]] = words[i];
  }
}

}  // namespace muster::test
