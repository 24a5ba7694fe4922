// Fakes with behaviour, for tests of the shared-document driver: a clock that only sleeping moves,
// and a cell in memory, fenced by integers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "muster/rendezvous_backend.h"
#include "muster/rendezvous_error.h"
#include "os/ports/clock.h"
#include "rendezvous/wire/state_codec.h"

namespace muster::testing {

class FakeClock final : public Clock {
 public:
  Instant Now() const override { return now; }
  WallTime Wall() const override { return WallTime{1'700'000'000'000'000} + now.since_start; }
  void SleepUntil(Instant when) override {
    if (when <= now) return;
    slept.push_back(when - now);
    now = when;
  }

  Instant now{1000s};
  std::vector<Duration> slept;
};

class FakeCell final : public RendezvousBackend {
 public:
  std::string Name() const override { return "fake"; }

  std::optional<StoredState> GetState() override {
    ++gets;
    if (on_get) on_get();
    if (failure) throw *failure;
    if (!bytes) return std::nullopt;
    return StoredState{*bytes, token};
  }

  using RendezvousBackend::SetState;
  std::optional<StoredState> SetState(std::string_view wanted, const std::any& fence) override {
    ++sets;
    if (before_set) std::exchange(before_set, nullptr)();
    if (failure) throw *failure;
    if (forgets) return std::nullopt;
    const auto* number = std::any_cast<int64_t>(&fence);
    const bool fits = bytes ? number != nullptr && *number == token : !fence.has_value();
    if (fits) Put(std::string(wanted));
    return StoredState{*bytes, token, fits};
  }

  void Announce(std::string_view news) override { announced.emplace_back(news); }

  void Put(std::string content) {
    bytes = std::move(content);
    ++token;
  }
  void Put(const RendezvousState& state) { Put(wire::WriteState(state)); }
  RendezvousState state() const { return wire::ReadState(*bytes).value(); }

  std::optional<std::string> bytes;
  int64_t token = 0;
  int gets = 0;
  int sets = 0;
  std::vector<std::string> announced;
  std::optional<RendezvousConnectionError> failure;  ///< Of every call.
  bool forgets = false;                              ///< Answers writes with nothing.
  std::function<void()> on_get;                      ///< Before every read.
  std::function<void()> before_set;                  ///< Once: another node is faster.
};

}  // namespace muster::testing
