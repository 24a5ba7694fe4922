#include "os/posix/entropy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace muster {
namespace {

TEST(EntropyTest, NothingIsFilledWithNothing) { FillFromKernel({}); }

TEST(EntropyTest, TwoFillingsDiffer) {
  std::set<std::array<std::byte, 16>> seen;
  for (int i = 0; i < 1'000; ++i) {
    std::array<std::byte, 16> bytes{};
    FillFromKernel(bytes);
    EXPECT_TRUE(seen.insert(bytes).second);
  }
}

// The kernel gives at most 32 MiB in one call, and may be interrupted after 256 bytes.
TEST(EntropyTest, AllOfALargeBufferIsFilled) {
  std::vector<std::byte> bytes(33 << 20);
  FillFromKernel(bytes);
  for (size_t at = 0; at < bytes.size(); at += 1 << 20) {
    const auto part = std::span(bytes).subspan(at, 1 << 20);
    // Sixteen zeros in a row, anywhere in a MiB of random bytes: once in 2^108 times.
    EXPECT_EQ(std::search_n(part.begin(), part.end(), 16, std::byte{0}), part.end());
  }
}

}  // namespace
}  // namespace muster
