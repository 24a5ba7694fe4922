// The c10d backend: its cell in each kind of store, and where its store comes from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <any>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/encoding.h"
#include "muster/c10d_rendezvous.h"
#include "muster/file_store.h"
#include "muster/hash_store.h"
#include "muster/store_server.h"
#include "muster/tcp_store.h"
#include "rendezvous/backend_contract.h"
#include "rendezvous/handler_kit.h"
#include "rendezvous/reconnect.h"
#include "support/background.h"
#include "support/errors.h"
#include "support/proxy.h"
#include "support/raw_socket.h"
#include "support/state_pickles.h"
#include "support/temp_dir.h"

namespace muster::test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace {

constexpr const char* kKey = "torch.rendezvous.run";
constexpr const char* kSentinel = "Y2FuaW1hZGFt";

/// A kind of store, with everything that it needs.
class StoreKind {
 public:
  virtual ~StoreKind() = default;
  virtual std::shared_ptr<Store> Open() = 0;
};

class HashKind final : public StoreKind {
 public:
  std::shared_ptr<Store> Open() override { return store_; }

 private:
  const std::shared_ptr<Store> store_ = HashStore::Create();
};

class FileKind final : public StoreKind {
 public:
  std::shared_ptr<Store> Open() override {
    return std::make_shared<FileStore>(folder_.File("store"));
  }

 private:
  const TempDir folder_;
};

class TcpKind final : public StoreKind {
 public:
  std::shared_ptr<Store> Open() override {
    return std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = server_.port()});
  }

 private:
  const StoreServer server_{{.host = "127.0.0.1", .threads = 1}};
};

template <typename Kind>
std::shared_ptr<StoreKind> Make() {
  return std::make_shared<Kind>();
}

class C10dCellTest : public ::testing::TestWithParam<std::shared_ptr<StoreKind> (*)()> {
 protected:
  std::unique_ptr<RendezvousBackend> Backend() const {
    return CreateC10dBackend(kind_->Open(), "run");
  }

  const std::shared_ptr<StoreKind> kind_ = GetParam()();
  const std::shared_ptr<Store> store_ = kind_->Open();
};

std::string NameOfKind(const ::testing::TestParamInfo<std::shared_ptr<StoreKind> (*)()>& info) {
  return std::vector<std::string>{"Hash", "File", "Tcp"}.at(info.index);
}

std::string Text(const std::any& token) { return std::any_cast<std::string>(token); }

RendezvousParameters Parameters(std::string endpoint, RendezvousConfig config = {}) {
  return {"c10d", std::move(endpoint), "run", 1, 1, "127.0.0.1", std::move(config)};
}

std::string Loopback(uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

}  // namespace

// --- The cell ---

TEST_P(C10dCellTest, Rdzv138TwoBackendsLeaveOneSentinel) {
  auto first = Backend();
  auto second = Backend();
  EXPECT_EQ(store_->Get(kKey), kSentinel);
  EXPECT_FALSE(first->GetState());
  EXPECT_FALSE(second->GetState());
  EXPECT_EQ(first->Name(), "c10d");
}

TEST_P(C10dCellTest, Rdzv140TheSameBytesAgainAreAWriteLikeAnyOther) {
  auto backend = Backend();
  const std::any token = backend->SetState("same")->token;
  const auto again = backend->SetState("same", token);
  ASSERT_TRUE(again) << "it is there";
  EXPECT_TRUE(again->was_set);
  EXPECT_EQ(again->bytes, "same");
  EXPECT_EQ(Text(again->token), Text(token));
}

TEST_P(C10dCellTest, Rdzv140AWriteOfTheStoredBytesSucceeds) {
  auto backend = Backend();
  const std::any old = backend->SetState("first")->token;
  backend->SetState("second", old);
  EXPECT_TRUE(backend->SetState("second", old)->was_set);
}

TEST_P(C10dCellTest, Rdzv141AForeignTokenLeavesTheSentinel) {
  auto backend = Backend();
  EXPECT_FALSE(backend->SetState("state", std::any(7)));
  EXPECT_EQ(store_->Get(kKey), kSentinel);
}

TEST_P(C10dCellTest, Rdzv142TheValueIsPaddedBase64UnderTheRunsKey) {
  auto backend = Backend();
  const std::string bytes("\x80\x04\0\xff?", 5);
  const std::any token = backend->SetState(bytes)->token;
  EXPECT_EQ(store_->Get(kKey), Base64Encode(bytes));
  EXPECT_EQ(store_->Get(kKey), "gAQA/z8=");
  EXPECT_EQ(Text(token), "gAQA/z8=");
  EXPECT_EQ(backend->GetState()->bytes, bytes);
}

