// Access to a real etcd: certificates, users and passwords.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "etcd/certificates.h"
#include "etcd/test_client.h"
#include "support/raw_socket.h"

namespace muster::test {
namespace {

/// A server with TLS that requires client certificates, and an access with one.
class EtcdTlsTest : public EtcdTest {
 protected:
  void SetUp() override {
    EtcdTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ours_.Issue("server");
    ours_.Issue("client");
    access_ = {.endpoints = {},
               .tls = true,
               .cacert = ours_.ca(),
               .cert = ours_.cert("client"),
               .key = ours_.key("client")};
  }

  ClusterOptions Options(const std::string& server = "server") const {
    return {.cert_file = ours_.cert(server),
            .key_file = ours_.key(server),
            .client_ca_file = ours_.ca(),
            .etcdctl = {"--cert", ours_.cert("client"), "--key", ours_.key("client"),
                        "--insecure-skip-tls-verify"}};
  }

  /// Every call with this access fails at once and permanently. Returns the message.
  static std::string Refused(const EtcdCluster& cluster, EtcdOptions access) {
    access.endpoints = cluster.endpoints();
    TestClient test_client(access);
    const Stopwatch watch;
    const auto put = test_client.Put("k", "v");
    EXPECT_FALSE(put);
    if (put) return "";
    EXPECT_EQ(put.error().code, Code::kInvalid) << put.error().message;
    EXPECT_LT(watch.Elapsed(), seconds(15));
    EXPECT_NE(put.error().message.find(cluster.endpoint(0).ToString()), std::string::npos)
        << put.error().message;
    const auto kept = test_client.KeepAlive(1);
    EXPECT_EQ(kept.error().code, Code::kInvalid) << kept.error().message;
    return put.error().message;
  }

