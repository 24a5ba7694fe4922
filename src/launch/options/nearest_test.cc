#include "launch/options/arguments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace muster {
namespace {

TEST(DidYouMeanTest, TheWordThatDiffersLeastIsNamedUnlessHalfOfItDiffers) {
  const std::vector<std::string> names{"--nnodes", "--node-rank", "--nproc-per-node"};
  EXPECT_EQ(DidYouMean("--nnode", names), "; did you mean '--nnodes'?");
  EXPECT_EQ(DidYouMean("--NPROC_PER_NODES", names), "; did you mean '--nproc-per-node'?");
  EXPECT_EQ(DidYouMean("--learning-rate", names), "");
  EXPECT_EQ(DidYouMean("--lr", {{"-r", "--tee", "--role"}}), "");
  EXPECT_EQ(DidYouMean(std::string(1000, 'n'), names), "");
  EXPECT_EQ(DidYouMean("--nnode", {}), "");
}

}  // namespace
}  // namespace muster