TEST_P(C10dCellTest, ALostCellIsCreatedAgainByTheNextWrite) {
  auto backend = Backend();
  const std::any token = backend->SetState("state")->token;
  store_->DeleteKey(kKey);
  EXPECT_FALSE(backend->SetState("next", token)) << "nothing is stored after all";
  EXPECT_EQ(store_->Get(kKey), kSentinel);
  EXPECT_TRUE(backend->SetState("next")->was_set);
  // Without a token, too.
  store_->DeleteKey(kKey);
  EXPECT_FALSE(backend->SetState("next"));
  EXPECT_TRUE(backend->SetState("next")->was_set);
  // Also with the bytes that were stored.
  const std::any same = backend->GetState()->token;
  store_->DeleteKey(kKey);
  EXPECT_FALSE(backend->SetState("next", same));
  EXPECT_EQ(store_->Get(kKey), kSentinel);
}

namespace {

/// The cell in one of these stores, for the contract of all backends.
class C10dPlace final : public BackendPlace {
 public:
  explicit C10dPlace(std::shared_ptr<StoreKind> kind) : kind_(std::move(kind)) {}

  std::unique_ptr<RendezvousBackend> Open() override {
    return CreateC10dBackend(kind_->Open(), "run");
  }
  void Put(const std::string& value) override {
    const auto store = kind_->Open();
    store->Set(kKey, value);
    ASSERT_TRUE(EventuallyTrue([&] { return store->Get(kKey) == value; }));
  }

 private:
  const std::shared_ptr<StoreKind> kind_;
};

BackendKind C10dOn(std::string name, std::shared_ptr<StoreKind> (*make)()) {
  return {.name = "C10d" + std::move(name),
          .make = [make] { return std::make_unique<C10dPlace>(make()); },
          .no_tokens = {std::any(), std::any(std::string())},
          .text = &Text};
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(C10d, BackendContract,
                         ::testing::Values(C10dOn("Hash", &Make<HashKind>),
                                           C10dOn("File", &Make<FileKind>),
                                           C10dOn("Tcp", &Make<TcpKind>)),
                         BackendName);

INSTANTIATE_TEST_SUITE_P(, C10dCellTest,
                         ::testing::Values(&Make<HashKind>, &Make<FileKind>, &Make<TcpKind>),
                         NameOfKind);

TEST(C10dBackendTest, Rdzv144AnEmptyRunIdIsRejected) {
  EXPECT_THAT(ErrorOf<std::invalid_argument>([] { CreateC10dBackend(HashStore::Create(), ""); }),
              HasSubstr("run id"));
}

TEST(C10dBackendTest, NoStoreIsRejected) {
  EXPECT_THROW(CreateC10dBackend(nullptr, "run"), std::invalid_argument);
}

TEST(C10dBackendTest, Rdzv145ATimeoutOfTheStoreIsAConnectionError) {
  const auto store = HashStore::Create();
  const auto made = CreateC10dBackend(store, "run");
  RendezvousBackend& backend = *made;
  store->SetTimeout(milliseconds(5));
  store->DeleteKey(kKey);
  const std::string cause = ErrorOf<StoreTimeoutError>([&] { store->Get(kKey); });
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] { backend.GetState(); }), HasSubstr(cause));
  try {
    backend.GetState();
  } catch (const RendezvousConnectionError& error) {
    EXPECT_THROW(std::rethrow_if_nested(error), StoreTimeoutError) << "the cause is attached";
  }
}

TEST(C10dBackendTest, Rdzv145ABrokenConnectionIsAConnectionError) {
  auto server =
      std::make_unique<StoreServer>(StoreServerOptions{.host = "127.0.0.1", .threads = 1});
  const auto store =
      std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = server->port()});
  const auto made = CreateC10dBackend(store, "run");
  RendezvousBackend& backend = *made;
  const std::any token = backend.SetState("state")->token;
  server.reset();
  EXPECT_THROW(backend.GetState(), RendezvousConnectionError);
  EXPECT_THROW(backend.SetState("next", token), RendezvousConnectionError);
  EXPECT_THROW(backend.SetState("next", std::any(7)), RendezvousConnectionError);
  EXPECT_THROW(CreateC10dBackend(store, "other"), RendezvousConnectionError);
}

