#include "launch/workers/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

Environment Of(const Environment& inherited, const LaunchOptions& options = {},
               const WorkerSituation& situation = {}) {
  const auto made = WorkerEnvironment(inherited, options, situation);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made ? *made : Environment{};
}

TEST(WorkerEnvironmentTest, Launch049AWorkerFindsItsPlaceInTheJob) {
  const WorkerSituation situation{.place = {.round = 3,
                                            .group_rank = 2,
                                            .group_world_size = 3,
                                            .ranks = {3, 6, 2, 5},
                                            .master = {"10.0.0.1", 4711}},
                                  .workers = 3,
                                  .worker = 1,
                                  .restarts = 2,
                                  .error_file = "/logs/attempt_2/1/error.json"};
  const Environment all =
      Of({}, {.role = "trainer", .run_id = "job7", .max_restarts = 4}, situation);
  EXPECT_THAT(
      all,
      IsSupersetOf(
          {Pair("LOCAL_RANK", "1"), Pair("RANK", "4"), Pair("WORLD_SIZE", "6"),
           Pair("LOCAL_WORLD_SIZE", "3"), Pair("GROUP_RANK", "2"), Pair("GROUP_WORLD_SIZE", "3"),
           Pair("ROLE_NAME", "trainer"), Pair("ROLE_RANK", "3"), Pair("ROLE_WORLD_SIZE", "5"),
           Pair("MASTER_ADDR", "10.0.0.1"), Pair("MASTER_PORT", "4711"),
           Pair("TORCHELASTIC_RESTART_COUNT", "2"), Pair("TORCHELASTIC_MAX_RESTARTS", "4"),
           Pair("TORCHELASTIC_RUN_ID", "job7"), Pair("TORCHELASTIC_USE_AGENT_STORE", "True"),
           Pair("TORCHELASTIC_ERROR_FILE", "/logs/attempt_2/1/error.json"),
           Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
           Pair("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT")}));
}

TEST(WorkerEnvironmentTest, Launch050Launch051WhatWasThereStaysAndOldPlacesAreForgotten) {
  const Environment all = Of({{"HOME", "/root"},
                              {"RANK", "77"},
                              {"WORLD_SIZE", "99"},
                              {"MASTER_ADDR", "elsewhere"},
                              {"MASTER_PORT", "1"}},
                             {}, {.place = {.ranks = {0, 1, 0, 1}, .master = {"here", 2}}});
  EXPECT_THAT(all, IsSupersetOf({Pair("HOME", "/root"), Pair("RANK", "0"), Pair("WORLD_SIZE", "1"),
                                 Pair("MASTER_ADDR", "here"), Pair("MASTER_PORT", "2")}));
}

TEST(WorkerEnvironmentTest, NoWorkerInheritsAPasswordOfEtcd) {
  const Environment kept = {{"PET_RDZV_ENDPOINT", "https://me@a:2379,b:2379"},
                            {"PET_RDZV_CONF", "user=me,cacert=a"}};
  EXPECT_THAT(Of(kept, {}), IsSupersetOf(kept));
  const Environment all = Of({{"MUSTER_ETCD_PASSWORD", "secret"},
                              {"PET_RDZV_ENDPOINT", "me:secret@a:2379"},
                              {"PET_RDZV_CONF", "user=me, password =secret"}},
                             {});
  for (const auto& [name, value] : all) EXPECT_THAT(value, Not(HasSubstr("secret"))) << name;
}

TEST(WorkerEnvironmentTest, Launch053WhoServesTheStoreIsSaidAsPythonSaysIt) {
  EXPECT_THAT(Of({}, {}, {.uses_agent_store = false}),
              Contains(Pair("TORCHELASTIC_USE_AGENT_STORE", "False")));
}

TEST(WorkerEnvironmentTest, Launch054TheUsersChoiceAboutErrorHandlingStays) {
  EXPECT_THAT(Of({{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}}),
              Contains(Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")));
}

TEST(WorkerEnvironmentTest, Launch055SeveralWorkersGetOneThreadEachUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(Of({}, {}, {.workers = 2}), Contains(Pair("OMP_NUM_THREADS", "1")));
  EXPECT_THAT(Of({}, {}, {.workers = 1}), Not(Contains(Key("OMP_NUM_THREADS"))));
  EXPECT_THAT(Of({{"OMP_NUM_THREADS", "7"}}, {}, {.workers = 2}),
              Contains(Pair("OMP_NUM_THREADS", "7")));
  EXPECT_TRUE(LimitsThreads({}, 2));
  EXPECT_FALSE(LimitsThreads({}, 1));
  EXPECT_FALSE(LimitsThreads({{"OMP_NUM_THREADS", ""}}, 2)) << "present, if empty";
}

TEST(WorkerEnvironmentTest, Launch056DevicesArePassedOnAsTheyAre) {
  EXPECT_THAT(Of({{"CUDA_VISIBLE_DEVICES", "3, 5"}}, {}, {.workers = 2, .worker = 1}),
              Contains(Pair("CUDA_VISIBLE_DEVICES", "3, 5")));
  EXPECT_THAT(Of({}, {}, {.workers = 2}), Not(Contains(Key("CUDA_VISIBLE_DEVICES"))));
}

TEST(WorkerEnvironmentTest, Launch057Launch058WithVirtualRanksEverybodyHasOneDeviceAndIsTheFirst) {
  const LaunchOptions options{.virtual_local_rank = true};
  const Environment second = Of({{"CUDA_VISIBLE_DEVICES", "3, 5"}}, options,
                                {.place = {.ranks = {0, 2, 0, 2}}, .workers = 2, .worker = 1});
  EXPECT_THAT(second, IsSupersetOf({Pair("CUDA_VISIBLE_DEVICES", "5"), Pair("LOCAL_RANK", "0"),
                                    Pair("RANK", "1")}));
  EXPECT_THAT(Of({}, options, {.workers = 2, .worker = 1}),
              Contains(Pair("CUDA_VISIBLE_DEVICES", "1")));
}

TEST(WorkerEnvironmentTest, Launch059TooFewDevicesAreAnError) {
  const auto made = WorkerEnvironment({{"CUDA_VISIBLE_DEVICES", "3"}}, {.virtual_local_rank = true},
                                      {.workers = 2, .worker = 1});
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(made.error().message, HasSubstr("CUDA_VISIBLE_DEVICES"));
}

TEST(WorkerEnvironmentTest, LinesAreAsExecWantsThem) {
  EXPECT_EQ(ToLines({{"A", "1"}, {"B", ""}}), (std::vector<std::string>{"A=1", "B="}));
}

}  // namespace
}  // namespace muster
