#include "launch/options/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

using Kind = ArgumentSpec::Kind;
using Words = std::vector<std::string>;

constexpr ArgumentSpec kTable[] = {
    {.name = "nproc-per-node", .placeholder = "N"},
    {.name = "node-rank", .kind = Kind::kWhole, .placeholder = "N", .initial = "0"},
    {.name = "no-python", .kind = Kind::kFlag},
    {.name = "interval", .kind = Kind::kFraction, .placeholder = "SECONDS"},
    {.name = "module", .kind = Kind::kFlag, .letter = 'm'},
    {.name = "tee", .placeholder = "STREAMS", .letter = 't'},
    {.name = "redirects", .placeholder = "STREAMS", .letter = 'r'},
    {.name = "method", .placeholder = "NAME", .choices = "spawn,fork"},
    {.name = "help", .kind = Kind::kHelp, .letter = 'h'},
    {.name = "method-of-ours", .placeholder = "NAME", .ours = true},
    {.name = "redo", .kind = Kind::kFlag, .ours = true},
    {.name = "quiet", .kind = Kind::kFlag, .ours = true},
};

Result<CommandLine> Read(const Words& words) { return ReadCommandLine(kTable, words); }

/// What is wrong with them; empty: nothing.
std::string Wrong(const Words& words) {
  const auto line = Read(words);
  return line ? "" : line.error().message;
}

// --- Values --------------------------------------------------------------------------------------

TEST(ArgumentsTest, ALongOptionHasTwoSpellingsAndItsValueTwoPlaces) {
  for (const Words& words : {Words{"--nproc-per-node=3", "W"}, Words{"--nproc-per-node", "3", "W"},
                             Words{"--nproc_per_node=3", "W"}, Words{"--nproc_per_node", "3", "W"}})
    EXPECT_THAT(Read(words)->given, ElementsAre(Pair("nproc-per-node", "3"))) << words[0];
  EXPECT_THAT(Wrong({"--nproc_per-node=3", "W"}), HasSubstr("no option '--nproc_per-node=3'"));
}

TEST(ArgumentsTest, OnlyTheFirstEqualsSignDivides) {
  EXPECT_EQ(Read({"--tee=a=b=", "W"})->given.at("tee"), "a=b=");
  EXPECT_EQ(Read({"--tee=", "W"})->given.at("tee"), "");
  EXPECT_EQ(Read({"--tee", "", "W"})->given.at("tee"), "");
}

TEST(ArgumentsTest, LettersTakeTheirValueWithOrWithoutABlank) {
  for (const Words& words : {Words{"-t", "3", "W"}, Words{"-t3", "W"}, Words{"-t=3", "W"}})
    EXPECT_THAT(Read(words)->given, ElementsAre(Pair("tee", "3"))) << words[0];
}

TEST(ArgumentsTest, LettersOfFlagsMayLeadACluster) {
  for (const Words& words : {Words{"-mt", "3", "W"}, Words{"-mt3", "W"}, Words{"-mt=3", "W"}})
    EXPECT_THAT(Read(words)->given, ElementsAre(Pair("module", ""), Pair("tee", "3"))) << words[0];
  EXPECT_EQ(Read({"-tm", "W"})->given.at("tee"), "m");
  EXPECT_TRUE(Read({"-mh"})->help);
}

TEST(ArgumentsTest, AFlagTakesNoValue) {
  EXPECT_THAT(Wrong({"--module=1", "W"}), HasSubstr("-m/--module takes no value, but '1' came"));
  EXPECT_THAT(Wrong({"--module=", "W"}), HasSubstr("takes no value"));
  EXPECT_THAT(Wrong({"-mx", "W"}), HasSubstr("takes no value, but 'x' came"));
  EXPECT_THAT(Wrong({"-m=t", "W"}), HasSubstr("takes no value, but 't' came"));
}

