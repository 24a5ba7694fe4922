#include "os/posix/entropy.h"

#include <gtest/gtest.h>

#include <set>

namespace muster {
namespace {

TEST(EntropyTest, NumbersDiffer) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(seen.insert(RandomFromKernel()).second);
}

}  // namespace
}  // namespace muster
