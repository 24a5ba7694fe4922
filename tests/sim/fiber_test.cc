#include "sim/fiber.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace muster::sim {
namespace {

TEST(FiberTest, RunsUntilItYieldsAndContinuesThere) {
  std::vector<int> seen;
  Fiber fiber([&] {
    seen.push_back(1);
    Fiber::Yield();
    seen.push_back(3);
  });
  fiber.Resume();
  seen.push_back(2);
  EXPECT_FALSE(fiber.done());
  fiber.Resume();
  EXPECT_TRUE(fiber.done());
  EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
}

TEST(FiberTest, AnExceptionThatIsBeingHandledBelongsToItsFiber) {
  std::string caught;
  const auto body = [&](const char* name) {
    try {
      throw std::runtime_error(name);
    } catch (const std::exception&) {
      Fiber::Yield();  // the other one throws and catches meanwhile
      try {
        throw;
      } catch (const std::exception& again) {
        caught += again.what();
      }
    }
  };
  Fiber a([&] { body("a"); });
  Fiber b([&] { body("b"); });
  a.Resume();
  b.Resume();
  a.Resume();
  b.Resume();
  EXPECT_EQ(caught, "ab");
}

TEST(FiberTest, ManyLiveAtOnce) {
  std::vector<std::unique_ptr<Fiber>> fibers;
  int sum = 0;
  for (int i = 0; i < 1'000; ++i) {
    fibers.push_back(std::make_unique<Fiber>([&sum, i] {
      int mine = i;
      Fiber::Yield();
      sum += mine;
    }));
    fibers.back()->Resume();
  }
  for (const auto& fiber : fibers) fiber->Resume();
  EXPECT_EQ(sum, 999 * 1'000 / 2);
}

}  // namespace
}  // namespace muster::sim
