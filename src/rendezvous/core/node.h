// A node of a rendezvous: one agent process, identified by its address, its process id and a
// counter.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/text.h"

namespace muster {

struct Node {
  std::string addr;
  int64_t pid = 0;
  int64_t local_id = 0;

  /// By address as text, then by the numbers: the order in which ranks are assigned. Comparing
  /// UTF-8 bytes gives the order of code points.
  auto operator<=>(const Node&) const = default;

  /// "host_4711_0"
  std::string ToString() const { return Concat(addr, '_', pid, '_', local_id); }
};

}  // namespace muster
