#include "launch/workers/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "support/temp_dir.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Environment = std::map<std::string, std::string>;

class InterpreterTest : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return folder_.File(name); }
  // Makes an executable file with its folders.
  std::string Program(const std::string& name) const {
    const std::string path = At(name);
    fs::create_directories(fs::path(path).parent_path());
    test::WriteFile(path, "#!/bin/sh\n");
    chmod(path.c_str(), 0755);
    return path;
  }
  std::string Link(const std::string& name, const std::string& target) const {
    const std::string path = At(name);
    fs::create_directories(fs::path(path).parent_path());
    fs::create_symlink(target, path);
    return path;
  }
  Environment NoPath() const { return {{"PATH", At("empty")}}; }

  const test::TempDir folder_;
};

std::string Found(const Environment& environment, const std::string& own = "",
                  const std::string& resolved = "", const std::string& asked = "") {
  const auto python = FindPython(environment, own, resolved, asked);
  return python ? *python : python.error().message;
}

// The environment is made of links; nothing of it is activated, and PATH has another Python.
TEST_F(InterpreterTest, Launch149AnEnvironmentsOwnInterpreterIsUsedWithoutActivation) {
  const std::string base = Program("usr/bin/python3.11");
  const std::string elsewhere = Program("other/bin/python3");
  const std::string resolved = Program("opt/muster/bin/muster");
  const std::string own = Link("venv/bin/muster", resolved);
  const std::string python = Link("venv/bin/python3", base);
  EXPECT_EQ(Found({{"PATH", At("other/bin")}}, own, resolved), python);
}

TEST_F(InterpreterTest, Launch149AProgramThatIsCopiedIntoAnEnvironmentUsesItToo) {
  const std::string python = Link("venv/bin/python", Program("usr/bin/python3.11"));
  const std::string own = Program("venv/bin/muster");
  EXPECT_EQ(Found(NoPath(), own, own), python);
}

TEST_F(InterpreterTest, PythonExecIsTakenAsItIs) {
  Environment environment = NoPath();
  environment["PYTHON_EXEC"] = "/no/such python";
  EXPECT_EQ(Found(environment, "", "", At("asked")), "/no/such python");
  environment["PYTHON_EXEC"] = "";
  EXPECT_EQ(Found(environment, "", "", "asked"), "asked");
}

TEST_F(InterpreterTest, EachPlaceComesInItsTurn) {
  const std::string own = Program("own/muster");
  const std::string resolved = Program("resolved/muster");
  Environment environment{
      {"PATH", At("path")}, {"VIRTUAL_ENV", At("venv")}, {"CONDA_PREFIX", At("conda")}};
  // From the last resort to the first choice: each one wins over all that were there before.
  const auto wins = [&](const std::string& name) {
    const std::string path = Program(name);
    EXPECT_EQ(Found(environment, own, resolved), path);
  };
  for (const char* name : {"path/python", "path/python3", "resolved/python", "resolved/python3",
                           "own/python", "own/python3", "conda/bin/python", "venv/bin/python"})
    wins(name);
  EXPECT_EQ(Found(environment, own, resolved, "asked"), "asked");
  environment["PYTHON_EXEC"] = "named";
  EXPECT_EQ(Found(environment, own, resolved, "asked"), "named");
}

TEST_F(InterpreterTest, AnActiveEnvironmentWinsUnlessTheProgramLiesInOne) {
  const std::string python = Program("usr/bin/python3");
  const std::string active = Program("active/bin/python");
  for (const char* const variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const Environment environment{{variable, At("active")}};
    const std::string usual = Program("usr/bin/muster");
    EXPECT_EQ(Found(environment, usual, usual), active);
    for (const char* const sign : {"venv/pyvenv.cfg", "conda/conda-meta/history"}) {
      const std::string prefix = fs::path(sign).begin()->string();
      Program(sign);
      const std::string own = Program(prefix + "/bin/muster");
      const std::string beside = Program(prefix + "/bin/python3");
      EXPECT_EQ(Found(environment, own, own), beside);
      // A link to it, as of pipx, is none of the environment's programs.
      EXPECT_EQ(Found(environment, At("usr/bin/link"), own), active);
    }
  }
  EXPECT_EQ(Found(NoPath(), At("usr/bin/muster"), At("venv/bin/muster")), python);
}

TEST_F(InterpreterTest, APython3LateOnPathWinsOverAnEarlyPython) {
  Program("a/python");
  const std::string python3 = Program("b/python3");
  EXPECT_EQ(Found({{"PATH", At("a") + ":" + At("b")}}), python3);
}

TEST_F(InterpreterTest, WhatCannotBeRunIsPassedOver) {
  fs::create_directories(At("a/python3"));  // A folder,
  Link("b/python3", At("gone"));            // a link to nothing,
  test::WriteFile(At("c_python3"), "");
  fs::create_directories(At("c"));
  fs::rename(At("c_python3"), At("c/python3"));  // and a file without the permission.
  const std::string good = Program("d/python3");
  EXPECT_EQ(Found({{"PATH", At("a") + ":" + At("b") + ":" + At("c") + ":" + At("d")}}), good);
}

TEST_F(InterpreterTest, WithoutAnyAllThatWasTriedIsSaid) {
  const Environment environment{{"PATH", At("empty")}, {"VIRTUAL_ENV", At("venv")}};
  const std::string message = Found(environment, At("own/muster"), At("own/muster"));
  EXPECT_THAT(message, AllOf(HasSubstr(At("own/python3")), HasSubstr(At("own/python")),
                             HasSubstr(At("venv/bin/python")), HasSubstr(At("empty")),
                             HasSubstr("PYTHON_EXEC"), Not(HasSubstr("\n"))));
  EXPECT_THAT(Found(NoPath()), HasSubstr("there is no python3 or python on PATH"));
}

TEST_F(InterpreterTest, OurOwnPathIsFoundAsAShellFoundIt) {
  const std::string link = Link("venv/bin/muster", Program("opt/muster"));
  const Environment environment{{"PATH", At("empty") + ":" + At("venv/bin")}};
  EXPECT_EQ(UnresolvedOwnPath("muster", environment), link);
  EXPECT_EQ(UnresolvedOwnPath("./bin/muster", environment), "./bin/muster");
  EXPECT_EQ(UnresolvedOwnPath("other", environment), "");
  EXPECT_EQ(UnresolvedOwnPath("", environment), "");
}

}  // namespace
}  // namespace muster