TEST(ArgumentsTest, NegativeNumbersAreValues) {
  for (const std::string number : {"-1", "-12", "-.5", "-1.5"})
    EXPECT_EQ(Read({"--tee", number, "W"})->given.at("tee"), number);
  for (const std::string word : {"-1.", "-1x", "-1.2.3", "-x", "--", "--module", "-.", "-1_0"})
    EXPECT_THAT(Wrong({"--tee", word, "W"}), HasSubstr("-t/--tee needs a value")) << word;
  EXPECT_THAT(Wrong({"--tee"}), HasSubstr("needs a value"));
  EXPECT_EQ(Read({"--tee=-x", "W"})->given.at("tee"), "-x");
  EXPECT_EQ(Read({"--tee", "-", "W"})->given.at("tee"), "-");
  EXPECT_EQ(Read({"--tee", "-a b", "W"})->given.at("tee"), "-a b");
}

TEST(ArgumentsTest, TheLastOneWins) {
  EXPECT_THAT(Read({"--tee=1", "-t2", "--te", "3", "W"})->given, ElementsAre(Pair("tee", "3")));
}

TEST(ArgumentsTest, NumbersAreCheckedWhereTheyStand) {
  EXPECT_EQ(Read({"--node-rank", " 1_0 ", "W"})->given.at("node-rank"), " 1_0 ");
  EXPECT_THAT(Wrong({"--node-rank=a", "-h"}),
              HasSubstr("--node-rank takes a whole number, not 'a'"));
  EXPECT_THAT(Wrong({"--node-rank=", "W"}), HasSubstr("whole number"));
  EXPECT_EQ(Read({"--interval", "1e-3", "W"})->given.at("interval"), "1e-3");
  EXPECT_THAT(Wrong({"--interval=fast", "W"}), HasSubstr("--interval takes a number, not 'fast'"));
}

TEST(ArgumentsTest, ChoicesAreNamedWhereNoneIsMade) {
  EXPECT_EQ(Read({"--method=fork", "W"})->given.at("method"), "fork");
  for (const std::string word : {"foo", "", "spawn,fork", "Fork"})
    EXPECT_THAT(Wrong({"--method=" + word, "W"}),
                HasSubstr(Concat("--method takes one of spawn, fork, not '", word, "'")));
}

// --- Names cut short -----------------------------------------------------------------------------

TEST(ArgumentsTest, AnAbbreviationCountsBothSpellings) {
  EXPECT_EQ(Read({"--redirect=3", "W"})->given.at("redirects"), "3");
  EXPECT_EQ(Read({"--nproc-per", "2", "W"})->given.at("nproc-per-node"), "2");
  EXPECT_EQ(Read({"--nproc_", "2", "W"})->given.at("nproc-per-node"), "2");
  EXPECT_THAT(Wrong({"--nproc", "2", "W"}),
              HasSubstr("'--nproc' may be any of --nproc-per-node, --nproc_per_node"));
  EXPECT_THAT(Wrong({"--no=2", "W"}), HasSubstr("'--no=2' may be any of --node-rank, --node_rank, "
                                                "--no-python, --no_python"));
  EXPECT_TRUE(Read({"--hel"})->help);
}

TEST(ArgumentsTest, AWholeNameIsNoAbbreviation) {
  EXPECT_EQ(Read({"--method", "fork", "W"})->given.at("method"), "fork");
}

TEST(ArgumentsTest, OptionsOfOursLeaveAbbreviationsOfTorchrunAlone) {
  EXPECT_EQ(Read({"--re=3", "W"})->given.at("redirects"), "3");  // And not --redo.
  EXPECT_EQ(Read({"--met=fork", "W"})->given.at("method"), "fork");
  EXPECT_TRUE(Read({"--redo", "W"})->given.contains("redo"));
  EXPECT_TRUE(Read({"--q", "W"})->given.contains("quiet"));
  EXPECT_EQ(Read({"--method-of=x", "W"})->given.at("method-of-ours"), "x");
}

