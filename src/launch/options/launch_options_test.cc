#include "launch/options/launch_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cctype>
#include <csignal>

#include "base/text.h"

namespace muster {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::SizeIs;
using testing::StartsWith;

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

/// The options of a valid line.
LaunchOptions Options(Words words, const Environment& environment = {},
                      LaunchPersonality personality = LaunchPersonality::kRun) {
  auto read = ReadLaunchOptions(words, environment, personality);
  if (const auto* refusal = std::get_if<LaunchRefusal>(&read)) {
    ADD_FAILURE() << testing::PrintToString(words) << ": " << refusal->text;
    return {};
  }
  return std::get<LaunchOptions>(std::move(read));
}

/// The refusal of an invalid line; status -1: the line is valid.
LaunchRefusal Refusal(Words words, const Environment& environment = {},
                      LaunchPersonality personality = LaunchPersonality::kRun) {
  auto read = ReadLaunchOptions(words, environment, personality);
  auto* refusal = std::get_if<LaunchRefusal>(&read);
  return refusal ? *refusal : LaunchRefusal{.status = -1, .text = ""};
}

/// A usage error: two lines and status 2.
void ExpectUsageError(const Words& words, std::string_view reason,
                      const Environment& environment = {}) {
  const LaunchRefusal refusal = Refusal(words, environment);
  EXPECT_EQ(refusal.status, 2) << testing::PrintToString(words);
  EXPECT_THAT(refusal.text, AllOf(StartsWith("usage: muster run [options] script"),
                                  HasSubstr("\nmuster run: error: "),
                                  HasSubstr(std::string(reason)), Not(EndsWith("\n"))));
  EXPECT_EQ(std::count(refusal.text.begin(), refusal.text.end(), '\n'), 1) << refusal.text;
}

/// Any other: one line and status 1.
void ExpectRefused(const Words& words, std::string_view reason,
                   const Environment& environment = {}) {
  const LaunchRefusal refusal = Refusal(words, environment);
  EXPECT_EQ(refusal.status, 1) << testing::PrintToString(words);
  EXPECT_THAT(refusal.text, AllOf(HasSubstr(std::string(reason)), Not(HasSubstr("\n"))));
}

// --- The line ------------------------------------------------------------------------------------

TEST(LaunchOptionsTest, WithoutOptionsEverythingIsAsTheStructSays) {
  LaunchOptions expected;
  expected.command.script = "W";
  EXPECT_EQ(Options({"W"}), expected);
}

TEST(LaunchOptionsTest, WithoutArgumentsThereIsUsage) {
  ExpectUsageError({}, "the script is missing");
  ExpectUsageError({"--standalone"}, "the script is missing");
}

TEST(LaunchOptionsTest, HelpHasStatusZero) {
  for (const char* word : {"-h", "--help", "--hel"}) {
    const LaunchRefusal help = Refusal({word});
    EXPECT_EQ(help.status, 0);
    EXPECT_EQ(help.text, LaunchHelp());
  }
}

TEST(LaunchOptionsTest, Launch003AnUnknownOptionIsAUsageError) {
  ExpectUsageError({"--foo", "W"}, "no option '--foo'");
  ExpectUsageError({"--use-env", "W"}, "no option '--use-env'");
}

TEST(LaunchOptionsTest, Launch005WorkersInBothSpellings) {
  EXPECT_EQ(Options({"--nproc-per-node=3", "W"}).workers, "3");
  EXPECT_EQ(Options({"--nproc_per_node", "3", "W"}).workers, "3");
}

TEST(LaunchOptionsTest, Launch006AnOptionMayBeCutShort) {
  EXPECT_EQ(Options({"--redirect=3", "W"}).streams.redirects, *ParseStreams("3"));
  EXPECT_EQ(Options({"--max_rest", "1", "W"}).max_restarts, 1);
}

TEST(LaunchOptionsTest, Launch007NprocIsAmbiguous) {
  ExpectUsageError({"--nproc", "2", "W"}, "'--nproc' may be any of");
  EXPECT_EQ(Options({"--nproc-per", "2", "W"}).workers, "2");
}

TEST(LaunchOptionsTest, Launch008WhatIsBehindTheScriptReachesIt) {
  const LaunchOptions options = Options({"W", "--nnodes", "3", "-h", "--nproc"});
  EXPECT_EQ(options.command.script, "W");
  EXPECT_THAT(options.command.arguments, ElementsAre("--nnodes", "3", "-h", "--nproc"));
  EXPECT_EQ(options.nodes, NodeCount{});
}

TEST(LaunchOptionsTest, Launch009ADoubleDashMayStandBeforeTheScript) {
  const LaunchOptions options = Options({"--", "W", "x"});
  EXPECT_EQ(options.command.script, "W");
  EXPECT_THAT(options.command.arguments, ElementsAre("x"));
}

TEST(LaunchOptionsTest, Launch010RestartsAreANumberThatIsNotNegative) {
  ExpectUsageError({"--max-restarts=a", "W"}, "--max-restarts takes a whole number, not 'a'");
  ExpectRefused({"--max-restarts=-1", "W"}, "--max-restarts: -1, allowed: 0 or more");
  ExpectRefused({"--max-restarts", "-1", "W"}, "--max-restarts: -1");
  EXPECT_EQ(Options({"--max-restarts= 1_0 ", "W"}).max_restarts, 10);
}

TEST(LaunchOptionsTest, Launch011TheStartMethodIsChosenFromAListOnTheLineOnly) {
  ExpectUsageError({"--start-method=foo", "W"}, "one of spawn, fork, forkserver, not 'foo'");
  EXPECT_THAT(Options({"W"}, {{"PET_START_METHOD", "foo"}}).warnings,
              ElementsAre(HasSubstr("PET_START_METHOD has no effect")));
  EXPECT_THAT(Options({"--start-method=fork", "W"}).warnings,
              ElementsAre(HasSubstr("--start-method has no effect")));
}

TEST(LaunchOptionsTest, Launch012TheNumaBindingIsChosenFromAList) {
  ExpectUsageError({"--numa-binding=foo", "W"}, "not 'foo'");
  EXPECT_EQ(Options({"--numa-binding=core-complex", "W"}).numa_binding, NumaMode::kCoreComplex);
  EXPECT_EQ(Options({"W"}, {{"PET_NUMA_BINDING", "node"}}).numa_binding, std::nullopt);
}

// --- Nodes and workers ---------------------------------------------------------------------------

TEST(LaunchOptionsTest, Launch013WhatIsNoNumberOfNodesIsRefused) {
  for (const std::string text : {"1:2:3", "2:1", "0", "a", ""})
    ExpectRefused({"--nnodes=" + text, "W"}, "--nnodes: '" + text + "'");
  ExpectRefused({"W"}, "PET_NNODES: ''", {{"PET_NNODES", ""}});
  EXPECT_EQ(Options({"--nnodes=2:4", "--rdzv-endpoint=h:1", "W"}).nodes, (NodeCount{2, 4}));
}

TEST(LaunchOptionsTest, Launch014WhatIsNoNumberOfWorkersIsRefused) {
  for (const std::string text : {"0", "-1", "foo", "", "GPU", "1.5", "65537"})
    ExpectRefused({"--nproc-per-node=" + text, "W"}, "--nproc-per-node: '" + text + "'");
}

TEST(LaunchOptionsTest, WordsForDevicesAreKeptForThoseWhoCount) {
  for (const std::string word : {"cpu", "gpu", "xpu", "auto"})
    EXPECT_EQ(Options({"--nproc-per-node", word, "W"}).workers, word);
  EXPECT_EQ(Options({"--nproc-per-node= 1_6 ", "W"}).workers, "16");
}

// --- Variables -----------------------------------------------------------------------------------

TEST(LaunchOptionsTest, Launch019TheLineGoesBeforeTheVariable) {
  const Environment two = {{"PET_NPROC_PER_NODE", "2"}};
  EXPECT_EQ(Options({"W"}, two).workers, "2");
  EXPECT_EQ(Options({"--nproc-per-node=1", "W"}, two).workers, "1");
}

TEST(LaunchOptionsTest, Launch020AFlagsVariableIsANumber) {
  EXPECT_TRUE(Options({"W"}, {{"PET_NO_PYTHON", "1"}}).command.no_python);
  EXPECT_TRUE(Options({"W"}, {{"PET_NO_PYTHON", " -2 "}}).command.no_python);
  EXPECT_FALSE(Options({"W"}, {{"PET_NO_PYTHON", "0"}}).command.no_python);
  EXPECT_TRUE(Options({"--no-python", "W"}, {{"PET_NO_PYTHON", "0"}}).command.no_python);
}

TEST(LaunchOptionsTest, Launch021AFlagsVariableThatIsNoNumberIsRefused) {
  ExpectRefused({"W"}, "PET_MODULE='x': write 1 for --module, or 0", {{"PET_MODULE", "x"}});
  ExpectRefused({"W"}, "PET_MODULE=''", {{"PET_MODULE", ""}});
  ExpectRefused({"-m", "W"}, "PET_MODULE='true'", {{"PET_MODULE", "true"}});
  ExpectRefused({"--help"}, "PET_STANDALONE", {{"PET_STANDALONE", "yes"}});
}

TEST(LaunchOptionsTest, Launch022AVariableOfTheWrongTypeIsAUsageError) {
  ExpectUsageError({"W"}, "PET_MAX_RESTARTS takes a whole number, not 'x'",
                   {{"PET_MAX_RESTARTS", "x"}});
  ExpectUsageError({"W"}, "PET_NODE_RANK", {{"PET_NODE_RANK", ""}});
  ExpectUsageError({"W"}, "PET_MONITOR_INTERVAL takes a number", {{"PET_MONITOR_INTERVAL", "x"}});
  ExpectUsageError({"W"}, "PET_SHUTDOWN_TIMEOUT", {{"PET_SHUTDOWN_TIMEOUT", "x"}});
  // A variable that the line replaces is not read.
  EXPECT_EQ(Options({"--max-restarts=2", "W"}, {{"PET_MAX_RESTARTS", "x"}}).max_restarts, 2);
  ExpectRefused({"W"}, "PET_MAX_RESTARTS: -1", {{"PET_MAX_RESTARTS", "-1"}});
}

TEST(LaunchOptionsTest, Launch023LogsSpecsHasNoVariable) {
  EXPECT_EQ(Options({"W"}, {{"PET_LOGS_SPECS", "zzz"}}), Options({"W"}));
  ExpectRefused({"--logs-specs=zzz", "W"}, "use torchrun");
  EXPECT_EQ(Options({"--logs-specs=default", "W"}), Options({"W"})) << "torchrun's own";
}

TEST(LaunchOptionsTest, ThePrefixOfLinesIsAnOptionOrOneOfTwoVariables) {
  const std::string older = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
  const std::string newer = "PET_LOG_LINE_PREFIX_TEMPLATE";
  EXPECT_EQ(Options({"W"}, {{older, "a"}}).prefix_template, "a");
  EXPECT_EQ(Options({"W"}, {{older, "a"}, {newer, "b"}}).prefix_template, "b");
  EXPECT_EQ(Options({"--log-line-prefix-template=c", "W"}, {{newer, "b"}}).prefix_template, "c");
}

TEST(LaunchOptionsTest, AnEmptyFolderInTheVariableIsNone) {
  EXPECT_EQ(Options({"W"}, {{"PET_LOG_DIR", ""}}).log_dir, "");
  EXPECT_EQ(Options({"W"}, {{"PET_LOG_DIR", "logs"}}).log_dir, "logs");
}

TEST(LaunchOptionsTest, OtherVariablesOfTrainingAreNotRead) {
  EXPECT_EQ(Options({"W"}, {{"MASTER_ADDR", "h"},
                            {"MASTER_PORT", "1"},
                            {"RANK", "3"},
                            {"WORLD_SIZE", "4"},
                            {"NODE_RANK", "1"}}),
            Options({"W"}));
}

RC_GTEST_PROP(LaunchOptionsTest, AVariableMeansWhatItsOptionMeans, ()) {
  struct Named {
    const char* name;
    const char* variable;
    Words values;
  };
  const std::vector<Named> options = {
      {"nnodes", "PET_NNODES", {"1", "2:3", "x", "", "0"}},
      {"nproc-per-node", "PET_NPROC_PER_NODE", {"4", "gpu", "0", "x"}},
      {"role", "PET_ROLE", {"trainer", "", "a b"}},
      {"rdzv-endpoint", "PET_RDZV_ENDPOINT", {"h:1", "h", "h:99999", ""}},
      {"rdzv-id", "PET_RDZV_ID", {"job", "none"}},
      {"rdzv-conf", "PET_RDZV_CONF", {"a=1", "a", "", "backend=x"}},
      {"max-restarts", "PET_MAX_RESTARTS", {"3", "-1", "x", " 1 "}},
      {"monitor-interval", "PET_MONITOR_INTERVAL", {"5", "0", "x", "nan", "1e-3"}},
      {"redirects", "PET_REDIRECTS", {"3", "0:1", "4", ""}},
      {"tee", "PET_TEE", {"3", "0:1,1:2", "x"}},
      {"local-ranks-filter", "PET_LOCAL_RANKS_FILTER", {"0,1", "x", ""}},
      {"event-log-handler", "PET_EVENT_LOG_HANDLER", {"null", "console", "x"}},
      {"shutdown-timeout", "PET_SHUTDOWN_TIMEOUT", {"0", "7", "-1", "x"}},
  };
  const Named option = options.at(*rc::gen::inRange<size_t>(0, options.size()));
  const std::string value = *rc::gen::elementOf(option.values);
  const auto by_line = ReadLaunchOptions(Words{Concat("--", option.name, "=", value), "W"}, {});
  const auto by_variable = ReadLaunchOptions(Words{"W"}, {{option.variable, value}});
  RC_ASSERT(by_line.index() == by_variable.index());
  if (const auto* refusal = std::get_if<LaunchRefusal>(&by_line)) {
    RC_ASSERT(refusal->status == std::get<LaunchRefusal>(by_variable).status);
  } else {
    RC_ASSERT(std::get<LaunchOptions>(by_line) == std::get<LaunchOptions>(by_variable));
  }
}

// --- Where nodes meet ----------------------------------------------------------------------------

TEST(LaunchOptionsTest, WithoutABackendItIsMusterUnlessNodesAreFixed) {
  EXPECT_EQ(Options({"W"}).backend, "muster");
  EXPECT_EQ(Options({"--rdzv-endpoint=h:1", "W"}).backend, "muster");
  EXPECT_EQ(Options({"--node-rank=0", "W"}).backend, "static");
  EXPECT_EQ(Options({"--master-addr=h", "W"}).backend, "static");
  EXPECT_EQ(Options({"W"}, {{"PET_MASTER_PORT", "29501"}}).backend, "static");
  EXPECT_EQ(Options({"--rdzv-backend=c10d", "--node-rank=0", "W"}).backend, "c10d");
  EXPECT_EQ(Options({"W"}, {{"PET_RDZV_BACKEND", "etcd-v2"}}).backend, "etcd-v2");
}

TEST(LaunchOptionsTest, Launch024RendezvousOptionsWithoutKeyOrValueAreRefused) {
  for (const std::string text : {"a", "=1", "a=1,", "a=", ",", "a=1,,b=2", " = "})
    ExpectRefused({"--rdzv-conf=" + text, "W"}, "is not KEY=VALUE: write k1=v1,k2=v2");
}

TEST(LaunchOptionsTest, Launch025RendezvousOptionsAreTrimmedAndDividedOnce) {
  EXPECT_THAT(Options({"--rdzv-conf= a = 1 , b=2=3", "W"}).rendezvous,
              ElementsAre(Pair("a", "1"), Pair("b", "2=3")));
  EXPECT_THAT(Options({"--rdzv-conf=a=1,a=2", "W"}).rendezvous, ElementsAre(Pair("a", "2")));
  EXPECT_THAT(Options({"--rdzv-conf=  ", "W"}).rendezvous, IsEmpty());
}

TEST(LaunchOptionsTest, Launch026RendezvousOptionsWithFlagsOfTheirOwnAreRefused) {
  for (const std::string key :
       {"backend", "endpoint", "run_id", "min_nodes", "max_nodes", "local_addr"})
    ExpectRefused({"--rdzv-conf=" + key + "=x", "W"}, "'" + key + "' has an option of its own");
}

TEST(LaunchOptionsTest, ARendezvousOptionThatNobodyKnowsIsToldOfOnce) {
  EXPECT_THAT(Options({"--rdzv-conf=join_timout=5,grace=1", "W"}).warnings,
              ElementsAre("the rendezvous backend 'muster' does not know the option "
                          "'join_timout', which has no effect; did you mean 'join_timeout'?"));
  EXPECT_THAT(Options({"--rdzv-backend=etcd", "--rdzv-conf=Ca_Cert=x,timeout=5", "W"}).warnings,
              ElementsAre(HasSubstr("'etcd' does not know the option 'Ca_Cert', which has no "
                                    "effect; did you mean 'ca_cert'?")));
  EXPECT_THAT(Options({"--rdzv-conf=banana=1", "W"}).warnings,
              ElementsAre(EndsWith("the option 'banana', which has no effect")));
  EXPECT_THAT(Options({"--rdzv-conf=" + std::string(5000, 'x') + "=1", "W"}).warnings, SizeIs(1));
}

TEST(LaunchOptionsTest, ARendezvousOptionOfAnotherBackendIsToldOf) {
  EXPECT_THAT(Options({"--rdzv-backend=c10d", "--rdzv-conf=grace=1,store_type=tcp", "W"}).warnings,
              Contains(HasSubstr("'c10d' does not know the option 'grace'")));
}

TEST(LaunchOptionsTest, RendezvousOptionsThatAreKnownAreNotToldOf) {
  EXPECT_THAT(Options({"--rdzv-backend=etcd",
                       "--rdzv-conf=join_timeout=1,timeout=1,last_call_timeout=1,close_timeout=1,"
                       "keep_alive_interval=1,keep_alive_max_attempt=3,rank_policy=text,label=a,"
                       "reform_timeout=1,rejoin_window=1,expected=2,"
                       "protocol=https,cacert=a,cert=b,key=c,user=d,password_file=e,etcd_prefix=/f,"
                       "read_timeout=1,contact_timeout=1",
                       "W"})
                  .warnings,
              IsEmpty());
  EXPECT_THAT(
      Options({"--rdzv-backend=c10d", "--rdzv-conf=cas_backoff_max_seconds=0.5", "W"}).warnings,
      IsEmpty());
}

TEST(LaunchOptionsTest, APasswordOfEtcdIsNotTakenFromTheCommandLine) {
  for (const std::string backend : {"etcd", "etcd-v2"}) {
    const std::string on = "--rdzv-backend=" + backend;
    ExpectRefused({on, "--rdzv-conf=user=me,password=secret", "W"}, "password_file=FILE");
    for (const std::string endpoint :
         {"etcd://me:secret@h1:2379", "https://me:se@cret@h1", "me:secret@h1/p"}) {
      ExpectRefused({on, "--rdzv-endpoint=" + endpoint, "W"}, "MUSTER_ETCD_PASSWORD");
      EXPECT_THAT(Refusal({on, "--rdzv-endpoint=" + endpoint, "W"}).text, Not(HasSubstr("cret")));
    }
    EXPECT_THAT(Refusal({on, "--rdzv-conf=user=me,password=secret", "W"}).text,
                Not(HasSubstr("secret")));
    EXPECT_EQ(Options({on, "--rdzv-endpoint=etcd://me@h1:2379/a:b@c", "W"}).endpoint,
              "etcd://me@h1:2379/a:b@c");
    // Other users cannot read a variable.
    const Environment variables = {{"PET_RDZV_ENDPOINT", "etcd://me:secret@h1:2379"}};
    EXPECT_EQ(Options({on, "W"}, variables).endpoint, "etcd://me:secret@h1:2379");
  }
}

TEST(LaunchOptionsTest, Launch027AnUnknownBackendIsRefused) {
  for (const std::string name : {"nope", "", "C10D"})
    ExpectRefused({"--rdzv-backend=" + name, "W"}, "'" + name + "'");
  ExpectRefused({"--rdzv-backend=nope", "W"},
                "Python plug-ins cannot be loaded here; use torchrun");
}

TEST(LaunchOptionsTest, Launch028StaticNeedsAPort) {
  for (const std::string endpoint : {"localhost", "[::1]", "localhost:", ":29500"})
    ExpectRefused({"--rdzv-backend=static", "--rdzv-endpoint=" + endpoint, "W"},
                  "--rdzv-endpoint: '" + endpoint + "' is not HOST:PORT");
  ExpectRefused({"--master-addr=", "W"}, "--master-addr: ':29500' is not HOST:PORT");
  ExpectRefused({"--master-port=65536", "W"}, "'127.0.0.1:65536'");
}

TEST(LaunchOptionsTest, Launch029APortBeyondAllIsRefused) {
  for (const std::string backend : {"muster", "c10d", "static"}) {
    for (const std::string port : {"99999", "65536", "x", "-1", "000001", "1_0"})
      ExpectRefused({"--rdzv-backend", backend, "--rdzv-endpoint=h:" + port, "W"},
                    "'h:" + port + "' is not HOST:PORT with a port from 0 to 65535");
  }
  ExpectRefused({"--rdzv-endpoint=h:99999", "W"}, "'h:99999'");
}

TEST(LaunchOptionsTest, AFileIsAnEndpointWhereTheStoreIsOne) {
  EXPECT_EQ(
      Options({"--rdzv-backend=c10d", "--rdzv-conf=store_type=file", "--rdzv-endpoint=/a:b", "W"})
          .endpoint,
      "/a:b");
}

TEST(LaunchOptionsTest, AMasterAddressMayBeIpv6WithOrWithoutBrackets) {
  EXPECT_EQ(Options({"--master-addr=[::1]", "W"}).endpoint, "[::1]:29500");
  EXPECT_EQ(Options({"--master-addr=::1", "--master-port=7", "W"}).endpoint, "[::1]:7");
  EXPECT_EQ(Options({"--master-addr=h", "W"}).endpoint, "h:29500");
}

TEST(LaunchOptionsTest, Launch031AnEndpointGoesBeforeTheMasterPort) {
  EXPECT_EQ(
      Options({"--rdzv-backend=static", "--rdzv-endpoint=127.0.0.1:4711", "--master-port=9", "W"})
          .endpoint,
      "127.0.0.1:4711");
}

TEST(LaunchOptionsTest, StaticHasItsRankAndTimeAmongTheRendezvousOptions) {
  EXPECT_THAT(Options({"--nnodes=2", "--node-rank=1", "--rdzv-conf=rank=0", "W"}).rendezvous,
              ElementsAre(Pair("rank", "1"), Pair("timeout", "900")));
  EXPECT_THAT(Options({"--node-rank=0", "--rdzv-conf=timeout=5", "W"}).rendezvous,
              Contains(Pair("timeout", "5")));
  EXPECT_THAT(Options({"W"}).rendezvous, IsEmpty());
  ExpectRefused({"--nnodes=2", "--node-rank=2", "W"}, "--node-rank: 2 among 2 nodes");
  ExpectRefused({"--node-rank=-1", "W"}, "--node-rank: -1 among 1 nodes");
}

TEST(LaunchOptionsTest, WhatOnlyStaticReadsIsWarnedOfElsewhere) {
  EXPECT_THAT(
      Options({"--rdzv-backend=c10d", "--master-port=1", "W"}, {{"PET_NODE_RANK", "7"}}).warnings,
      ElementsAre(HasSubstr("PET_NODE_RANK has no effect with the backend 'c10d'"),
                  HasSubstr("--master-port has no effect")));
  EXPECT_THAT(Options({"--node-rank=0", "W"}).warnings, IsEmpty());
}

TEST(LaunchOptionsTest, SeveralNodesWithoutAPlaceToMeetAreWarnedOf) {
  EXPECT_THAT(Options({"--nnodes=2", "W"}).warnings, ElementsAre(HasSubstr("no --rdzv-endpoint")));
  EXPECT_THAT(Options({"--nnodes=2", "--rdzv-endpoint=h:1", "W"}).warnings, IsEmpty());
}

TEST(LaunchOptionsTest, AnEmptyRunIdIsLeftToTheCallerWithAWarning) {
  const LaunchOptions options = Options({"--rdzv-id", "", "W"});
  EXPECT_EQ(options.run_id, "");
  EXPECT_FALSE(options.standalone);
  EXPECT_THAT(options.warnings, ElementsAre(HasSubstr("--rdzv-id is empty")));
}

TEST(LaunchOptionsTest, StandaloneOverridesBackendEndpointAndId) {
  const LaunchOptions options =
      Options({"--standalone", "--rdzv-backend=nope", "--rdzv-endpoint=h:99999", "--rdzv-id=job",
               "--nnodes=1:4", "W"});
  EXPECT_TRUE(options.standalone);
  EXPECT_EQ(options.backend, "muster");
  EXPECT_EQ(options.endpoint, "");
  EXPECT_EQ(options.run_id, "");
  EXPECT_EQ(options.nodes, (NodeCount{1, 1}));
  EXPECT_THAT(options.warnings, IsEmpty());
  ExpectRefused({"--standalone", "--nnodes=2", "W"}, "--standalone is for a single node");
  EXPECT_THAT(Options({"--standalone", "--node-rank=1", "W"}).warnings,
              ElementsAre(HasSubstr("--node-rank has no effect with --standalone")));
}

// --- What is run ---------------------------------------------------------------------------------

TEST(LaunchOptionsTest, Launch032AModuleNeedsPython) {
  ExpectRefused({"--no-python", "--module", "x"}, "a module needs Python");
  ExpectRefused({"-m", "x"}, "a module needs Python", {{"PET_NO_PYTHON", "1"}});
}

TEST(LaunchOptionsTest, RunPathWins) {
  const LaunchOptions options = Options({"--run-path", "--no-python", "--module", "x"});
  EXPECT_TRUE(options.command.run_path);
  EXPECT_FALSE(options.command.no_python);
  EXPECT_FALSE(options.command.module);
}

TEST(LaunchOptionsTest, TheLocalRankIsInsertedForLegacyCallersOnly) {
  constexpr auto kLegacy = LaunchPersonality::kLegacy;
  EXPECT_FALSE(Options({"W"}).command.pass_local_rank);
  EXPECT_TRUE(Options({"W"}, {}, kLegacy).command.pass_local_rank);
  EXPECT_FALSE(Options({"--use-env", "W"}, {}, kLegacy).command.pass_local_rank);
  EXPECT_FALSE(Options({"--use_env", "W"}, {}, kLegacy).command.pass_local_rank);
  EXPECT_TRUE(Options({"W"}, {{"PET_USE_ENV", "1"}}, kLegacy).command.pass_local_rank);
  EXPECT_THAT(Options({"W"}, {}, kLegacy).warnings, ElementsAre(HasSubstr("deprecated")));
  const LaunchRefusal refusal = Refusal({"--no-python", "W"}, {}, kLegacy);
  EXPECT_EQ(refusal.status, 1);
  EXPECT_THAT(refusal.text, HasSubstr("--no-python needs --use-env"));
  EXPECT_TRUE(Options({"--no-python", "--use-env", "W"}, {}, kLegacy).command.no_python);
}

// --- Supervision ---------------------------------------------------------------------------------

TEST(LaunchOptionsTest, Launch018TheMonitorIntervalIsAboveZero) {
  for (const std::string text : {"0", "-1", "nan", "inf", "-inf", "1e10"})
    ExpectRefused({"--monitor-interval=" + text, "W"}, "allowed: above 0");
  ExpectUsageError({"--monitor-interval=x", "W"}, "takes a number, not 'x'");
  EXPECT_EQ(Options({"--monitor-interval=0.25", "W"}).monitor_interval, 250ms);
  EXPECT_EQ(Options({"--monitor-interval=1e-12", "W"}).monitor_interval, 1ns);
  EXPECT_EQ(Options({"--monitor-interval=1e9", "W"}).monitor_interval, 1'000'000'000s);
}

TEST(LaunchOptionsTest, TheShutdownTimeComesFromThreePlaces) {
  const Environment older = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}};
  const Environment both = {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "5"}, {"PET_SHUTDOWN_TIMEOUT", "6"}};
  EXPECT_EQ(Options({"W"}).shutdown_timeout, 30s);
  EXPECT_EQ(Options({"W"}, older).shutdown_timeout, 5s);
  EXPECT_EQ(Options({"W"}, both).shutdown_timeout, 6s);
  EXPECT_EQ(Options({"--shutdown-timeout=0", "W"}, both).shutdown_timeout, 0s);
  ExpectRefused({"--shutdown-timeout=-1", "W"}, "--shutdown-timeout: '-1' is not a time");
  ExpectUsageError({"--shutdown-timeout=1.5", "W"}, "whole number");
  ExpectRefused({"W"}, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: 'x'",
                {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "x"}});
}