TEST(C10dBackendTest, ABrokenConnectionCostsOneCall) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  Proxy proxy(server.port());
  const auto store = std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = proxy.port()});
  const auto made = CreateC10dBackend(store, "run");
  RendezvousBackend& backend = *made;
  const std::any token = backend.SetState("state")->token;
  proxy.Cut();
  EXPECT_THROW(backend.GetState(), RendezvousConnectionError);
  EXPECT_EQ(backend.GetState()->bytes, "state");
  proxy.Block(true);
  proxy.Cut();
  EXPECT_THROW(backend.SetState("next", token), RendezvousConnectionError);
  EXPECT_THROW(backend.SetState("next", token), RendezvousConnectionError);
  proxy.Block(false);
  EXPECT_TRUE(backend.SetState("next", token)->was_set);
  EXPECT_EQ(Reconnected(*store)->Timeout(), store->Timeout()) << "tries in vain cost no patience";
}

TEST(C10dBackendTest, AHandlerWhoseConnectionsBrokeJoinsTheNextRound) {
  const StoreServer server({.host = "127.0.0.1", .threads = 1});
  Proxy proxy(server.port());
  const auto store = std::make_shared<TcpStore>("127.0.0.1", TcpStoreOptions{.port = proxy.port()});
  const auto made_node = CreateDynamicHandler(
      QuickSettings(1, 1), store, CreateC10dBackend(store->Clone(), "run"), "127.0.0.1");
  DynamicRendezvousHandler& node = *made_node;
  node.NextRendezvous();
  proxy.Cut();
  const RendezvousInfo info = [&] {
    try {
      return node.NextRendezvous();
    } catch (const RendezvousConnectionError&) {
      return node.NextRendezvous();  // the break cost the first attempt, unless a heartbeat came
                                     // first
    }
  }();
  EXPECT_EQ(info.world_size, 1);
  info.store->Set("key", "value");
  EXPECT_EQ(info.store->Get("key"), "value");
}

TEST(C10dBackendTest, AHandlerOnALostCellFailsInTimeAndOnANewBackendWorks) {
  const auto store = HashStore::Create();
  const auto join = [&] {
    return CreateDynamicHandler(QuickSettings(1, 1), store, CreateC10dBackend(store, "run"),
                                "127.0.0.1");
  };
  RendezvousSettings unhurried = QuickSettings(1, 1);
  unhurried.keep_alive_interval = kPatience;
  const auto made_node =
      CreateDynamicHandler(unhurried, store, CreateC10dBackend(store, "run"), "127.0.0.1");
  DynamicRendezvousHandler& node = *made_node;
  node.NextRendezvous();
  store->SetTimeout(milliseconds(20));
  Take(milliseconds(5));  // so that it reads before it writes
  store->DeleteKey(kKey);
  EXPECT_THROW(node.NextRendezvous(), RendezvousConnectionError);
  EXPECT_EQ(join()->NextRendezvous().world_size, 1);
}

TEST(C10dBackendTest, AStateOfAnOldPyTorchIsDistinguishedFromGarbage) {
  const auto store = HashStore::Create();
  const auto join = [&] {
    return CreateDynamicHandler(QuickSettings(1, 1), store, CreateC10dBackend(store, "run"),
                                "127.0.0.1");
  };
  store->Set(
      kKey,
      Base64Encode(pickle::StateWith({{"deadline", pickle::DateTime({pickle::kMorningBytes})}})));
  EXPECT_THAT(ErrorOf<RendezvousStateError>([&] { join()->NextRendezvous(); }),
              HasSubstr("without a zone"));
  store->Set(kKey, Base64Encode("\x80\x04garbage"));
  EXPECT_THROW(join()->NextRendezvous(), RendezvousStateError);
  store->Set(kKey, "####");  // decodes to nothing at all
  EXPECT_THROW(join()->NextRendezvous(), RendezvousStateError);
  store->Set(kKey, kSentinel);
  EXPECT_EQ(join()->NextRendezvous().round, 0);
}

// --- Where the store comes from ---