/// All spellings of long names in the table, torchrun's or ours.
Words Spellings(bool ours) {
  Words spellings;
  for (const ArgumentSpec& spec : kTable) {
    if (spec.ours != ours) continue;
    spellings.push_back(Concat("--", spec.name));
    std::string other = spellings.back();
    std::replace(other.begin() + 2, other.end(), '-', '_');
    if (other != spellings.back()) spellings.push_back(other);
  }
  return spellings;
}

RC_GTEST_PROP(ArgumentsTest, AbbreviationsMeanWhatCountingTheirSpellingsSays, ()) {
  const Words theirs = Spellings(false);
  const std::string name = *rc::gen::elementOf(theirs);
  const auto size = *rc::gen::inRange<size_t>(3, name.size() + 1);
  const std::string word = name.substr(0, size);
  const auto matches = std::count_if(theirs.begin(), theirs.end(),
                                     [&](const std::string& it) { return it.starts_with(word); });
  const bool whole = std::count(theirs.begin(), theirs.end(), word) == 1;
  const std::string why = Wrong({word});  // At the end of the line: a value is missing, at most.
  RC_ASSERT((why.find("may be any of") != why.npos) == (matches > 1 && !whole));
  RC_ASSERT(why.find("no option") == why.npos);
}

// --- The script and what is behind it ------------------------------------------------------------

TEST(ArgumentsTest, WhatIsBehindTheScriptIsTheScripts) {
  const auto line = Read({"-m", "W", "--nproc-per-node", "3", "-h", "--nproc", "x", "--", "y"});
  EXPECT_EQ(line->script, "W");
  EXPECT_FALSE(line->help);
  EXPECT_THAT(line->given, ElementsAre(Pair("module", "")));
  EXPECT_THAT(line->rest, ElementsAre("--nproc-per-node", "3", "-h", "--nproc", "x", "--", "y"));
}

RC_GTEST_PROP(ArgumentsTest, NoWordBehindTheScriptIsReadOrChanged, (Words rest)) {
  RC_PRE((rest.empty() || rest.front() != "--"));
  Words words = {"--tee", "1", "W"};
  words.insert(words.end(), rest.begin(), rest.end());
  const auto line = Read(words);
  RC_ASSERT(line.has_value());
  RC_ASSERT(*line->script == "W");
  RC_ASSERT(line->rest == rest);
  RC_ASSERT(line->given.size() == 1u);
}

TEST(ArgumentsTest, OneDoubleDashDividesOnEitherSideOfTheScript) {
  const auto read = [](const Words& words) {
    const auto line = Read(words);
    Words all = {line->script.value_or("(none)")};
    all.insert(all.end(), line->rest.begin(), line->rest.end());
    return all;
  };
  EXPECT_THAT(read({"--", "W", "x"}), ElementsAre("W", "x"));
  EXPECT_THAT(read({"W", "--", "x"}), ElementsAre("W", "x"));
  EXPECT_THAT(read({"W", "--"}), ElementsAre("W"));
  EXPECT_THAT(read({"-m", "--", "W", "x"}), ElementsAre("W", "x"));
  EXPECT_THAT(read({"--", "W", "--", "x"}), ElementsAre("W", "--", "x"));
  EXPECT_THAT(read({"W", "--", "--", "x"}), ElementsAre("W", "--", "x"));
  EXPECT_THAT(read({"W", "x", "--", "y"}), ElementsAre("W", "x", "--", "y"));
  EXPECT_THAT(read({"--", "--tee", "3"}), ElementsAre("--tee", "3"));
  EXPECT_THAT(read({"--", "--", "W"}), ElementsAre("--", "W"));
  EXPECT_THAT(read({"--"}), ElementsAre("(none)"));
  EXPECT_THAT(read({}), ElementsAre("(none)"));
}

TEST(ArgumentsTest, WhatLooksLikeNoOptionIsAScript) {
  for (const std::string word : {"W", "-", "", "-5", "--not an option", "-x y"})
    EXPECT_EQ(Read({word, "x"})->script, word);
}

