// The client on a stream whose content the test has prepared.
#include "rendezvous/session/status_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/wire/session_codec.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Instant kDeadline{1h};
const std::string kSessions(1, wire::kSessionsSpoken);

/// What the server sends, piece by piece, and what it has received.
struct Server {
  std::deque<std::string> says{};
  std::string heard{};
};

class ScriptedStream final : public BlockingStream {
 public:
  explicit ScriptedStream(Server& server) : server_(server) {}
  Status Send(std::string_view bytes, Instant) override {
    server_.heard += bytes;
    return Ok();
  }
  Result<size_t> Receive(std::span<char> into, Instant) override {
    if (server_.says.empty()) return Error{Code::kClosed, "the server hung up"};
    const std::string piece = std::move(server_.says.front());
    server_.says.pop_front();
    std::copy(piece.begin(), piece.end(), into.begin());
    return piece.size();
  }

 private:
  Server& server_;
};

class ScriptedDialer final : public Dialer {
 public:
  explicit ScriptedDialer(Server& server) : server_(server) {}
  Result<std::unique_ptr<BlockingStream>> Dial(const Endpoint&, Instant) override {
    return std::unique_ptr<BlockingStream>(std::make_unique<ScriptedStream>(server_));
  }

 private:
  Server& server_;
};

/// What the client returns for the messages of this server.
Result<std::vector<RunReport>> Asked(Server& server, const std::string& run_id) {
  ScriptedDialer dialer(server);
  MUSTER_TRY(StatusClient client, StatusClient::Connect(dialer, {"server", 1}, kDeadline));
  return client.Request(run_id, kDeadline);
}

std::string Status(const std::vector<RunReport>& runs) {
  std::string out;
  wire::AppendStatus(out, runs, false);
  return out;
}

TEST(StatusClientTest, AsksForOneRunWithAllItsNodes) {
  Server server{.says = {kSessions, Status({})}};
  ASSERT_TRUE(Asked(server, "run"));
  std::string expected = wire::SessionGreeting(true);
  wire::AppendSessionFrame(
      expected,
      {.kind = wire::SessionRequest::Kind::kStatus, .run_id = "run", .names_max = UINT32_MAX});
  EXPECT_EQ(server.heard, expected);
}

TEST(StatusClientTest, PutsRunsAndTheirNodesTogetherHoweverTheyCome) {
  const std::vector<RunReport> runs = {
      {.id = "one", .participants = 2, .members = {{.node = {"a", 1, 0}}, {.node = {"b", 2, 0}}}},
      {.id = "two", .round = 7, .members = {{.node = {"c", 3, 0}}}}};
  const std::string answer = kSessions + Status(runs);
  Server at_once{.says = {answer}};
  EXPECT_EQ(Asked(at_once, "").value(), runs);
  Server byte_by_byte;
  for (const char byte : answer) byte_by_byte.says.emplace_back(1, byte);
  EXPECT_EQ(Asked(byte_by_byte, "").value(), runs);
}

TEST(StatusClientTest, PassesOverWhatIsNoPartOfTheAnswer) {
  std::string answer = kSessions;
  wire::AppendSessionFrame(answer, Push{.kind = Push::Kind::kNodesWaiting, .count = 3});
  // A node before the first run belongs to no run.
  const std::string with_node = Status({{.id = "run", .members = {{.node = {"a", 1, 0}}}}});
  answer += with_node.substr(*wire::SessionFrameSize(with_node));
  Server server{.says = {answer}};
  EXPECT_THAT(Asked(server, "").value(), IsEmpty());
}

TEST(StatusClientTest, APlainServerHasNoCoordinatorAndThatIsSaid) {
  Server plain{.says = {"\x01"}};
  const auto asked = Asked(plain, "run");
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, Code::kProtocol);
  EXPECT_THAT(asked.error().message, HasSubstr("server:1 has no coordinator"));
}

TEST(StatusClientTest, AServerThatHangsUpOrTalksNonsenseIsAnError) {
  Server gone;
  EXPECT_EQ(Asked(gone, "").error().code, Code::kClosed);
  Server gone_later{.says = {kSessions, Status({{.id = "run"}}).substr(0, 20)}};
  EXPECT_EQ(Asked(gone_later, "").error().code, Code::kClosed);
  Server no_frame{.says = {kSessions, "HTTP/1.1 400"}};
  EXPECT_EQ(Asked(no_frame, "").error().code, Code::kProtocol);
  Server no_such_part{.says = {kSessions, {"\xa0\x01\0\0\0\x63", 6}}};
  EXPECT_THAT(Asked(no_such_part, "").error().message, HasSubstr("kind 99"));
}

}  // namespace
}  // namespace muster
