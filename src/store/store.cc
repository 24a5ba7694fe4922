// Operations that all stores share.
#include "muster/store.h"

#include "base/text.h"
#include "store/throw.h"

namespace muster {

std::vector<std::string> Store::MultiGet(const std::vector<std::string>& keys) {
  Wait(keys);
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(Get(key));
  return values;
}

void Store::MultiSet(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  RequireValueForEach(keys, values);
  for (size_t i = 0; i < keys.size(); ++i) Set(keys[i], values[i]);
}

void Store::QueuePush(std::string_view, std::string_view) {
  throw NotImplementedError("QueuePush: this kind of store has no queues");
}

std::string Store::QueuePop(std::string_view, PopMode) {
  throw NotImplementedError("QueuePop: this kind of store has no queues");
}

int64_t Store::QueueLen(std::string_view) {
  throw NotImplementedError("QueueLen: this kind of store has no queues");
}

// Counts at one key and waits at another, as PyTorch's generic barrier and its elastic helpers: all
// of them can take part in one barrier.
void Store::Barrier(std::string_view key, int64_t world_size, milliseconds timeout) {
  const std::string counter = Concat(key, "/num_members");
  const std::string gate = Concat(key, "/last_member");
  const int64_t arrived = Add(counter, 1);
  if (arrived >= world_size) Set(gate, "1");
  try {
    Wait({gate}, timeout);
  } catch (const StoreTimeoutError&) {
    throw StoreTimeoutError(Concat("barrier timeout after ", timeout.count(), "ms, key: ", key,
                                   " (this was arrival ", arrived, " of ", world_size, ")"));
  }
}

}  // namespace muster
