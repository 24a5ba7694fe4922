#include "launch/core/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const DeviceList kEight{{"GPU-aa00", "GPU-aa11", "GPU-bb22", "GPU-cc33", "GPU-dd44", "GPU-ee55",
                         "GPU-ff66", "GPU-ff77"}};

std::vector<size_t> Cuda(const std::string& variable) {
  return CudaVisible(variable, kEight).indices;
}

TEST(VisibleDevicesTest, WithoutAListAllAreSeen) {
  EXPECT_THAT(CudaVisible(std::nullopt, kEight).indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(CudaVisible(std::nullopt, {}).indices, IsEmpty());
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
  EXPECT_THAT(CudaVisible("GPU-a", {{"", "GPU-aa"}}).indices, ElementsAre(1));
  EXPECT_THAT(CudaVisible("0", {{"", "GPU-aa"}}).indices, ElementsAre(0));
}

TEST(VisibleDevicesTest, PartsOfDevicesAreTheDriversBusiness) {
  EXPECT_TRUE(CudaVisible("MIG-1234,MIG-5678", kEight).ask_driver);
  EXPECT_FALSE(CudaVisible("GPU-aa,MIG-5678", kEight).ask_driver);
  EXPECT_EQ(CudaVisible("MIG-1,MIG-1", kEight), VisibleDevices{});
  EXPECT_FALSE(CudaVisible(std::nullopt, kEight).ask_driver);
}

TEST(VisibleDevicesTest, RocmChoosesTwice) {
  EXPECT_THAT(RocmVisible({}, kEight).indices, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(RocmVisible({.rocr = "4,5,6"}, kEight).indices, ElementsAre(4, 5, 6));
  EXPECT_THAT(RocmVisible({.hip = "1,0"}, kEight).indices, ElementsAre(1, 0));
  EXPECT_THAT(RocmVisible({.rocr = "4,5,6", .hip = "2,0"}, kEight).indices, ElementsAre(6, 4));
  EXPECT_THAT(RocmVisible({.rocr = "4,5,6", .hip = "0,5"}, kEight).indices, ElementsAre(4));
  EXPECT_THAT(RocmVisible({.rocr = ""}, kEight).indices, IsEmpty());
}

TEST(VisibleDevicesTest, RocmReadsTheCudaVariableOnlyWithoutItsOwn) {
  EXPECT_THAT(RocmVisible({.cuda = "3"}, kEight).indices, ElementsAre(3));
  EXPECT_THAT(RocmVisible({.hip = "2", .cuda = "3"}, kEight).indices, ElementsAre(2));
  EXPECT_THAT(RocmVisible({.rocr = "6,7", .cuda = "1"}, kEight).indices, ElementsAre(7));
  EXPECT_THAT(RocmVisible({.cuda = ""}, kEight).indices, IsEmpty());
}

TEST(VisibleDevicesTest, RocmMixesNumbersAndUuids) {
  EXPECT_THAT(RocmVisible({.rocr = "0,GPU-dd44,2"}, kEight).indices, ElementsAre(0, 4, 2));
  EXPECT_THAT(RocmVisible({.rocr = "4,GPU-dd44"}, kEight).indices, IsEmpty());
}

}  // namespace
}  // namespace muster