  Certificates ours_;
  EtcdOptions access_;
};

TEST_F(EtcdTlsTest, WithItsCertificateAClientGetsIn) {
  const EtcdCluster cluster(Options());
  access_.endpoints = cluster.endpoints();
  TestClient test_client(access_);
  const auto put = test_client.Put("k", "v");
  ASSERT_TRUE(put) << put.error().message;
  const TestWatcher watcher(test_client, {.begin = "k"}, put->revision);
  EXPECT_TRUE(watcher.HasReceived({"k=v"}));
}

TEST_F(EtcdTlsTest, AServerOfAnotherAuthorityIsNotTrusted) {
  const EtcdCluster cluster(Options());
  const Certificates others("somebody else");
  access_.cacert = others.ca();
  EXPECT_THAT(Refused(cluster, access_), ::testing::HasSubstr("its certificate is not accepted"));
}

TEST_F(EtcdTlsTest, AnExpiredServerIsNotTrusted) {
  ours_.Issue("old", -1);
  const EtcdCluster cluster(Options("old"));
  EXPECT_THAT(Refused(cluster, access_), ::testing::HasSubstr("certificate"));
}

TEST_F(EtcdTlsTest, AServerOfAnotherNameIsNotTrusted) {
  ours_.Issue("elsewhere", 2, "elsewhere.example");
  const EtcdCluster cluster(Options("elsewhere"));
  EXPECT_THAT(Refused(cluster, access_), ::testing::HasSubstr("certificate"));
}

TEST_F(EtcdTlsTest, AClientOfAnotherAuthorityIsRefused) {
  const EtcdCluster cluster(Options());
  Certificates others("somebody else");
  others.Issue("client");
  access_.cert = others.cert("client");
  access_.key = others.key("client");
  EXPECT_THAT(Refused(cluster, access_), ::testing::HasSubstr("our certificate"));
}

TEST_F(EtcdTlsTest, AnExpiredClientIsRefused) {
  const EtcdCluster cluster(Options());
  ours_.Issue("late", -1);
  access_.cert = ours_.cert("late");
  access_.key = ours_.key("late");
  EXPECT_THAT(Refused(cluster, access_), ::testing::HasSubstr("our certificate"));
}

TEST_F(EtcdTlsTest, AClientWithoutACertificateIsRefused) {
  const EtcdCluster cluster(Options());
  access_.cert.clear();
  access_.key.clear();
  EXPECT_THAT(Refused(cluster, access_), ::testing::HasSubstr("none was given"));
}

// In the next two tests a proxy may be there whose server is not up yet: not permanent, with a
// hint.
TEST_F(EtcdTlsTest, AServerWithoutTlsIsUnavailableWithAHint) {
  const EtcdCluster cluster;
  access_.endpoints = cluster.endpoints();
  TestClient test_client(access_);
  const Error error = test_client.Put("k", "v", 0, 2s).error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_THAT(error.message, ::testing::HasSubstr("does it speak TLS?"));
}

TEST_F(EtcdTlsTest, AServerThatWantsTlsIsUnavailableWithAHint) {
  const EtcdCluster cluster(Options());
  TestClient test_client(cluster.access());
  const Error error = test_client.Put("k", "v", 0, 2s).error();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_THAT(error.message, ::testing::HasSubstr("does it want TLS?"));
}

// Needs no etcd: a server that closes a connection, and then does not answer.
TEST(EtcdHintTest, OutlastsAnAttemptThatHadNoTimeLeft) {
  RawListener listener;
  TestClient test_client({.endpoints = {{"127.0.0.1", listener.port()}}});
  std::thread server([&] { listener.Accept().Close(); });
  const auto put = test_client.Put("k", "v", 0, 1s);  // shorter than the time to connect
  server.join();
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kUnavailable);
  EXPECT_THAT(put.error().message, ::testing::HasSubstr("does it want TLS?"));
}

TEST_F(EtcdTlsTest, FilesThatCannotBeReadAreNamedAtOnce) {
  auto thread = *UvThread::Open();
  access_.endpoints = {{"127.0.0.1", 1}};
  access_.cacert = "/no/such/file.pem";
  const auto no_file = ConnectorTo(access_)(thread->loop());
  ASSERT_FALSE(no_file);
  EXPECT_EQ(no_file.error().code, Code::kInvalid);
  EXPECT_THAT(no_file.error().message, ::testing::HasSubstr("/no/such/file.pem"));
  access_.cacert = ours_.ca();
  access_.key.clear();
  EXPECT_THROW(ConnectorTo(access_), std::invalid_argument);
  EXPECT_THROW(ConnectorTo({.endpoints = {}}), std::invalid_argument);
}

/// A server with users: root, and "reader" with the password "secret", which has all permissions
/// below "free/".
class EtcdUserTest : public EtcdTest {
 protected:
  void SetUp() override {
    EtcdTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    cluster_ = std::make_unique<EtcdCluster>();
    cluster_->Control({"user", "add", "root:root"});
    cluster_->Control({"user", "add", "reader:secret"});
    cluster_->Control({"role", "add", "free"});
    cluster_->Control({"role", "grant-permission", "free", "--prefix=true", "readwrite", "free/"});
    cluster_->Control({"user", "grant-role", "reader", "free"});
    cluster_->Control({"auth", "enable"});
    access_ = cluster_->access();
    access_.user = "reader";
    access_.password = "secret";
  }

  std::unique_ptr<EtcdCluster> cluster_;
  EtcdOptions access_;
};

TEST_F(EtcdUserTest, AUserGetsInWhereItMay) {
  TestClient test_client(access_);
  const auto put = test_client.Put("free/k", "v");
  ASSERT_TRUE(put) << put.error().message;
  const TestWatcher watcher(test_client, {.begin = "free/k"}, put->revision);
  EXPECT_TRUE(watcher.HasReceived({"free/k=v"}));
  const auto lease = test_client.Grant(10s);
  ASSERT_TRUE(lease) << lease.error().message;
  EXPECT_TRUE(test_client.KeepAlive(lease->id));
  EXPECT_TRUE(test_client.Revoke(lease->id));
}

TEST_F(EtcdUserTest, AndNotElsewhere) {
  TestClient test_client(access_);
  const auto put = test_client.Put("other/k", "v");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kInvalid);
  EXPECT_THAT(put.error().message, ::testing::HasSubstr("permission denied"));
  const TestWatcher watcher(test_client, {.begin = "other/k"}, 1);
  ASSERT_TRUE(EventuallyTrue([&] { return watcher.end().has_value(); }));
  EXPECT_EQ(watcher.end()->code, Code::kInvalid);
  EXPECT_THAT(watcher.end()->message, ::testing::HasSubstr("other/k"));
}

