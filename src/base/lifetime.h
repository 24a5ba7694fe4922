// Guards callbacks that may outlive their object: they then do nothing. One thread.
#pragma once

#include <memory>
#include <utility>

namespace muster {

class Lifetime {
 public:
  /// `work`, wrapped: it runs only while this lives and is not renewed.
  auto Guard(auto work) const {
    return [token = std::weak_ptr<char>(token_), work = std::move(work)](auto&&... args) mutable {
      if (!token.expired()) work(std::forward<decltype(args)>(args)...);
    };
  }

  /// Disables all callbacks that have been guarded so far.
  void Renew() { token_ = std::make_shared<char>(); }

 private:
  std::shared_ptr<char> token_ = std::make_shared<char>();
};

}  // namespace muster
