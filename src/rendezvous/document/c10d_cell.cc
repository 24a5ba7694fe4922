#include "rendezvous/document/c10d_cell.h"

#include <algorithm>
#include <utility>

#include "base/base64.h"
#include "base/interruption.h"
#include "base/planted.h"
#include "base/text.h"
#include "muster/error.h"
#include "rendezvous/reconnect.h"

namespace muster {

namespace {

// "No state yet". A key that does not exist cannot be read without blocking, so it always exists.
constexpr std::string_view kNothing = "Y2FuaW1hZGFt";

Result<std::string> Decode(std::string_view stored) {
  Result<std::string> bytes = Base64Decode(stored);
  if (bytes) return bytes;
  return Error{Code::kProtocol, Concat("the state of the rendezvous is not base64 (",
                                       bytes.error().message, "): '", Printable(stored, 40), "'")};
}

}  // namespace

C10dCell::C10dCell(std::shared_ptr<Store> store, std::string_view run_id)
    : store_(std::move(store)), key_(Concat("torch.rendezvous.", run_id)) {}

template <typename Operation>
auto C10dCell::Try(std::string_view what, const Operation& operation)
    -> Result<decltype(operation(std::declval<Store&>()))> {
  cause_ = nullptr;
  try {
    if (lost_) {
      store_ = Reconnected(*store_);
      store_->CompareSet(key_, "", kNothing);  // another server may be there now
      lost_ = false;
    }
    return operation(*store_);
  } catch (const InterruptedError& error) {
    KeepInterruption();  // a value again, until the handler throws it
    // The wait may have cost the connection: that must not be the end of all rounds.
    const ScopedUninterrupted once;
    try {
      lost_ = lost_ || !StillThere(*store_);
    } catch (const std::exception&) {
      lost_ = true;
    }
    return Error{Code::kInterrupted, error.what()};
  } catch (const std::exception& error) {
    cause_ = std::current_exception();
    if (dynamic_cast<const NetworkError*>(&error) != nullptr) lost_ = true;
    return Error{Code::kUnavailable,
                 Concat("the store of the rendezvous could not ", what, ": ", error.what())};
  }
}

Result<std::string> C10dCell::CompareSet(std::string_view what, std::string_view expected,
                                         std::string_view desired) {
  return Try(what, [&](Store& store) { return store.CompareSet(key_, expected, desired); });
}

Status C10dCell::Open() {
  MUSTER_TRY([[maybe_unused]] const std::string stored, CompareSet("create the key", "", kNothing));
  return Ok();
}

Result<std::optional<StoredState>> C10dCell::Get() {
  MUSTER_TRY(std::string stored, Try("be read", [&](Store& store) { return store.Get(key_); }));
  if (stored == kNothing) return std::optional<StoredState>();
  MUSTER_TRY(std::string bytes, Decode(stored));
  return std::optional<StoredState>({std::move(bytes), std::move(stored)});
}

Result<std::optional<StoredState>> C10dCell::Set(std::string_view bytes, const std::any& token) {
  const auto* expected = std::any_cast<std::string>(&token);
  if (token.has_value() && expected == nullptr) return Get();  // another backend's: fences nothing
  const std::string encoded = Base64Encode(bytes);
  const std::string_view fence =
      expected == nullptr || expected->empty() ? kNothing : std::string_view(*expected);
  std::string present(fence);
  if (Planted(Bug::kWriteUnfenced)) {
    MUSTER_TRY(present, Try("be read", [&](Store& store) { return store.Get(key_); }));
  }
  MUSTER_TRY(std::string stored, CompareSet("be written", present, encoded));
  if (stored == fence) {
    // Had the key held what we expected, it would hold our bytes now: it is gone, unless those are
    // the same. A store that was restarted has forgotten everything; what we know is worth writing
    // there again.
    MUSTER_TRY(stored, CompareSet("create the key anew", "", kNothing));
  }
  if (stored == kNothing) return std::optional<StoredState>();
  if (stored == encoded)
    return std::optional<StoredState>({std::string(bytes), std::move(stored), true});
  MUSTER_TRY(std::string now_stored, Decode(stored));
  return std::optional<StoredState>({std::move(now_stored), std::move(stored), false});
}

void C10dCell::Announce(std::string_view news) {
  // Best effort: waiting nodes look by themselves, too.
  static_cast<void>(Try("announce", [&](Store& store) {
    store.Set(Concat(key_, ".", news), "1");
    return Unit{};
  }));
}

bool C10dCell::Await(std::string_view news, Duration time) {
  using std::chrono::milliseconds;
  const auto limit = std::max(std::chrono::ceil<milliseconds>(time), milliseconds(1));
  const Status waited = Try("be waited on", [&](Store& store) {
    try {
      store.Wait({Concat(key_, ".", news)}, limit);
    } catch (const StoreTimeoutError&) {
    }
    return Unit{};
  });
  return waited.has_value() || waited.error().code == Code::kInterrupted;
}

std::exception_ptr C10dCell::TakeCause() { return std::exchange(cause_, nullptr); }

}  // namespace muster
