// RendezvousHandlerRegistry: which backends are registered, and the errors of creating a handler.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/registry.h"
#include "support/errors.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

class FakeHandler final : public RendezvousHandler {
 public:
  explicit FakeHandler(std::string backend, std::string run_id = "")
      : backend_(std::move(backend)), run_id_(std::move(run_id)) {}

  using RendezvousHandler::SetClosed;
  std::string GetBackend() const override { return backend_; }
  std::string GetRunId() const override { return run_id_; }
  RendezvousInfo NextRendezvous() override { return {}; }
  bool IsClosed() override { return false; }
  void SetClosed(std::string_view) override {}
  int64_t NumNodesWaiting() override { return 0; }
  bool Shutdown() override { return true; }

 private:
  const std::string backend_;
  const std::string run_id_;
};

RendezvousHandlerPtr CreateFirst(const RendezvousParameters& parameters) {
  return std::make_unique<FakeHandler>(parameters.backend, "by the first");
}

RendezvousHandlerPtr CreateSecond(const RendezvousParameters& parameters) {
  return std::make_unique<FakeHandler>(parameters.backend, "by the second");
}

RendezvousParameters For(std::string backend) {
  return {std::move(backend), "localhost:0", "run", 1, 1};
}

}  // namespace

TEST(RendezvousRegistryTest, Rdzv027RegisteringTheSameCreatorAgainChangesNothing) {
  RendezvousHandlerRegistry registry;
  registry.Register("fake", &CreateFirst);
  EXPECT_NO_THROW(registry.Register("fake", &CreateFirst));
  EXPECT_NO_THROW(registry.Register("fake", CreateFirst));
  EXPECT_THAT(registry.Names(), ElementsAre("fake"));
}

TEST(RendezvousRegistryTest, Rdzv028RegisteringAnotherCreatorFailsAndTheFirstStays) {
  RendezvousHandlerRegistry registry;
  registry.Register("fake", &CreateFirst);
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { registry.Register("fake", &CreateSecond); }),
              AllOf(HasSubstr("'fake'"), HasSubstr("already registered")));
  EXPECT_EQ(registry.CreateHandler(For("fake"))->GetRunId(), "by the first");
}

TEST(RendezvousRegistryTest, Rdzv028TwoFunctionObjectsAreNeverTheSame) {
  RendezvousHandlerRegistry registry;
  const auto creator = [](const RendezvousParameters& parameters) {
    return CreateFirst(parameters);
  };
  registry.Register("fake", creator);
  EXPECT_THROW(registry.Register("fake", creator), std::invalid_argument);
  EXPECT_THROW(registry.Register("fake", &CreateFirst), std::invalid_argument);
}

TEST(RendezvousRegistryTest, Rdzv029RegisteringAnEmptyNameFails) {
  RendezvousHandlerRegistry registry;
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { registry.Register("", &CreateFirst); }),
              HasSubstr("name is empty"));
  EXPECT_THAT(registry.Names(), ElementsAre());
}

TEST(RendezvousRegistryTest, RegisteringNoCreatorFails) {
  RendezvousHandlerRegistry registry;
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { registry.Register("fake", nullptr); }),
              AllOf(HasSubstr("'fake'"), HasSubstr("null")));
}

TEST(RendezvousRegistryTest, Rdzv030AnUnknownNameFailsAndHintsAtRegistering) {
  RendezvousHandlerRegistry registry;
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { registry.CreateHandler(For("fake")); }),
              AllOf(HasSubstr("'fake'"), HasSubstr("none"), HasSubstr("Register()")));
  registry.Register("b", &CreateFirst);
  registry.Register("a", &CreateFirst);
  EXPECT_THAT(ErrorOf<std::invalid_argument>([&] { registry.CreateHandler(For("fake")); }),
              AllOf(HasSubstr("'fake'"), HasSubstr("a, b"), HasSubstr("Register()")));
}

TEST(RendezvousRegistryTest, Rdzv031AHandlerOfAnotherBackendIsRejectedNamingBoth) {
  RendezvousHandlerRegistry registry;
  registry.Register("wanted", [](const RendezvousParameters&) -> RendezvousHandlerPtr {
    return std::make_unique<FakeHandler>("other");
  });
  EXPECT_THAT(ErrorOf<std::runtime_error>([&] { registry.CreateHandler(For("wanted")); }),
              AllOf(HasSubstr("'wanted'"), HasSubstr("'other'")));
}