TEST(C10dStoreTest, Rdzv146TheTypeOfTheStoreIsTakenInAnyCase) {
  for (const char* type : {"tCp", " TCP ", "tcp"}) {
    const auto made = CreateC10dBackend(Parameters("localhost:0", {{"store_type", type}}));
    EXPECT_NE(dynamic_cast<const TcpStore*>(made.second.get()), nullptr) << type;
  }
  const TempDir folder;
  const auto made = CreateC10dBackend(Parameters(folder.File("f"), {{"store_type", "fIlE"}}));
  EXPECT_NE(dynamic_cast<const FileStore*>(made.second.get()), nullptr);
  EXPECT_EQ(made.first->Name(), "c10d");
  const auto plain = CreateC10dBackend(Parameters("localhost:0"));
  EXPECT_NE(dynamic_cast<const TcpStore*>(plain.second.get()), nullptr) << "the default";
  for (const char* type : {"dummy", "", "hash", "tcp file"}) {
    EXPECT_THAT(ErrorOf<std::invalid_argument>([&] {
                  CreateC10dBackend(Parameters("localhost:0", {{"store_type", type}}));
                }),
                AllOf(HasSubstr("tcp"), HasSubstr("file")));
  }
  EXPECT_THROW(CreateC10dBackend(Parameters("localhost:0", {{"store_type", int64_t{1}}})),
               std::invalid_argument);
}

TEST(C10dStoreTest, Rdzv147DefaultsOfPortAndTimeout) {
  EXPECT_EQ(CreateC10dBackend(Parameters("localhost:0")).second->Timeout(), seconds(60));
  EXPECT_EQ(CreateC10dBackend(Parameters("localhost:0", {{"read_timeout", "7"}})).second->Timeout(),
            seconds(7));
  const TempDir folder;
  EXPECT_EQ(CreateC10dBackend(
                Parameters(folder.File("f"), {{"store_type", "file"}, {"read_timeout", "7"}}))
                .second->Timeout(),
            seconds(300));
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([] {
                CreateC10dBackend(
                    Parameters("nobody.invalid", {{"is_host", false}, {"read_timeout", "1"}}));
              }),
              HasSubstr(":29400"));
}

TEST(C10dStoreTest, Rdzv148AReadTimeoutIsAboveZero) {
  for (const char* limit : {"0", "-10"}) {
    EXPECT_THAT(ErrorOf<std::invalid_argument>([&] {
                  CreateC10dBackend(Parameters("localhost:0", {{"read_timeout", limit}}));
                }),
                AllOf(HasSubstr("read_timeout"), HasSubstr("positive")));
  }
  EXPECT_THROW(CreateC10dBackend(Parameters("localhost:0", {{"read_timeout", "soon"}})),
               std::invalid_argument);
  EXPECT_THROW(
      CreateC10dBackend(Parameters("localhost:0", {{"read_timeout", "9223372036854775807"}})),
      std::invalid_argument);
}

TEST(C10dStoreTest, Rdzv149TheHostServesAndTheOthersConnect) {
  auto host = CreateC10dBackend(Parameters("127.0.0.1:0", {{"is_host", true}}));
  const auto& served = dynamic_cast<const TcpStore&>(*host.second);
  EXPECT_TRUE(served.is_server());
  EXPECT_NE(served.port(), 0);
  auto guest = CreateC10dBackend(Parameters(Loopback(served.port()), {{"is_host", "no"}}));
  EXPECT_FALSE(dynamic_cast<const TcpStore&>(*guest.second).is_server());
  host.first->SetState("state");
  EXPECT_EQ(guest.first->GetState()->bytes, "state");
  guest.second->Set("key", "value");
  EXPECT_EQ(host.second->Get("key"), "value");
}

TEST(C10dStoreTest, Rdzv149WithoutAHostThereIsAConnectionError) {
  const BoundSocket no_server = BindLoopback();
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] {
                CreateC10dBackend(Parameters(Loopback(no_server.port),
                                             {{"is_host", false}, {"read_timeout", "1"}}));
              }),
              AllOf(HasSubstr("reached"), HasSubstr(Loopback(no_server.port))));
  close(no_server.fd);
}

TEST(C10dStoreTest, Rdzv150AnEndpointHereIsServedOrElseReached) {
  const auto alone = CreateC10dBackend(Parameters("localhost:0"));
  EXPECT_TRUE(dynamic_cast<const TcpStore&>(*alone.second).is_server());
  const StoreServer other({.host = "127.0.0.1", .threads = 1});
  const auto guest = CreateC10dBackend(Parameters(Loopback(other.port())));
  EXPECT_FALSE(dynamic_cast<const TcpStore&>(*guest.second).is_server());
  TcpStore outside("127.0.0.1", {.port = other.port()});
  EXPECT_EQ(outside.Get(kKey), kSentinel);
}

