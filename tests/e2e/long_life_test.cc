// A server that has served many short jobs uses no more memory than one that has served a few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/eventually.h"
#include "support/server_process.h"
#include "support/session_talker.h"

namespace muster::test {
namespace {

using Kind = Push::Kind;

/// 100,000 is the whole measurement (three minutes). A tenth of what the rest is compared with
/// shows a leak of a few hundred bytes for each job.
uint64_t Runs() {
  const char* runs = std::getenv("MUSTER_LONG_LIFE_RUNS");
  return runs == nullptr ? 4'000 : std::strtoull(runs, nullptr, 10);
}

RunSettings Brief() {
  RunSettings settings = Patient(2, 2);
  settings.grace = 0ms;
  return settings;
}

/// Two nodes meet, write what agents write, and leave; the first closes the run.
void PlayJob(uint16_t port, uint64_t number) {
  const std::string run = "job-" + std::to_string(number);
  SessionTalker a(port, HelloOf("10.0.0.1", Brief(), run));
  SessionTalker b(port, HelloOf("10.0.0.2", Brief(), run));
  a.Join();
  a.Hear(Kind::kAdmitted);
  b.Join();
  const Push complete = a.Hear(Kind::kComplete);
  b.Hear(Kind::kComplete);
  const std::string scope = ScopeOf(complete.generation, complete.round);
  for (const char* key : {"role_info/0", "role_info/1", "assigned_ranks/0", "assigned_ranks/1"})
    a.Send(SetBytes(scope + key, std::string(60, 'x')));
  EXPECT_EQ(a.Ask(CheckBytes({scope + "role_info/0"}), 1), kReady);
  a.CloseRun("done");
  a.Hear(Kind::kClosed);
}

TEST(LongLifeTest, ManyShortJobsLeaveNothingBehind) {
  ServerProcess server({.host = "127.0.0.1", .threads = 2});
  constexpr uint64_t kFew = 1'000;
  const uint64_t runs = std::max(Runs(), kFew + 1);
  size_t after_few = 0;
  for (uint64_t number = 1; number <= runs; ++number) {
    ASSERT_NO_FATAL_FAILURE(PlayJob(server.port(), number));
    if (number == kFew) after_few = server.ResidentBytes();
  }
  const auto keys = [&] { return RawClient::Validated(server.port()).AskNumber(NumKeysBytes()); };
  EXPECT_TRUE(EventuallyTrue([&] { return keys() == 0; })) << keys() << " keys are left";
  const size_t at_the_end = server.ResidentBytes();
  std::printf("%llu runs: resident %.1f MiB, after the first %llu: %.1f MiB\n",
              static_cast<unsigned long long>(runs), static_cast<double>(at_the_end) / (1 << 20),
              static_cast<unsigned long long>(kFew), static_cast<double>(after_few) / (1 << 20));
#ifndef __SANITIZE_ADDRESS__
  // Names of closed runs are remembered for ten minutes, as fingerprints of eight bytes.
  EXPECT_LT(at_the_end, after_few + after_few / 10 + runs * 8);
#endif
  EXPECT_EQ(server.Stop(), 0);
}

}  // namespace
}  // namespace muster::test