TEST_F(EtcdUserTest, AWrongPasswordIsRefused) {
  access_.password = "guess";
  TestClient test_client(access_);
  const TestWatcher watcher(test_client, {.begin = "free/k"}, 1);
  const auto put = test_client.Put("free/k", "v");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kInvalid);
  EXPECT_THAT(put.error().message, ::testing::HasSubstr("invalid user ID or password"));
  EXPECT_EQ(test_client.KeepAlive(1).error().code, Code::kInvalid);
  ASSERT_TRUE(EventuallyTrue([&] { return watcher.end().has_value(); }));
  EXPECT_EQ(watcher.end()->code, Code::kInvalid);
}

TEST_F(EtcdUserTest, AnAccessWithoutAUserIsRefused) {
  access_.user.clear();
  access_.password.clear();
  TestClient test_client(access_);
  const auto put = test_client.Put("free/k", "v");
  ASSERT_FALSE(put);
  EXPECT_EQ(put.error().code, Code::kInvalid);
  EXPECT_THAT(put.error().message, ::testing::HasSubstr("no user was given"));
}

TEST_F(EtcdUserTest, ATokenThatTheServerForgotIsRenewed) {
  TestClient test_client(access_);
  const auto put = test_client.Put("free/k", "1");
  ASSERT_TRUE(put) << put.error().message;
  const TestWatcher watcher(test_client, {.begin = "free/k"}, put->revision);
  ASSERT_TRUE(watcher.HasReceived({"free/k=1"}));
  cluster_->Kill(0);  // its tokens are in memory
  cluster_->Start(0);
  std::string value;
  ASSERT_TRUE(EventuallyTrue([&] {
    value = test_client.Value("free/k");
    return value == "1";
  })) << value
      << "\n"
      << cluster_->Logs();
  ASSERT_TRUE(test_client.Put("free/k", "2"));
  EXPECT_TRUE(watcher.HasReceived({"free/k=1", "free/k=2"}));
  EXPECT_FALSE(watcher.end());
}

// A token holds the number of the request that created it. A server that is restored from older
// data waits for that number before it checks the token, for the whole timeout of the call.
TEST_F(EtcdUserTest, ATokenThatIsAheadOfARestoredServerIsRenewed) {
  cluster_->Kill(0);
  cluster_->BackUp(0);
  cluster_->Start(0);
  TestClient before(access_);
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(before.Put("free/k", "1"));
  TestClient test_client(access_);
  TestClient idle(access_);
  const auto put = test_client.Put("free/k", "2");
  ASSERT_TRUE(put && idle.Put("free/idle", "1"));
  const TestWatcher watcher(test_client, {.begin = "free/k"}, put->revision);
  ASSERT_TRUE(watcher.HasReceived({"free/k=2"}));
  cluster_->Kill(0);
  cluster_->Restore(0);
  cluster_->Start(0);
  for (TestClient* each : {&test_client, &idle}) {
    const auto again = each->Put("free/k", "3");
    EXPECT_TRUE(again) << again.error().message << "\n" << cluster_->Logs();
  }
  // The watch does not wait for a revision of the lost history, either.
  ASSERT_TRUE(EventuallyTrue([&] { return watcher.end().has_value(); }));
  EXPECT_EQ(watcher.end()->code, Code::kNotFound);
}

using EtcdAccessTest = EtcdTest;

TEST_F(EtcdAccessTest, AUserIsWelcomeWhereThereAreNone) {
  const EtcdCluster cluster;
  EtcdOptions access = cluster.access();
  access.user = "anybody";
  access.password = "x";
  TestClient test_client(access);
  const auto put = test_client.Put("k", "v");
  EXPECT_TRUE(put) << put.error().message;
}

}  // namespace
}  // namespace muster::test
