#include "rendezvous/reconnect.h"

#include <algorithm>

#include "muster/error.h"

namespace muster {

namespace {
constexpr milliseconds kTry{1'000};
}

bool StillThere(Store& store) {
  try {
    store.Check({"muster/still-there"});
    return true;
  } catch (const NetworkError&) {
    return false;
  }
}

std::shared_ptr<Store> Reconnected(Store& lost) {
  const milliseconds timeout = lost.Timeout();
  lost.SetTimeout(timeout.count() > 0 ? std::min(timeout, kTry) : kTry);
  try {
    std::shared_ptr<Store> fresh = lost.Clone();
    fresh->SetTimeout(timeout);
    return fresh;
  } catch (...) {
    lost.SetTimeout(timeout);  // for the next attempt
    throw;
  }
}

}  // namespace muster
