#include "launch/core/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const Gpus kEight{{"GPU-aa00", "0"}, {"GPU-aa11", "1"}, {"GPU-bb22", "2"}, {"GPU-cc33", "3"},
                  {"GPU-dd44", "4"}, {"GPU-ee55", "5"}, {"GPU-ff66", "6"}, {"GPU-ff77", "7"}};
const Gpus kOneWithoutUuid{{"", "0"}, {"GPU-aa", "1"}};

/// Their numbers among all.
std::vector<int> Numbers(const Gpus& visible) {
  std::vector<int> numbers;
  for (const Gpu& gpu : visible) numbers.push_back(std::stoi(gpu.pci));
  return numbers;
}

std::vector<int> Cuda(const std::optional<std::string>& variable, const Gpus& all = kEight) {
  return Numbers(CudaVisible(variable, all).gpus);
}

std::vector<int> Rocm(const RocmVariables& variables) {
  return Numbers(RocmVisible(variables, kEight));
}

TEST(VisibleDevicesTest, WithoutAListAllAreSeen) {
  EXPECT_THAT(Cuda(std::nullopt), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(Cuda(std::nullopt, {}), IsEmpty());
}

TEST(VisibleDevicesTest, Launch147AnEmptyListHidesAllAndARepeatToo) {
  EXPECT_THAT(Cuda(""), IsEmpty());
  EXPECT_THAT(Cuda("0,0"), IsEmpty());
  EXPECT_THAT(Cuda("1,2,01"), IsEmpty());
}

TEST(VisibleDevicesTest, Launch147TheListEndsAtTheFirstDeviceThatIsNotThere) {
  EXPECT_THAT(Cuda("0,99,1"), ElementsAre(0));
  EXPECT_THAT(Cuda("8"), IsEmpty());
  EXPECT_THAT(Cuda("7,99999999999999999999999999"), ElementsAre(7));
}

TEST(VisibleDevicesTest, ARepeatBehindTheEndOfTheListCountsAsWell) {
  EXPECT_THAT(Cuda("0,99,99"), IsEmpty());
  EXPECT_THAT(Cuda("0,99,0"), IsEmpty());
  EXPECT_THAT(Cuda("0,x,0"), ElementsAre(0));  // What cannot be read ends the reading.
}

TEST(VisibleDevicesTest, NumbersKeepTheirOrder) {
  EXPECT_THAT(Cuda("5,0, 3"), ElementsAre(5, 0, 3));
}

TEST(VisibleDevicesTest, NumbersAreReadAsFarAsTheyGo) {
  EXPECT_THAT(Cuda("1gpu"), ElementsAre(1));
  EXPECT_THAT(Cuda("+2, 3x ,4"), ElementsAre(2, 3, 4));
  EXPECT_THAT(Cuda("-0"), ElementsAre(0));
}

TEST(VisibleDevicesTest, WhatIsNoNumberEndsTheList) {
  for (const char* text : {"2,-1,3", "2,gpu,3", "2,,3", "2,", "2,+,3", "2,GPU-bb,3", "2,-,3"})
    EXPECT_THAT(Cuda(text), ElementsAre(2)) << text;
  for (const char* text : {"-1", "none", "NoDevFiles", ",0", " ", "+"})
    EXPECT_THAT(Cuda(text), IsEmpty()) << text;
}

TEST(VisibleDevicesTest, Launch148AUniquePrefixIsOneDevice) {
  EXPECT_THAT(Cuda("GPU-bb"), ElementsAre(2));
  EXPECT_THAT(Cuda("GPU-ff77, GPU-a"), ElementsAre(7));  // Two begin with GPU-a.
  EXPECT_THAT(Cuda("GPU-ff77,GPU-cc33"), ElementsAre(7, 3));
}

TEST(VisibleDevicesTest, AListOfUuidsEndsAtWhatIsNone) {
  EXPECT_THAT(Cuda("GPU-bb,GPU-99,GPU-cc"), ElementsAre(2));
  EXPECT_THAT(Cuda("GPU-bb,3,GPU-cc"), ElementsAre(2));
  EXPECT_THAT(Cuda("GPU-bb, GPU-cc"), ElementsAre(2));  // PyTorch trims numbers only.
  EXPECT_THAT(Cuda("GPU-"), IsEmpty());
}

TEST(VisibleDevicesTest, ADeviceNamedTwiceHidesAll) {
  EXPECT_THAT(Cuda("GPU-bb,GPU-bb"), IsEmpty());
  EXPECT_THAT(Cuda("GPU-bb,GPU-bb22"), IsEmpty());
  EXPECT_THAT(Cuda("GPU-bb,GPU-99,GPU-bb"), IsEmpty());
}

TEST(VisibleDevicesTest, ADeviceThatDoesNotSayItsUuidIsNotFoundByOne) {
  EXPECT_THAT(Cuda("GPU-a", kOneWithoutUuid), ElementsAre(1));
  EXPECT_THAT(Cuda("0", kOneWithoutUuid), ElementsAre(0));
}

TEST(VisibleDevicesTest, PartsOfDevicesAreTheDriversBusiness) {
  EXPECT_TRUE(CudaVisible("MIG-1234,MIG-5678", kEight).ask_driver);
  EXPECT_FALSE(CudaVisible("GPU-aa,MIG-5678", kEight).ask_driver);
  EXPECT_EQ(CudaVisible("MIG-1,MIG-1", kEight), VisibleDevices{});
  EXPECT_FALSE(CudaVisible(std::nullopt, kEight).ask_driver);
}

TEST(VisibleDevicesTest, RocmChoosesTwice) {
  EXPECT_THAT(Rocm({}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(Rocm({.rocr = "4,5,6"}), ElementsAre(4, 5, 6));
  EXPECT_THAT(Rocm({.hip = "1,0"}), ElementsAre(1, 0));
  EXPECT_THAT(Rocm({.rocr = "4,5,6", .hip = "2,0"}), ElementsAre(6, 4));
  EXPECT_THAT(Rocm({.rocr = "4,5,6", .hip = "0,5"}), ElementsAre(4));
  EXPECT_THAT(Rocm({.rocr = ""}), IsEmpty());
}

TEST(VisibleDevicesTest, RocmReadsTheCudaVariableOnlyWithoutItsOwn) {
  EXPECT_THAT(Rocm({.cuda = "3"}), ElementsAre(3));
  EXPECT_THAT(Rocm({.hip = "2", .cuda = "3"}), ElementsAre(2));
  EXPECT_THAT(Rocm({.rocr = "6,7", .cuda = "1"}), ElementsAre(7));
  EXPECT_THAT(Rocm({.cuda = ""}), IsEmpty());
}

TEST(VisibleDevicesTest, RocmMixesNumbersAndUuids) {
  EXPECT_THAT(Rocm({.rocr = "0,GPU-dd44,2"}), ElementsAre(0, 4, 2));
  EXPECT_THAT(Rocm({.rocr = "4,GPU-dd44"}), IsEmpty());
}

}  // namespace
}  // namespace muster
