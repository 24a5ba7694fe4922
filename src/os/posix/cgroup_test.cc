#include "os/posix/cgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "support/child_process.h"
#include "support/eventually.h"
#include "support/machine.h"
#include "support/temp_dir.h"

namespace muster {
namespace {

using namespace muster::test;  // NOLINT: the words of these tests
using testing::Contains;
using testing::Optional;

constexpr std::string_view kUnified =
    "25 30 0:23 / /proc rw,nosuid - proc proc rw\n"
    "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr std::string_view kHybrid =
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(CgroupFolderTest, ItIsTheOwnPathBelowTheMount) {
  EXPECT_THAT(OwnCgroupFolder(kUnified, "0::/user.slice/session-3.scope\n"),
              Optional(std::string("/sys/fs/cgroup/user.slice/session-3.scope")));
  EXPECT_THAT(OwnCgroupFolder(kUnified, "0::/\n"), Optional(std::string("/sys/fs/cgroup")));
}

TEST(CgroupFolderTest, VersionTwoIsFoundBesideVersionOne) {
  EXPECT_THAT(OwnCgroupFolder(kHybrid, "4:memory:/job\n1:cpu:/\n0::/job\n"),
              Optional(std::string("/sys/fs/cgroup/unified/job")));
}

TEST(CgroupFolderTest, ThereIsNoneWithoutVersionTwo) {
  EXPECT_EQ(OwnCgroupFolder(kHybrid, "4:memory:/job\n"), std::nullopt);
  EXPECT_EQ(OwnCgroupFolder("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                            "0::/\n"),
            std::nullopt);
  EXPECT_EQ(OwnCgroupFolder("", ""), std::nullopt);
}

TEST(CgroupFolderTest, AMountOfAPartIsSeenFromThatPart) {
  constexpr std::string_view kPart = "35 24 0:30 /docker/abc /cg rw - cgroup2 cgroup2 rw\n";
  EXPECT_THAT(OwnCgroupFolder(kPart, "0::/docker/abc\n"), Optional(std::string("/cg")));
  EXPECT_THAT(OwnCgroupFolder(kPart, "0::/docker/abc/job\n"), Optional(std::string("/cg/job")));
  EXPECT_EQ(OwnCgroupFolder(kPart, "0::/docker/abcdef\n"), std::nullopt);
  EXPECT_EQ(OwnCgroupFolder(kPart, "0::/elsewhere\n"), std::nullopt);
}

TEST(CgroupFolderTest, AGroupOutsideTheNamespaceIsOutOfReach) {
  EXPECT_EQ(OwnCgroupFolder(kUnified, "0::/../other\n"), std::nullopt);
}

TEST(CgroupFolderTest, BlanksInAMountPointAreRead) {
  EXPECT_THAT(OwnCgroupFolder("35 24 0:30 / /a\\040b\\134c rw - cgroup2 none rw\n", "0::/j\n"),
              Optional(std::string("/a b\\c/j")));
}

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    MUSTER_REQUIRE(CgroupNeed());
    cgroup_ = Cgroup::Make("muster-test-" + std::to_string(getpid()));
    ASSERT_NE(cgroup_, nullptr);
  }
  void TearDown() override {
    EXPECT_TRUE(cgroup_ == nullptr || (cgroup_->End(10s) && cgroup_->Remove()));
  }

  /// A process in the group, or in a group below it.
  ChildProcess Member(const std::string& members) {
    ChildProcess child = ChildProcess::Fork([&](int input, int output) {
      WriteFile(members, "0");
      dprintf(output, "\n");
      char byte;
      return static_cast<int>(read(input, &byte, 1));
    });
    EXPECT_TRUE(child.ReadLine());
    return child;
  }

  std::unique_ptr<Cgroup> cgroup_;
};

TEST_F(CgroupTest, AllMembersAreKilledAlsoThoseInGroupsBelow) {
  ASSERT_EQ(mkdir((cgroup_->path() + "/below").c_str(), 0755), 0);
  ChildProcess member = Member(cgroup_->path() + "/cgroup.procs");
  ChildProcess below = Member(cgroup_->path() + "/below/cgroup.procs");
  EXPECT_THAT(cgroup_->Members(), testing::UnorderedElementsAre(member.pid(), below.pid()));
  EXPECT_FALSE(cgroup_->IsEmpty());
  EXPECT_FALSE(cgroup_->Remove());
  EXPECT_TRUE(cgroup_->End(10s));
  EXPECT_EQ(member.Wait(), -SIGKILL);
  EXPECT_EQ(below.Wait(), -SIGKILL);
  EXPECT_TRUE(cgroup_->IsEmpty());
  EXPECT_TRUE(cgroup_->Remove());
  EXPECT_FALSE(FileExists(cgroup_->path()));
  EXPECT_TRUE(cgroup_->Remove()) << "it is gone, whoever removed it";
}

TEST_F(CgroupTest, MembersAreKilledOneByOneWhereTheKernelCannotKillThemAtOnce) {
  ChildProcess first = Member(cgroup_->path() + "/cgroup.procs");
  ChildProcess second = Member(cgroup_->path() + "/cgroup.procs");
  cgroup_->KillOneByOne();
  EXPECT_EQ(first.Wait(), -SIGKILL);
  EXPECT_EQ(second.Wait(), -SIGKILL);
}

TEST_F(CgroupTest, WhoWritesItsNameIsAMember) {
  ChildProcess member = ChildProcess::Fork([&](int input, int output) {
    dprintf(output, "%zd\n", write(cgroup_->members_fd(), "0", 1));
    char byte;
    return static_cast<int>(read(input, &byte, 1));
  });
  EXPECT_EQ(member.ReadLine(), "1");
  EXPECT_THAT(cgroup_->Members(), Contains(member.pid()));
}

TEST_F(CgroupTest, ANameThatIsTakenMakesNoGroup) {
  const std::string name = cgroup_->path().substr(cgroup_->path().rfind('/') + 1);
  EXPECT_EQ(Cgroup::Make(name), nullptr);
  EXPECT_EQ(Cgroup::Make("no/such/place"), nullptr);
}

}  // namespace
}  // namespace muster
