// A node never treats a muster server as a plain one, whatever session versions it speaks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "muster/coordinated_rendezvous.h"
#include "muster/rendezvous_error.h"
#include "rendezvous/wire/session_codec.h"
#include "support/background.h"
#include "support/raw_client.h"
#include "support/raw_socket.h"

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The server's side of one connection.
void Answer(RawSocket& peer, const std::string& answer) try {
  EXPECT_EQ(peer.Receive(wire::SessionGreeting(true).size()), wire::SessionGreeting(true));
  peer.Send(std::string(1, wire::kSessionsSpoken));
  peer.Receive(5);
  peer.Send(answer);
} catch (const std::runtime_error&) {
  // The node has disconnected.
}

/// The error of NextRendezvous() with a server that speaks only later versions. `answer` is its
/// answer to an Open. A node that repeats its attempts does so for at most `join_timeout`.
std::string Meet(const std::string& answer, milliseconds join_timeout = milliseconds(1'500)) {
  RawListener listener;
  std::vector<std::string> log;
  Background<std::string> joining([&] {
    const RendezvousHandlerPtr handler = CreateCoordinatedHandler(CoordinatedRendezvousOptions{
        .host = "127.0.0.1",
        .port = listener.port(),
        .is_host = false,
        .run_id = "run",
        .min_nodes = 1,
        .max_nodes = 1,
        .join_timeout = join_timeout,
        .log = [&](std::string_view line) { log.emplace_back(line); }});
    try {
      handler->NextRendezvous();
      return std::string("joined");
    } catch (const RendezvousError& error) {
      EXPECT_EQ(handler->ActiveBackend(), "muster");
      return std::string(error.what());
    }
  });
  // A node that is refused before it has sent its join connects again.
  std::vector<RawSocket> peers;
  while (!joining.IsDone()) {
    if (!listener.HasWaiting(milliseconds(10))) continue;
    Answer(peers.emplace_back(listener.Accept()), answer);
  }
  std::string said = joining.Result();
  EXPECT_THAT(log, ::testing::IsEmpty()) << "it did not fall back to c10d";
  return said;
}

std::string Refusal(const std::string& why) {
  std::string frame;
  wire::AppendSessionFrame(
      frame, Push{.kind = Push::Kind::kRefused, .refusal = Push::Refusal::kVersion, .why = why});
  return frame;
}

TEST(NewerServerTest, ItsRefusalIsAClearError) {
  const std::string refusal = Refusal("the node speaks versions 2 to 2, and this server 7 to 9");
  EXPECT_THAT(Meet(refusal, kPatience),
              AllOf(HasSubstr("may not join"), HasSubstr("this server 7 to 9")));
}

TEST(NewerServerTest, ItsTextsContainNoControlSequences) {
  EXPECT_THAT(Meet(Refusal("\x1b]52;c;cm0=\x07\x1b[2J\xc2\x9b"
                           "2J"),
                   kPatience),
              AllOf(HasSubstr("\\x1b]52;c;cm0=\\x07\\x1b[2J\\xc2\\x9b2J"), Not(HasSubstr("\x1b"))));
}

TEST(NewerServerTest, AnAnswerThatCannotBeReadIsAClearErrorToo) {
  std::string strange(64, '\x7f');
  strange[0] = static_cast<char>(wire::kSessionOpcode);
  EXPECT_THAT(Meet(strange), HasSubstr("out of reach"));
}

TEST(NewerServerTest, AVersionThatWasNotOfferedIsNotSpoken) {
  std::string frame;
  wire::AppendSessionFrame(frame,
                           Push{.kind = Push::Kind::kOpened, .version = kSessionVersion + 1});
  EXPECT_THAT(Meet(frame), HasSubstr("which was not offered"));
}

}  // namespace
}  // namespace muster::test