TEST(C10dStoreTest, Rdzv150AnEmptyHostOptionMeansTheSameAsNone) {
  const StoreServer other({.host = "127.0.0.1", .threads = 1});
  EXPECT_NO_THROW(
      CreateC10dBackend(Parameters(Loopback(other.port()), {{"is_host", std::monostate()}})));
}

TEST(C10dStoreTest, Rdzv151ANodeThatMustHostDoesNotConnectInstead) {
  const StoreServer other({.host = "127.0.0.1", .threads = 1});
  EXPECT_THAT(ErrorOf<RendezvousConnectionError>([&] {
                CreateC10dBackend(
                    Parameters(Loopback(other.port()), {{"is_host", true}, {"read_timeout", "2"}}));
              }),
              HasSubstr("served"));
}

TEST(C10dStoreTest, Rdzv152AnUnknownNameIsAConnectionErrorForEitherRole) {
  for (const char* host : {"true", "false"}) {
    EXPECT_THROW(CreateC10dBackend(
                     Parameters("nobody.invalid:0", {{"is_host", host}, {"read_timeout", "1"}})),
                 RendezvousConnectionError)
        << host;
  }
}

TEST(C10dStoreTest, WhatIsNoEndpointIsRejected) {
  for (const char* endpoint : {"localhost:70000", "localhost:port", "local host:0", ":0"}) {
    EXPECT_THROW(CreateC10dBackend(Parameters(endpoint)), std::invalid_argument) << endpoint;
  }
}

TEST(C10dStoreTest, Rdzv153WithoutAPathThereIsATemporaryFileAndNoDescriptorIsLost) {
  const TempDir folder;
  const ScopedVariable temporary("TMPDIR", folder.File("").c_str());
  const auto make = [] { return CreateC10dBackend(Parameters("", {{"store_type", "file"}})); };
  make();  // things that are opened only once
  const size_t before = EntriesOf("/proc/self/fd").size();
  for (int i = 0; i < 10; ++i) {
    const auto made = make();
    const std::string path = dynamic_cast<const FileStore&>(*made.second).path();
    EXPECT_TRUE(path.starts_with(folder.File(""))) << path;
    EXPECT_TRUE(FileExists(path));
    made.first->SetState("state");
    EXPECT_EQ(made.second->Get(kKey), Base64Encode("state")) << "one file, two ways in";
  }
  // Fewer, if something earlier, such as the lookup of a name, has ended meanwhile.
  EXPECT_TRUE(EventuallyTrue([&] { return EntriesOf("/proc/self/fd").size() <= before; }));
}

TEST(C10dStoreTest, Rdzv154WithoutATemporaryFileItIsThePlainError) {
  const TempDir folder;
  const ScopedVariable temporary("TMPDIR", folder.File("is/not/there").c_str());
  try {
    CreateC10dBackend(Parameters("", {{"store_type", "file"}}));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const RendezvousError& error) {
    EXPECT_EQ(typeid(error), typeid(RendezvousError)) << error.what();
  }
}

TEST(C10dStoreTest, AFileThatCannotBeOpenedIsAConnectionError) {
  const TempDir folder;
  EXPECT_THROW(CreateC10dBackend(Parameters(folder.File("is/not/there"), {{"store_type", "file"}})),
               RendezvousConnectionError);
}

TEST(C10dStoreTest, TheBackendDoesNotWaitForABlockedCallOfTheStore) {
  auto made = CreateC10dBackend(Parameters("localhost:0"));
  Background<std::string> blocked([&] { return made.second->Get("late"); });
  EXPECT_TRUE(blocked.UntilBlocked());
  EXPECT_TRUE(made.first->SetState("state")->was_set);
  EXPECT_EQ(made.first->GetState()->bytes, "state");
  EXPECT_FALSE(blocked.IsDone());
  made.second->Clone()->Set("late", "now");
  EXPECT_EQ(blocked.Result(), "now");
}

TEST(C10dStoreTest, AHandlerIsMadeFromTheParameters) {
  const auto node = CreateC10dHandler(Parameters("localhost:0", {{"last_call_timeout", "1"}}));
  EXPECT_EQ(node->GetBackend(), "c10d");
  EXPECT_EQ(node->GetRunId(), "run");
  EXPECT_EQ(node->NextRendezvous().world_size, 1);
  EXPECT_TRUE(node->Shutdown());
}

}  // namespace muster::test
