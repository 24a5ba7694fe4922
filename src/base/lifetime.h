// Callbacks that outlive their object: they find out, and do nothing. One thread.
#pragma once

#include <memory>
#include <utility>

namespace muster {

class Lifetime {
 public:
  /// `work`, as long as this lives and is not renewed.
  template <typename Work>
  auto Guard(Work work) const {
    return [token = std::weak_ptr<char>(token_), work = std::move(work)](auto&&... args) mutable {
      if (!token.expired()) work(std::forward<decltype(args)>(args)...);
    };
  }

  /// What was guarded until now does nothing any more.
  void Renew() { token_ = std::make_shared<char>(); }

 private:
  std::shared_ptr<char> token_ = std::make_shared<char>();
};

}  // namespace muster
