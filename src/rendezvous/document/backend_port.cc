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
    KeepInterruption();  // a value again, until the handler throws it
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

template <typename Call>
Result<std::optional<StoredState>> BackendPort::Try(const Call& call) {
  thrown_ = nullptr;
  try {
    return call();
  } catch (...) {
    thrown_ = std::current_exception();
    return WhatWasThrown(thrown_);
  }
}

Result<std::optional<StoredState>> BackendPort::Get() {
  return Try([&] { return backend_.GetState(); });
}

Result<std::optional<StoredState>> BackendPort::Set(std::string_view bytes, const std::any& token) {
  return Try([&] { return backend_.SetState(bytes, token); });
}

void BackendPort::Announce(std::string_view news) {
  try {
    backend_.Announce(news);
  } catch (const InterruptedError&) {
    KeepInterruption();
  } catch (...) {
    // Waiting nodes also look by themselves; a backend that is really gone shows in the next call.
  }
}

bool BackendPort::Await(std::string_view news, Duration time) {
  try {
    return backend_.AwaitNews(news, std::chrono::ceil<std::chrono::milliseconds>(time));
  } catch (const InterruptedError&) {
    KeepInterruption();
    return true;
  } catch (...) {
    return false;
  }
}

std::exception_ptr BackendPort::TakeException() { return std::exchange(thrown_, nullptr); }

}  // namespace muster
