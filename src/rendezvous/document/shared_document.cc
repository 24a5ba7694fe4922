#include "rendezvous/document/shared_document.h"

#include <set>
#include <utility>

#include "base/instrumented.h"
#include "base/interruption.h"
#include "muster/error.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/core/operations.h"
#include "rendezvous/wire/state_codec.h"

namespace muster {

Error ErrorOfException() {
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const InterruptedError& error) {
    return {Code::kInterrupted, error.what()};
  } catch (const RendezvousStateError& error) {
    return {Code::kProtocol, error.what()};
  } catch (const std::exception& error) {
    return {Code::kUnavailable, error.what()};
  } catch (...) {
    return {Code::kUnavailable, "the backend threw something that is no std::exception"};
  }
}

Result<std::optional<StoredState>> SharedDocument::Try(const auto& call) {
  thrown_ = nullptr;
  try {
    return call();
  } catch (...) {
    thrown_ = std::current_exception();
    Error error = ErrorOfException();
    // It is a value again until the handler throws it.
    if (error.code == Code::kInterrupted) KeepInterruption();
    return error;
  }
}

void SharedDocument::Announce(std::string_view news) {
  try {
    backend_.Announce(news);
  } catch (const InterruptedError&) {
    KeepInterruption();
  } catch (...) {
    // Waiting nodes also look by themselves; if the backend is really lost, the next call fails.
  }
}

bool SharedDocument::AwaitNews(std::string_view news, Duration time) {
  try {
    return backend_.AwaitNews(news, std::chrono::ceil<std::chrono::milliseconds>(time));
  } catch (const InterruptedError&) {
    KeepInterruption();
    return true;
  } catch (...) {
    return false;
  }
}

SharedDocument::SharedDocument(RendezvousBackend& backend, const RunSettings& settings,
                               Clock& clock, Duration cache_max)
    : backend_(backend), settings_(settings), clock_(clock), cache_max_(cache_max) {}

RendezvousState& SharedDocument::Change() {
  dirty_ = true;
  return state_;
}

Result<SharedDocument::Outcome> SharedDocument::Sync(Freshness freshness) {
  if (dirty_) return Write();
  const bool recent = synced_at_ && clock_.Now() - *synced_at_ <= cache_max_;
  if (freshness == Freshness::kAny && cache_max_ > 0s && recent) return Outcome::kCached;
  return Read();
}

Result<SharedDocument::Outcome> SharedDocument::Write() {
  std::string mine = wire::WriteState(state_);
  ++cost_.writes;
  MUSTER_TRY(std::optional<StoredState> answer,
             Try([&] { return backend_.SetState(mine, token_); }));
  const bool stored = answer && answer->was_set;
  if (!stored) ++cost_.lost;
  MUSTER_CHECK_OK(TakeOver(answer ? std::move(answer->bytes) : std::move(mine)));
  token_ = answer ? std::move(answer->token) : std::any();
  dirty_ = !answer;
  return stored ? Outcome::kStored : Outcome::kLost;
}

Result<SharedDocument::Outcome> SharedDocument::Read() {
  ++cost_.reads;
  MUSTER_TRY(std::optional<StoredState> stored, Try([&] { return backend_.GetState(); }));
  MUSTER_CHECK_OK(
      TakeOver(stored ? std::optional(std::move(stored->bytes)) : std::optional<std::string>()));
  token_ = stored ? std::move(stored->token) : std::any();
  return Outcome::kRead;
}

Status SharedDocument::TakeOver(std::optional<std::string> bytes) {
  if (!bytes) {
    shared_ = RendezvousState();
  } else if (bytes != bytes_) {
    MUSTER_TRY(RendezvousState read, wire::ReadState(*bytes));
    if (read.naive_times) {
      // The writer of this state fails when it compares times with a zone to times without one.
      return Error{
          Code::kProtocol,
          "the state of the rendezvous has times without a zone: a PyTorch up to 2.5 takes part, "
          "which cannot share a rendezvous with newer agents; use 2.6 or later on all nodes"};
    }
    shared_ = std::move(read);
  }
  bytes_ = std::move(bytes);
  state_ = shared_;
  const Instant now = clock_.Now();
  // If the store or this process paused, the others' heartbeats could not be seen during the pause.
  // So one read counts for at most one interval: a node is lost when it changes nothing over
  // several reads.
  const Duration gap = synced_at_ ? now - *synced_at_ : 0s;
  if (gap > settings_.missed_after())
    MUSTER_PROBE("a node could not look, and forgave the silence of the others");
  if (gap > settings_.missed_after()) observed_.Skip(gap - settings_.keep_alive_interval);
  synced_at_ = now;
  observed_.See(state_, now);
  std::set<Node> dropped = observed_.Silent(state_, settings_.dead_after(), now);
  if (Planted(Bug::kExpiryOnWallClock)) {
    for (const auto& [node, written] : state_.last_heartbeats) {
      if (written + settings_.dead_after() < clock_.Wall()) dropped.insert(node);
    }
  }
  if (self_) dropped.erase(*self_);
  if (!dropped.empty()) MUSTER_PROBE("a node found others silent, and dropped them");
  Purge(dropped, settings_, &state_);
  return Ok();
}

}  // namespace muster
