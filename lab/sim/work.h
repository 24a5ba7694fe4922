// A callable that is called once, and may own what cannot be copied. Its captures lie within it,
// where the scheduler keeps it: worlds of 100,000 nodes plan a hundred events for each node, and
// every allocation would be one more place in memory to visit.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace muster::sim {

class Work {
 public:
  Work() = default;
  template <typename F>
  requires(!std::same_as<std::remove_cvref_t<F>, Work> && std::invocable<std::decay_t<F>&>)
      Work(F&& body) {  // NOLINT(google-explicit-constructor): a lambda is a piece of work.
    using Body = std::decay_t<F>;
    if constexpr (sizeof(Body) <= kRoom && alignof(Body) <= alignof(void*) &&
                  std::is_nothrow_move_constructible_v<Body>) {
      new (room_.data()) Body(std::forward<F>(body));
      kind_ = &kInside<Body>;
    } else {
      new (room_.data()) Body*(new Body(std::forward<F>(body)));
      kind_ = &kOutside<Body>;
    }
  }
  Work(Work&& other) noexcept { Take(other); }
  Work& operator=(Work&& other) noexcept {
    if (this != &other) {
      Clear();
      Take(other);
    }
    return *this;
  }
  ~Work() { Clear(); }

  explicit operator bool() const { return kind_ != nullptr; }
  void operator()() { kind_->call(room_.data()); }
  void Clear() {
    if (kind_ != nullptr) std::exchange(kind_, nullptr)->end(room_.data());
  }

 private:
  struct Kind {
    void (*call)(void*);
    void (*move)(void* from, void* to);  ///< Moves the callable, and destroys the old one.
    void (*end)(void*);
  };

  template <typename Body>
  static constexpr Kind kInside{[](void* at) { (*static_cast<Body*>(at))(); },
                                [](void* from, void* to) {
                                  new (to) Body(std::move(*static_cast<Body*>(from)));
                                  static_cast<Body*>(from)->~Body();
                                },
                                [](void* at) { static_cast<Body*>(at)->~Body(); }};
  template <typename Body>
  static constexpr Kind kOutside{
      [](void* at) { (**static_cast<Body**>(at))(); },
      [](void* from, void* to) { new (to) Body*(*static_cast<Body**>(from)); },
      [](void* at) { delete *static_cast<Body**>(at); }};

  void Take(Work& other) {
    kind_ = std::exchange(other.kind_, nullptr);
    if (kind_ != nullptr) kind_->move(other.room_.data(), room_.data());
  }

  static constexpr size_t kRoom = 88;  // a message under way: the network's largest
  const Kind* kind_ = nullptr;
  alignas(void*) std::array<std::byte, kRoom> room_;
};

}  // namespace muster::sim