TEST(LaunchOptionsTest, TheBarriersTimeComesFromTwoPlaces) {
  const Environment variable = {{"TORCH_ELASTIC_EXIT_BARRIER_TIMEOUT", "7"}};
  EXPECT_EQ(Options({"W"}).exit_barrier_timeout, 300s);
  EXPECT_EQ(Options({"W"}, variable).exit_barrier_timeout, 7s);
  EXPECT_EQ(Options({"--exit-barrier-timeout", "8", "W"}, variable).exit_barrier_timeout, 8s);
  ExpectRefused({"--exit-barrier-timeout=9999999999", "W"}, "0 to 1000000000 are allowed");
}

TEST(LaunchOptionsTest, UnknownSignalsAreLeftOutWithAWarning) {
  const LaunchOptions options = Options({"--signals-to-handle=SIGUSR1,SIGFOO", "W"});
  EXPECT_EQ(options.signals, "SIGUSR1,SIGFOO");
  EXPECT_THAT(options.warnings, ElementsAre(HasSubstr("no signal 'SIGFOO'")));
  for (const std::string name : {"SIGKILL", "SIGSTOP"})
    ExpectRefused({"--signals-to-handle=SIGTERM," + name, "W"}, name + " cannot be handled");
}

TEST(ParseSignalsTest, SignalsAreNamedInFull) {
  EXPECT_EQ(*ParseSignals("SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
            (SignalList{{SIGTERM, SIGINT, SIGHUP, SIGQUIT}, {}}));
  EXPECT_EQ(*ParseSignals(" SIGUSR1 ,SIGFOO, SIGUSR2"),
            (SignalList{{SIGUSR1, SIGUSR2}, {"SIGFOO"}}));
  EXPECT_EQ(*ParseSignals("SIGABRT,SIGIOT,SIGABRT"), (SignalList{{SIGABRT}, {}}));
}

TEST(ParseSignalsTest, OtherNamesAreUnknown) {
  EXPECT_EQ(*ParseSignals("sigterm,TERM,15,SIGRTMIN,"),
            (SignalList{{}, {"sigterm", "TERM", "15", "SIGRTMIN", ""}}));
  EXPECT_EQ(*ParseSignals(""), (SignalList{{}, {""}}));
}

TEST(ParseSignalsTest, WhatNobodyCanHandleIsRefused) {
  EXPECT_THAT(ParseSignals("SIGTERM,SIGKILL").error().message, HasSubstr("SIGKILL"));
  EXPECT_THAT(ParseSignals(" SIGSTOP").error().message, HasSubstr("SIGSTOP"));
}

// --- Logs and reports ----------------------------------------------------------------------------

// torchrun refuses 10:1 as well, for a rank of two digits; here the tenth worker has streams too.
TEST(LaunchOptionsTest, Launch033StreamsAreCheckedBeforeAnythingStarts) {
  for (const std::string text : {"0", "1", "2", "3", "0:1,1:2", "10:1"}) {
    EXPECT_EQ(Options({"-r", text, "W"}).streams.redirects, *ParseStreams(text));
    EXPECT_EQ(Options({"-t" + text, "W"}).streams.tee, *ParseStreams(text));
  }
  for (const std::string text : {"4", "0:1,", "0:4", ""}) {
    ExpectRefused({"-r", text, "W"}, "--redirects: '" + text + "' names no streams");
    ExpectRefused({"--tee=" + text, "W"}, "--tee: '" + text + "' names no streams");
  }
}

TEST(LaunchOptionsTest, Launch034AFilterOfRanksIsAList) {
  ExpectRefused({"--local-ranks-filter=a", "W"}, "--local-ranks-filter: 'a'");
  EXPECT_THAT(Options({"--local-ranks-filter=0,2", "W"}).streams.shown_workers, ElementsAre(0, 2));
}

TEST(LaunchOptionsTest, Launch040ADoubledCommaIsAComma) {
  const LaunchOptions options =
      Options({"--duplicate-stdout-filters", "a,,b", "--duplicate-stderr-filters=c,d", "W"});
  EXPECT_THAT(options.output_filters, ElementsAre("a,b"));
  EXPECT_THAT(options.error_filters, ElementsAre("c", "d"));
}

TEST(LaunchOptionsTest, EventsGoToAKnownSink) {
  EXPECT_EQ(Options({"--event-log-handler=console", "W"}).event_sink, "console");
  ExpectRefused({"--event-log-handler=x", "W"}, "write null, console or file:PATH");
}

TEST(LaunchOptionsTest, OptionsOfOursAreRead) {
  const LaunchOptions options =
      Options({"--quiet", "--failure-report=f.json", "--python", "/bin/python3", "W"});
  EXPECT_TRUE(options.quiet);
  EXPECT_EQ(options.failure_report, "f.json");
  EXPECT_EQ(options.command.python, "/bin/python3");
  EXPECT_TRUE(Options({"--verbose", "W"}).verbose);
  ExpectRefused({"--quiet", "--verbose", "W"}, "leave out one of the two");
}

// --- Help ----------------------------------------------------------------------------------------

TEST(LaunchHelpTest, FitsAHundredColumns) {
  const std::string help = LaunchHelp();
  EXPECT_THAT(help, AllOf(StartsWith("usage: muster run"), EndsWith("."), Not(HasSubstr(" \n"))));
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = std::min(help.find('\n', begin), help.size());
    EXPECT_LE(end - begin, 100u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(LaunchHelpTest, EveryShellCanCompleteTheOptions) {
  for (const std::string shell : {"bash", "zsh", "tcsh", "fish"}) {
    const auto refusal =
        std::get<LaunchRefusal>(ReadLaunchOptions(std::vector{"--print-completion=" + shell}, {}));
    EXPECT_EQ(refusal.status, 0);
    EXPECT_THAT(refusal.text, AllOf(HasSubstr("complete"), HasSubstr("rdzv-endpoint"),
                                    HasSubstr("muster"), HasSubstr("torchrun")));
  }
}

TEST(LaunchHelpTest, TellsEveryOptionItsDefaultAndItsVariable) {
  const std::string help = LaunchHelp();
  for (const ArgumentSpec& option : LaunchTable(LaunchPersonality::kRun)) {
    EXPECT_THAT(help, HasSubstr(Concat("--", option.name)));
    EXPECT_THAT(std::string(option.help), Not(IsEmpty())) << option.name;
    EXPECT_THAT(help, HasSubstr(VariableOf(option)));
    if (option.initial.empty()) continue;
    EXPECT_THAT(help, HasSubstr(Concat("default: ", option.initial)));
  }
  EXPECT_THAT(help, Not(HasSubstr("--use-env")));
  EXPECT_THAT(LaunchHelp(LaunchPersonality::kLegacy), HasSubstr("--use-env"));
}

TEST(LaunchHelpTest, AVariableIsNamedAfterItsOption) {
  for (const ArgumentSpec& option : LaunchTable(LaunchPersonality::kLegacy)) {
    std::string name = Concat("PET_", option.name);
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    if (VariableOf(option).empty()) continue;
    EXPECT_EQ(VariableOf(option), name);
  }
}

}  // namespace
}  // namespace muster
