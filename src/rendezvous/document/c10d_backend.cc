// The state of a rendezvous in a key of a store, as torchrun's c10d backend keeps it.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/base64.h"
#include "base/interruption.h"
#include "base/planted.h"
#include "base/text.h"
#include "muster/c10d_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/reconnect.h"

namespace muster {

namespace {

// "No state yet". A key that does not exist cannot be read without blocking, so it always exists.
constexpr std::string_view kNothing = "Y2FuaW1hZGFt";

std::string Decode(std::string_view stored) {
  Result<std::string> bytes = Base64Decode(stored);
  if (bytes) return *std::move(bytes);
  throw RendezvousStateError(Concat("the state of the rendezvous is not base64 (",
                                    bytes.error().message, "): '", Printable(stored, 40), "'"));
}

class C10dBackend final : public RendezvousBackend {
 public:
  C10dBackend(std::shared_ptr<Store> store, std::string_view run_id)
      : store_(std::move(store)), key_(Concat("torch.rendezvous.", run_id)) {
    CompareSet("create the key", "", kNothing);
  }

  std::string Name() const override { return "c10d"; }

  std::optional<StoredState> GetState() override {
    std::string stored = Read();
    if (stored == kNothing) return std::nullopt;
    std::string bytes = Decode(stored);
    return StoredState{std::move(bytes), std::move(stored)};
  }

  using RendezvousBackend::SetState;
  /// Tokens are std::string: the encoded state.
  std::optional<StoredState> SetState(std::string_view bytes, const std::any& token) override {
    const auto* expected = std::any_cast<std::string>(&token);
    if (token.has_value() && expected == nullptr)
      return GetState();  // another backend's: fences nothing
    const std::string encoded = Base64Encode(bytes);
    const std::string_view fence =
        expected == nullptr || expected->empty() ? kNothing : std::string_view(*expected);
    const std::string present = Planted(Bug::kWriteUnfenced) ? Read() : std::string(fence);
    std::string stored = CompareSet("be written", present, encoded);
    if (stored == fence) {
      // Had the key held what we expected, it would hold our bytes now: it is gone, unless those
      // are the same. A store that was restarted has forgotten everything; what we know is worth
      // writing there again.
      stored = CompareSet("create the key anew", "", kNothing);
    }
    if (stored == kNothing) return std::nullopt;
    if (stored == encoded) return StoredState{std::string(bytes), std::move(stored), true};
    std::string now_stored = Decode(stored);
    return StoredState{std::move(now_stored), std::move(stored), false};
  }

  /// News are keys next to the state's, which a store can wait for.
  void Announce(std::string_view news) override {
    try {
      Try("announce", [&](Store& store) { store.Set(Concat(key_, ".", news), "1"); });
    } catch (const RendezvousConnectionError&) {
      // Best effort: waiting nodes also look by themselves.
    }
  }

  bool AwaitNews(std::string_view news, milliseconds time) override {
    try {
      Try("be waited on", [&](Store& store) {
        try {
          store.Wait({Concat(key_, ".", news)}, std::max(time, milliseconds(1)));
        } catch (const StoreTimeoutError&) {
        }
      });
      return true;
    } catch (const RendezvousConnectionError&) {
      return false;
    }
  }

 private:
  /// A connection that is lost fails the call under way; the next one makes another.
  template <typename Operation>
  auto Try(std::string_view what, const Operation& operation)
      -> decltype(operation(std::declval<Store&>())) {
    try {
      if (lost_) {
        store_ = Reconnected(*store_);
        store_->CompareSet(key_, "", kNothing);  // another server may be there now
        lost_ = false;
      }
      return operation(*store_);
    } catch (const InterruptedError&) {
      // The wait may have cost the connection: that must not be the end of all rounds.
      const ScopedUninterrupted once;
      try {
        lost_ = lost_ || !StillThere(*store_);
      } catch (const std::exception&) {
        lost_ = true;
      }
      throw;
    } catch (const std::exception& error) {
      if (dynamic_cast<const NetworkError*>(&error) != nullptr) lost_ = true;
      std::throw_with_nested(RendezvousConnectionError(
          Concat("the store of the rendezvous could not ", what, ": ", error.what())));
    }
  }

  std::string Read() {
    return Try("be read", [&](Store& store) { return store.Get(key_); });
  }

  std::string CompareSet(std::string_view what, std::string_view expected,
                         std::string_view desired) {
    return Try(what, [&](Store& store) { return store.CompareSet(key_, expected, desired); });
  }

  std::shared_ptr<Store> store_;
  const std::string key_;
  bool lost_ = false;  ///< The store's connection.
};

}  // namespace

std::unique_ptr<RendezvousBackend> CreateC10dBackend(std::shared_ptr<Store> store,
                                                     const std::string& run_id) {
  if (!store) throw std::invalid_argument("C10dRendezvousBackend: store is null");
  if (run_id.empty()) {
    throw std::invalid_argument("the run id is empty: it names the rendezvous and must not be");
  }
  return std::make_unique<C10dBackend>(std::move(store), run_id);
}

}  // namespace muster
