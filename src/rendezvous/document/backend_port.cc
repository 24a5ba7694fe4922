#include "rendezvous/document/backend_port.h"

#include <utility>

#include "base/interruption.h"
#include "muster/error.h"
#include "muster/rendezvous_error.h"

namespace muster {

namespace {

Error WhatWasThrown(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InterruptedError& error) {
    KeepInterruption();  // a value again: whoever makes an error of it fulfils the wish
    return {Code::kInterrupted, error.what()};
  } catch (const RendezvousStateError& error) {
    return {Code::kProtocol, error.what()};
  } catch (const std::exception& error) {
    return {Code::kUnavailable, error.what()};
  } catch (...) {
    return {Code::kUnavailable, "the backend threw something that is no std::exception"};
  }
}

}  // namespace

BackendPort::BackendPort(std::unique_ptr<RendezvousBackend> backend)
    : backend_(std::move(backend)) {}

Result<std::optional<StateBackend::Stored>> BackendPort::Get() {
  thrown_ = nullptr;
  try {
    std::optional<StoredState> stored = backend_->GetState();
    if (!stored) return std::optional<Stored>();
    return std::optional<Stored>({std::move(stored->bytes), std::move(stored->token)});
  } catch (...) {
    thrown_ = std::current_exception();
    return WhatWasThrown(thrown_);
  }
}

Result<std::optional<StateBackend::Answer>> BackendPort::Set(std::string_view bytes,
                                                             const std::any& token) {
  thrown_ = nullptr;
  try {
    std::optional<SetStateResult> result = backend_->SetState(bytes, token);
    if (!result) return std::optional<Answer>();
    return std::optional<Answer>(
        {std::move(result->bytes), std::move(result->token), result->was_set});
  } catch (...) {
    thrown_ = std::current_exception();
    return WhatWasThrown(thrown_);
  }
}

void BackendPort::Announce(std::string_view news) {
  try {
    backend_->Announce(news);
  } catch (const InterruptedError&) {
    KeepInterruption();
  } catch (...) {
    // Those who wait look by themselves, too; a backend that is really gone shows in the next call.
  }
}

bool BackendPort::Await(std::string_view news, Duration time) {
  try {
    return backend_->AwaitNews(news, std::chrono::ceil<std::chrono::milliseconds>(time));
  } catch (const InterruptedError&) {
    KeepInterruption();
    return true;
  } catch (...) {
    return false;
  }
}

std::exception_ptr BackendPort::TakeException() { return std::exchange(thrown_, nullptr); }

}  // namespace muster
