#include "cli/failure.h"

#include <stdexcept>

#include "base/text.h"
#include "cli/process.h"
#include "muster/error.h"
#include "muster/rendezvous_error.h"

namespace muster::cli {

namespace {

template <typename T>
bool Is(const std::exception& error) {
  return dynamic_cast<const T*>(&error) != nullptr;
}

}  // namespace

ExitStatus StatusOf(const std::exception& error) {
  if (Is<StoreTimeoutError>(error) || Is<RendezvousTimeoutError>(error)) return kTimedOut;
  if (Is<RendezvousConnectionError>(error) || Is<NetworkError>(error)) return kNoServer;
  if (Is<RendezvousClosedError>(error)) return kClosed;
  if (Is<std::invalid_argument>(error)) return kUsage;
  return kFailed;
}

int ReportError(const std::string& what, int status, bool json, const std::string& program) {
  if (json) PrintJson({{"error", what}, {"status", status}});
  ReportStderr(Concat(program, ": ", what, "\n"));
  return status;
}

int ReportError(const std::exception& error, bool json) {
  return ReportError(error.what(), StatusOf(error), json);
}

void ThrowAsCliError(const Error& error, const std::string& what) {
  const std::string message = what + ": " + error.message;
  switch (error.code) {
    case Code::kInvalid:
    case Code::kNotFound:
      throw std::invalid_argument(message);
    case Code::kTimeout:
      throw StoreTimeoutError(message);
    case Code::kUnavailable:
    case Code::kClosed:
      throw NetworkError(message);
    default:
      throw std::runtime_error(message);
  }
}

}  // namespace muster::cli
