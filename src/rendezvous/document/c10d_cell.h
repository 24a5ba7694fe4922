// The state of a rendezvous in a key of a store, as torchrun's c10d backend keeps it. What the
// store throws becomes a value here, once.
#pragma once

#include <any>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "muster/store.h"
#include "rendezvous/document/state_backend.h"

namespace muster {

class C10dCell final : public StateBackend {
 public:
  /// Uses `store` for itself: nothing else may block on it.
  C10dCell(std::shared_ptr<Store> store, std::string_view run_id);

  /// Creates the key. Before anything else.
  Status Open();

  std::string Name() const override { return "c10d"; }
  Result<std::optional<StoredState>> Get() override;
  /// Tokens are std::string: the encoded state.
  Result<std::optional<StoredState>> Set(std::string_view bytes, const std::any& token) override;
  /// News are keys next to the state's, which a store can wait for.
  void Announce(std::string_view news) override;
  bool Await(std::string_view news, Duration time) override;

  /// What the store threw in the call that has just failed; null if it was not the store.
  std::exception_ptr TakeCause();

 private:
  template <typename Operation>
  auto Try(std::string_view what, const Operation& operation)
      -> Result<decltype(operation(std::declval<Store&>()))>;
  Result<std::string> CompareSet(std::string_view what, std::string_view expected,
                                 std::string_view desired);

  std::shared_ptr<Store> store_;
  const std::string key_;
  bool lost_ = false;  ///< The store's connection.
  std::exception_ptr cause_;
};

}  // namespace muster
