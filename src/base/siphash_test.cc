#include "base/siphash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace muster {
namespace {

// Key 00 01 .. 0f. The hashes come from an independent implementation in Python, which reproduces
// the paper's test vector with two and four rounds.
constexpr SipKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};

TEST(SipHashTest, AgreesWithTheReference) {
  std::string text;
  for (const uint64_t expected :
       {0xabac0158050fc4dcULL, 0xc9f49bf37d57ca93ULL, 0x82cb9b024dc7d44dULL, 0x8bf80ab8e7ddf7fbULL,
        0xcf75576088d38328ULL, 0xdef9d52f49533b67ULL, 0xc50d2b50c59f22a7ULL, 0xd3927d989bb11140ULL,
        0x369095118d299a8eULL}) {
    EXPECT_EQ(SipHash13(kKey, text), expected) << text.size() << " bytes";
    text += static_cast<char>(text.size());
  }
}

TEST(SipHashTest, AnotherKeyGivesAnotherHash) {
  std::set<uint64_t> hashes;
  for (uint64_t key = 0; key < 100; ++key) hashes.insert(SipHash13({key, 0}, "torch.rendezvous"));
  EXPECT_EQ(hashes.size(), 100u);
}

TEST(SipHashTest, ZerosAtTheEndCount) {
  EXPECT_NE(SipHash13(kKey, std::string(3, '\0')), SipHash13(kKey, std::string(4, '\0')));
}

}  // namespace
}  // namespace muster
