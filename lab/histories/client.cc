#include "histories/client.h"

#include <algorithm>

#include "base/text.h"
#include "muster/error.h"

namespace muster::test {

namespace {

/// For calls that are answered at once: longer than any busy machine takes.
constexpr milliseconds kLong{20'000};

/// What was returned; nothing if the call returns nothing.
std::optional<std::vector<std::string>> Call(Store& store, const Operation& call) {
  using Words = std::vector<std::string>;
  const std::string& key = call.keys.front();
  switch (call.kind) {
    case Kind::kSet:
      store.Set(key, call.values.front());
      return std::nullopt;
    case Kind::kAppend:
      store.Append(key, call.values.front());
      return std::nullopt;
    case Kind::kMultiSet:
      store.MultiSet(call.keys, call.values);
      return std::nullopt;
    case Kind::kPush:
      store.QueuePush(key, call.values.front());
      return std::nullopt;
    case Kind::kGet:
      return Words{store.Get(key)};
    case Kind::kMultiGet:
      return store.MultiGet(call.keys);
    case Kind::kAdd:
      return Words{std::to_string(store.Add(key, call.delta))};
    case Kind::kCompareSet:
      return Words{store.CompareSet(key, call.expected, call.values.front())};
    case Kind::kCheck:
      return Words{store.Check(call.keys) ? "1" : "0"};
    case Kind::kWait:
      store.Wait(call.keys, store.Timeout());
      return Words{};
    case Kind::kDelete:
      return Words{store.DeleteKey(key) ? "1" : "0"};
    case Kind::kPop:
      return Words{store.QueuePop(key)};
    case Kind::kTryPop:
      return Words{store.QueuePop(key, PopMode::kDoNotWait)};
    case Kind::kQueueLen:
      return Words{std::to_string(store.QueueLen(key))};
    case Kind::kRead:
      break;  // No such call.
  }
  throw std::logic_error("a TcpStore cannot be asked this");
}

Keys OnWire(const std::vector<std::string>& keys) {
  Keys wire;
  for (const std::string& key : keys) wire.push_back("/" + key);
  return wire;
}

std::string Bytes(const Operation& call) {
  const Keys keys = OnWire(call.keys);
  switch (call.kind) {
    case Kind::kSet:
      return SetBytes(keys[0], call.values[0]);
    case Kind::kAppend:
      return AppendBytes(keys[0], call.values[0]);
    case Kind::kPush:
      return PushBytes(keys[0], call.values[0]);
    case Kind::kMultiSet: {
      Pairs pairs;
      for (size_t i = 0; i < keys.size(); ++i) pairs.emplace_back(keys[i], call.values[i]);
      return MultiSetBytes(pairs);
    }
    case Kind::kRead:
      return keys.size() == 1 ? GetBytes(keys[0]) : MultiGetBytes(keys);
    case Kind::kAdd:
      return AddBytes(keys[0], call.delta);
    case Kind::kCompareSet:
      return CompareSetBytes(keys[0], call.expected, call.values[0]);
    case Kind::kCheck:
      return CheckBytes(keys);
    case Kind::kDelete:
      return DeleteBytes(keys[0]);
    case Kind::kTryPop:
      return PopBytes(keys[0]);
    case Kind::kQueueLen:
      return QueueLenBytes(keys[0]);
    case Kind::kGet:
    case Kind::kWait:
    case Kind::kMultiGet:
    case Kind::kPop:
      break;  // These may wait.
  }
  throw std::logic_error("a pipelined client does not ask this");
}

/// Reads the answer to `call`; nothing if the queue is empty.
std::optional<std::vector<std::string>> Answer(RawClient& wire, const Operation& call) {
  using Words = std::vector<std::string>;
  switch (call.kind) {
    case Kind::kRead: {
      Words words;
      for (size_t i = 0; i < call.keys.size(); ++i) words.push_back(wire.ReceiveBlob());
      return words;
    }
    case Kind::kCompareSet:
      return Words{wire.ReceiveBlob()};
    case Kind::kCheck:
      return Words{wire.Receive(1) == kReady ? "1" : "0"};
    case Kind::kTryPop:
      if (wire.ReceiveNumber() <= 0) return std::nullopt;
      return Words{wire.ReceiveBlob()};
    default:
      return Words{std::to_string(wire.ReceiveNumber())};
  }
}

}  // namespace

void Client::Complain(const std::string& about, const std::string& what) {
  complaints_.push_back(Concat(about, ": ", what));
}

// ----------------------------------------------------------------------------------------------
// one call at a time

void StoreClientOfHistory::Run() {
  for (int i = 0; i < plan_.operations; ++i) {
    const Operation operation = drawer_.Next(/*waiting=*/true);
    milliseconds patience = kLong;
    if (Blocks(operation.kind)) patience = milliseconds(2 + drawer_.prng().Below(15));
    if (plan_.faults.abandons && drawer_.Chance(15)) patience = milliseconds(1);
    if (Perform(operation, patience) && !HasReply(operation.kind) &&
        drawer_.Chance(plan_.settled_percent)) {
      Settle();
    }
  }
  if (store_) Settle();
}

void StoreClientOfHistory::Connect() {
  store_ =
      std::make_unique<TcpStore>("127.0.0.1", TcpStoreOptions{.port = port_, .timeout = kLong});
}

bool StoreClientOfHistory::Perform(const Operation& operation, milliseconds patience) {
  if (!store_) Connect();
  store_->SetTimeout(patience);
  const size_t number = journal_.Call(operation);
  try {
    const auto saw = Call(*store_, operation);
    if (saw) journal_.Answered(number, Outcome::kDone, *saw);
    drawer_.Note(journal_.at(number));
    return true;
  } catch (const StoreTimeoutError&) {
    journal_.Answered(number, Outcome::kTimedOut);
    return true;
  } catch (const QueueEmptyError&) {
    journal_.Answered(number, Outcome::kEmpty);
    return true;
  } catch (const NetworkError& error) {
    Lose(number, error.what(), patience < kLong);
  } catch (const std::exception& error) {  // No fault explains invalid answers.
    Complain(Describe(operation), error.what());
    Lose(number, error.what(), true);
  }
  return false;
}

void StoreClientOfHistory::Lose(size_t number, const std::string& why, bool impatient) {
  if (!FaultsExplain() && journal_.at(number).kind == Kind::kAdd) {
    journal_.Answered(number, Outcome::kRefused);  // the model checks this
  } else if (!FaultsExplain() && !impatient) {
    Complain(Describe(journal_.at(number)), why);
  }
  journal_.EndSession();
  store_.reset();
}

bool StoreClientOfHistory::Settle() {
  try {
    store_->SetTimeout(kLong);
    store_->Ping();
    journal_.Settled();
    return true;
  } catch (const NetworkError& error) {
    if (!FaultsExplain()) Complain("ping", error.what());
    journal_.EndSession();
    store_.reset();
    return false;
  }
}

void StoreClientOfHistory::Observe(bool queues) {
  for (const PlannedKey& key : plan_.keys) {
    const auto ask = [&](Kind kind) {
      Perform({.kind = kind, .keys = {key.name}}, kLong);
      return journal_.history().back();
    };
    // A compareSet that cannot succeed returns the value, and whether there is one.
    Perform({.kind = Kind::kCompareSet, .keys = {key.name}, .values = {""}, .expected = "none"},
            kLong);
    ask(Kind::kCheck);
    if (!queues) continue;
    ask(Kind::kQueueLen);
    while (ask(Kind::kTryPop).outcome == Outcome::kDone) {
    }
  }
}

// ----------------------------------------------------------------------------------------------
// several at a time

void PipelinedClient::Run() {
  std::optional<RawClient> wire;
  for (int left = plan_.operations; left > 0;) {
    const int requests = static_cast<int>(1 + drawer_.prng().Below(5));
    left -= requests;
    try {
      if (!wire) wire.emplace(RawClient::Validated(port_));
      Burst(*wire, requests);
    } catch (const std::runtime_error& error) {
      if (!FaultsExplain()) Complain("pipelined", error.what());
      journal_.EndSession();
      wire.reset();
    }
  }
}

void PipelinedClient::Burst(RawClient& wire, int requests) {
  std::string bytes;
  std::vector<size_t> numbers;
  for (int i = 0; i < requests; ++i) {
    const Operation operation = drawer_.Next(/*waiting=*/false);
    bytes += Bytes(operation);
    numbers.push_back(journal_.Call(operation));
  }
  const bool settle = drawer_.Chance(plan_.settled_percent);
  if (settle) bytes += PingBytes(7);
  wire.Send(bytes);
  if (plan_.faults.abandons && drawer_.Chance(10)) throw std::runtime_error("abandoned");
  for (const size_t number : numbers) {
    if (!HasReply(journal_.at(number).kind)) continue;
    const auto saw = Answer(wire, journal_.at(number));
    journal_.Answered(number, saw ? Outcome::kDone : Outcome::kEmpty,
                      saw.value_or(std::vector<std::string>()));
    drawer_.Note(journal_.at(number));
  }
  if (!settle) return;
  wire.Receive(4);
  journal_.Settled();
}

}  // namespace muster::test