TEST(ArgumentsTest, AnUnknownOptionIsNamedUnlessHelpIsWanted) {
  EXPECT_THAT(Wrong({"--foo", "W"}), HasSubstr("no option '--foo'"));
  EXPECT_THAT(Wrong({"--foo=1", "-x", "W"}), HasSubstr("no option '--foo=1'"));
  EXPECT_THAT(Wrong({"-x", "W", "-h"}), HasSubstr("no option '-x'"));
  EXPECT_TRUE(Read({"--foo", "-h"})->help);
  EXPECT_THAT(Wrong({"--\x1b[31m", "W"}), Not(HasSubstr("\x1b")));
}

TEST(ArgumentsTest, HelpEndsTheReading) {
  const auto line = Read({"--tee=1", "--help", "--foo", "W"});
  EXPECT_TRUE(line->help);
  EXPECT_EQ(line->script, std::nullopt);
}

RC_GTEST_PROP(ArgumentsTest, EveryLineIsReadOrRefusedWithAReason, ()) {
  const auto word = rc::gen::oneOf(
      rc::gen::elementOf(Words{"-m", "-mt3", "-t", "--tee", "--node-rank=1", "--", "-1", "--no",
                               "-h", "=", "--=", "-=", "--met", "W", "a b", ""}),
      rc::gen::arbitrary<std::string>());
  const auto words = *rc::gen::container<Words>(word);
  const auto line = Read(words);
  if (!line) {
    RC_ASSERT(!line.error().message.empty());
  } else if (!line->help) {
    RC_ASSERT((line->script.has_value() || line->rest.empty()));
  }
}

// --- Numbers and help ----------------------------------------------------------------------------

TEST(ArgumentsTest, FractionsAreReadAsPythonReadsThem) {
  EXPECT_EQ(ParseFraction("0.1"), 0.1);
  EXPECT_EQ(ParseFraction(" 5 "), 5.0);
  EXPECT_EQ(ParseFraction("+1e-3"), 1e-3);
  EXPECT_EQ(ParseFraction("-2."), -2.0);
  EXPECT_EQ(ParseFraction(".5"), 0.5);
  EXPECT_EQ(ParseFraction("1_000.2_5"), 1000.25);
  EXPECT_TRUE(std::isinf(*ParseFraction("Infinity")));
  EXPECT_TRUE(std::isnan(*ParseFraction("nan")));
  for (const char* text : {"", " ", ".", "a", "1s", "0x1", "1 2", "+-1", "--1", "_1", "1_", "1__0",
                           "1_.5", "nan(1)", "1e", "1,5", "1e999"})
    EXPECT_FALSE(ParseFraction(text)) << text;
}

TEST(ArgumentsTest, AVariablesValueIsCheckedUnderItsOwnName) {
  EXPECT_TRUE(CheckKind(kTable[1], "PET_NODE_RANK", "3"));
  EXPECT_EQ(CheckKind(kTable[1], "PET_NODE_RANK", "x").error().message,
            "PET_NODE_RANK takes a whole number, not 'x'");
}

TEST(ArgumentsTest, HelpIsGroupedAndKeepsToItsColumns) {
  const std::vector<ArgumentSpec> table = {
      {.name = "tee",
       .placeholder = "STREAMS",
       .initial = "0",
       .help = "Show them, and write them to files as well.",
       .letter = 't',
       .group = "Logs"},
      {.name = "an-option-with-a-long-name",
       .placeholder = "N",
       .help = "Short.",
       .ours = true,
       .group = "Others"},
  };
  EXPECT_EQ(HelpOn(table, 60),
            "Logs:\n"
            "  -t, --tee STREAMS           Show them, and write them to\n"
            "                              files as well.\n"
            "                              [default: 0; PET_TEE]\n"
            "\n"
            "Others:\n"
            "  --an-option-with-a-long-name N\n"
            "                              Short. [not in torchrun]\n");
}

}  // namespace
}  // namespace muster