TEST(RendezvousRegistryTest, ACreatorThatReturnsNothingIsRejected) {
  RendezvousHandlerRegistry registry;
  registry.Register("fake", [](const RendezvousParameters&) { return RendezvousHandlerPtr(); });
  EXPECT_THAT(ErrorOf<std::runtime_error>([&] { registry.CreateHandler(For("fake")); }),
              AllOf(HasSubstr("'fake'"), HasSubstr("no handler")));
}

TEST(RendezvousRegistryTest, Rdzv032TheCreatorGetsTheVeryParameters) {
  RendezvousHandlerRegistry registry;
  const RendezvousParameters* got = nullptr;
  registry.Register("fake", [&got](const RendezvousParameters& parameters) {
    got = &parameters;
    return CreateFirst(parameters);
  });
  const RendezvousParameters given = For("fake");
  EXPECT_EQ(registry.CreateHandler(given)->GetBackend(), "fake");
  EXPECT_EQ(got, &given);
}

TEST(RendezvousRegistryTest, ACreatorMayUseTheRegistryItself) {
  RendezvousHandlerRegistry registry;
  registry.Register("inner", &CreateFirst);
  registry.Register("outer", [&registry](const RendezvousParameters& parameters) {
    registry.Register("late", &CreateFirst);
    return std::make_unique<FakeHandler>(parameters.backend,
                                         registry.CreateHandler(For("inner"))->GetRunId());
  });
  EXPECT_EQ(registry.CreateHandler(For("outer"))->GetRunId(), "by the first");
  EXPECT_THAT(registry.Names(), ElementsAre("inner", "late", "outer"));
}

TEST(RendezvousRegistryTest, WhatACreatorThrowsReachesTheCaller) {
  RendezvousHandlerRegistry registry;
  registry.Register("fake", [](const RendezvousParameters&) -> RendezvousHandlerPtr {
    throw RendezvousConnectionError("nobody there");
  });
  EXPECT_EQ(ErrorOf<RendezvousConnectionError>([&] { registry.CreateHandler(For("fake")); }),
            "nobody there");
}

TEST(DefaultRendezvousRegistryTest, Rdzv033KnowsTheBuiltInNames) {
  EXPECT_THAT(RendezvousBackends(), ::testing::IsSupersetOf({"c10d", "etcd", "etcd-v2", "static"}));
}

TEST(DefaultRendezvousRegistryTest, Rdzv033KeepsTheBuiltInNames) {
  for (const char* name : {"c10d", "static", "etcd", "etcd-v2"}) {
    EXPECT_THROW(DefaultRendezvousRegistry().Register(name, &CreateFirst), std::invalid_argument);
  }
}

TEST(DefaultRendezvousRegistryTest, EtcdReportsThatThisBuildHasNoneAndWhatItHas) {
  for (const char* name : {"etcd", "etcd-v2"}) {
    EXPECT_THAT(ErrorOf<RendezvousError>([&] { GetRendezvousHandler(For(name)); }),
                AllOf(HasSubstr(std::string("'") + name + "'"), HasSubstr("no etcd support"),
                      HasSubstr("c10d, static")));
  }
}

TEST(DefaultRendezvousRegistryTest, ASuppliedBackendReplacesNoOther) {
  EXPECT_THROW(DefaultRendezvousRegistry().Supply("c10d", &CreateFirst), std::invalid_argument);
  EXPECT_THROW(DefaultRendezvousRegistry().Supply("", &CreateFirst), std::invalid_argument);
  DefaultRendezvousRegistry().Supply("supplied", &CreateFirst);
  DefaultRendezvousRegistry().Supply("supplied", &CreateFirst);
  EXPECT_EQ(GetRendezvousHandler(For("supplied"))->GetRunId(), "by the first");
}

TEST(DefaultRendezvousRegistryTest, AnUnknownNameListsTheBuiltInNames) {
  EXPECT_THAT(ErrorOf<std::invalid_argument>([] { GetRendezvousHandler(For("zookeeper")); }),
              AllOf(HasSubstr("'zookeeper'"), HasSubstr("c10d"), HasSubstr("static")));
}

TEST(DefaultRendezvousRegistryTest, MakesHandlersOfItsUsers) {
  RegisterRendezvousBackend("registry-test", &CreateFirst);
  EXPECT_EQ(GetRendezvousHandler(For("registry-test"))->GetRunId(), "by the first");
}

}  // namespace muster::test
