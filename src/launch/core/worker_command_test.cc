#include "launch/core/worker_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kPython = "/venv/bin/python3";

CommandOptions Train() {
  return {.python = kPython, .script = "train.py", .arguments = {"--lr", "0.1"}};
}

TEST(WorkerCommandTest, Launch041AScriptIsRunUnbuffered) {
  EXPECT_THAT(WorkerArguments(Train(), 0), ElementsAre(kPython, "-u", "train.py", "--lr", "0.1"));
}

TEST(WorkerCommandTest, Launch042AModuleIsRunByItsName) {
  CommandOptions options = Train();
  options.script = "pkg";
  options.module = true;
  EXPECT_THAT(WorkerArguments(options, 0), ElementsAre(kPython, "-u", "-m", "pkg", "--lr", "0.1"));
}

TEST(WorkerCommandTest, AProgramStandsFirst) {
  const CommandOptions options{
      .python = kPython, .script = "echo", .arguments = {"hi"}, .no_python = true};
  EXPECT_THAT(WorkerArguments(options, 0), ElementsAre("echo", "hi"));
}

TEST(WorkerCommandTest, Launch046TheLocalRankIsPutIntoEveryArgument) {
  const CommandOptions options{.python = kPython,
                               .script = "train_${local_rank}.py",
                               .arguments = {"--id=$local_rank", "$local_rankx", "$1", "$", "a$$b",
                                             "$$local_rank", "$world_size"}};
  EXPECT_THAT(WorkerArguments(options, 3),
              ElementsAre(kPython, "-u", "train_3.py", "--id=3", "$local_rankx", "$1", "$", "a$b",
                          "$local_rank", "$world_size"));
}

TEST(WorkerCommandTest, TheProgramItselfStaysAsItIs) {
  CommandOptions options{.python = kPython,
                         .script = "tool$local_rank",
                         .arguments = {"$local_rank"},
                         .no_python = true};
  EXPECT_THAT(WorkerArguments(options, 2), ElementsAre("tool$local_rank", "2"));
  options.no_python = false;
  options.python = "/opt/$local_rank/python";
  EXPECT_EQ(WorkerArguments(options, 2)[0], "/opt/$local_rank/python");
}

TEST(WorkerCommandTest, Launch047NobodyElseAddsALocalRank) {
  CommandOptions options = Train();
  for (const bool module : {false, true}) {
    options.module = module;
    EXPECT_THAT(WorkerArguments(options, 1), testing::Not(testing::Contains(HasSubstr("rank"))));
  }
}

TEST(WorkerCommandTest, Launch048TheOlderLauncherAddsTheLocalRankAfterTheScript) {
  CommandOptions options = Train();
  options.pass_local_rank = true;
  EXPECT_THAT(WorkerArguments(options, 5),
              ElementsAre(kPython, "-u", "train.py", "--local-rank=5", "--lr", "0.1"));
  options.module = true;
  EXPECT_THAT(WorkerArguments(options, 5),
              ElementsAre(kPython, "-u", "-m", "train.py", "--local-rank=5", "--lr", "0.1"));
}

TEST(WorkerCommandTest, Launch048TheOlderLauncherGivesItToNoProgram) {
  CommandOptions options = Train();
  options.no_python = true;
  EXPECT_TRUE(options.Validate());
  options.pass_local_rank = true;
  EXPECT_THAT(options.Validate().error().message, HasSubstr("--use-env"));
}

TEST(WorkerCommandTest, AModuleIsNoProgram) {
  CommandOptions options = Train();
  options.module = true;
  EXPECT_TRUE(options.Validate());
  options.no_python = true;
  EXPECT_THAT(options.Validate().error().message, HasSubstr("--module"));
}

TEST(WorkerCommandTest, RunPathWinsOverTheOthers) {
  CommandOptions options = Train();
  options.module = true;
  options.no_python = true;
  options.run_path = true;
  EXPECT_TRUE(options.Validate());
  const std::vector<std::string> words = WorkerArguments(options, 0);
  ASSERT_EQ(words.size(), 7u);
  EXPECT_THAT(std::vector(words.begin(), words.begin() + 3), ElementsAre(kPython, "-u", "-c"));
  EXPECT_THAT(std::vector(words.begin() + 4, words.end()), ElementsAre("train.py", "--lr", "0.1"));
}

TEST(WorkerCommandTest, ABootstrapIsGivenToPythonAsItIs) {
  CommandOptions options = Train();
  options.run_path = true;
  options.arguments = {"$local_rank"};
  const std::vector<std::string> of_0 = WorkerArguments(options, 0);
  const std::vector<std::string> of_1 = WorkerArguments(options, 1);
  EXPECT_THAT(of_0[3], HasSubstr("runpy"));
  EXPECT_EQ(of_0[3], of_1[3]);
  EXPECT_EQ(of_1.back(), "1");
}

TEST(WorkerCommandTest, AReportNamesWhatTheUserWrote) {
  CommandOptions options = Train();
  options.script = "train_$local_rank.py";
  EXPECT_EQ(EntryPointName(options, kPython), "train_$local_rank.py");
  options.module = true;
  options.script = "pkg.train";
  EXPECT_EQ(EntryPointName(options, kPython), "pkg.train");
}

TEST(WorkerCommandTest, AReportNamesTheProgramIfItIsNotOurPython) {
  CommandOptions options = Train();
  EXPECT_EQ(EntryPointName(options, "/usr/bin/python3"), kPython);
  options.script = "echo";
  options.no_python = true;
  EXPECT_EQ(EntryPointName(options, kPython), "echo");
  options.run_path = true;
  EXPECT_EQ(EntryPointName(options, kPython), "run_script_path");
}

}  // namespace
}  // namespace muster
