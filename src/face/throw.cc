#include "face/throw.h"

#include <stdexcept>

#include "muster/error.h"

namespace muster {

void Throw(const Error& error) {
  switch (error.code) {
    case Code::kTimeout:
      throw StoreTimeoutError(error.message);
    case Code::kUnavailable:
    case Code::kClosed:
    case Code::kConflict:
      throw NetworkError(error.message);
    case Code::kInvalid:
      throw std::invalid_argument(error.message);
    case Code::kOutOfRange:
      throw std::out_of_range(error.message);
    case Code::kUnsupported:
      throw NotImplementedError(error.message);
    case Code::kNotFound:
    case Code::kProtocol:
      throw StoreError(error.message);
  }
  throw StoreError(error.message);
}

}  // namespace muster
