// The history of a world as a number: two runs of one seed must have the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace muster::sim {

class Trace {
 public:
  /// FNV-1a over every entry, with its time.
  uint64_t hash() const { return hash_; }

  void Note(Duration at, uint64_t what, std::string_view bytes = {}) {
    Mix(static_cast<uint64_t>(at.count()));
    Mix(what);
    for (const char byte : bytes) Step(static_cast<uint8_t>(byte));
  }

  /// For people: a line, formatted only if `on_line` is set.
  std::function<void(Duration at, const std::string& line)> on_line{};
  template <typename MakeLine>
  void Note(Duration at, const MakeLine& make) {
    if (on_line) on_line(at, make());
  }

 private:
  void Step(uint8_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3; }
  void Mix(uint64_t value) {
    hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 29;
  }

  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace muster::sim
