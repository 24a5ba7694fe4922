// The backend "etcd" on a cluster with client certificates and users.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "etcd/certificates.h"
#include "etcd/cluster.h"
#include "etcd/test_client.h"
#include "muster/etcd_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "support/errors.h"

namespace muster::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

EtcdRendezvousOptions OptionsFor(const EtcdCluster& cluster) {
  EtcdRendezvousOptions options{
      .etcd = {}, .run_id = "run", .local_addr = "127.0.0.1", .join_timeout = kPatience};
  const Endpoint endpoint = cluster.endpoint(0);
  options.etcd.endpoints = {{endpoint.host, endpoint.port}};
  return options;
}

std::string RefusalOf(const EtcdRendezvousOptions& options) {
  const RendezvousHandlerPtr node = CreateEtcdHandler(options);
  return ErrorOf<RendezvousConnectionError>([&] { node->NextRendezvous(); });
}

using EtcdRendezvousTlsTest = EtcdTest;

TEST_F(EtcdRendezvousTlsTest, OnlyWithItsCertificateANodeGetsIn) {
  Certificates ours("us");
  ours.Issue("server");
  ours.Issue("client");
  const EtcdCluster cluster({.cert_file = ours.cert("server"),
                             .key_file = ours.key("server"),
                             .client_ca_file = ours.ca(),
                             .etcdctl = {"--cert", ours.cert("client"), "--key", ours.key("client"),
                                         "--insecure-skip-tls-verify"}});
  EtcdRendezvousOptions options = OptionsFor(cluster);
  options.etcd.tls = true;
  options.etcd.cacert = ours.ca();
  options.etcd.cert = ours.cert("client");
  options.etcd.key = ours.key("client");
  const RendezvousInfo info = CreateEtcdHandler(options)->NextRendezvous();
  EXPECT_EQ(info.world_size, 1);
  info.store->Set("k", "v");
  EXPECT_EQ(info.store->Get("k"), "v");

  Certificates others("somebody else");
  others.Issue("client");
  EtcdRendezvousOptions strange = options;
  strange.etcd.cert = others.cert("client");
  strange.etcd.key = others.key("client");
  EXPECT_THAT(RefusalOf(strange),
              AllOf(HasSubstr(cluster.endpoint(0).ToString()), HasSubstr("our certificate")));
  EtcdRendezvousOptions distrusting = options;
  distrusting.etcd.cacert = others.ca();
  EXPECT_THAT(RefusalOf(distrusting),
              AllOf(HasSubstr(cluster.endpoint(0).ToString()), HasSubstr("is not accepted")));
}

using EtcdRendezvousUserTest = EtcdTest;

TEST_F(EtcdRendezvousUserTest, OnlyAUserWithItsRightsGetsIn) {
  const EtcdCluster cluster;
  cluster.Control({"user", "add", "root:root"});
  cluster.Control({"user", "add", "node:secret"});
  cluster.Control({"role", "add", "nodes"});
  cluster.Control({"role", "grant-permission", "nodes", "--prefix=true", "readwrite", "/jobs/"});
  cluster.Control({"user", "grant-role", "node", "nodes"});
  cluster.Control({"auth", "enable"});
  EtcdRendezvousOptions options = OptionsFor(cluster);
  options.etcd.prefix = "/jobs";
  options.etcd.user = "node";
  options.etcd.password = "secret";
  EXPECT_EQ(CreateEtcdHandler(options)->NextRendezvous().world_size, 1);

  EtcdRendezvousOptions elsewhere = options;
  elsewhere.etcd.prefix = "/other";
  EXPECT_THAT(RefusalOf(elsewhere), HasSubstr("permission denied"));
  EtcdRendezvousOptions guessing = options;
  guessing.etcd.password = "guess";
  EXPECT_THAT(RefusalOf(guessing), AllOf(HasSubstr(cluster.endpoint(0).ToString()),
                                         HasSubstr("invalid user ID or password")));
}

}  // namespace
}  // namespace muster::test
