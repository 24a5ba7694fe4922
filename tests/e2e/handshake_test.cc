// The first bytes of a connection: which are accepted, and which are refused.
#include "rendezvous/wire/session_codec.h"
#include "support/raw_server_test.h"

namespace muster::test {

using namespace std::string_literals;

class HandshakeTest : public RawServerTest {};
MUSTER_ON_ONE_AND_TWO_LOOPS(HandshakeTest);

TEST_P(HandshakeTest, Item001_PingIsEchoedExactly) {
  RawClient client(port());
  client.Send(Hex("00 ce f7 85 3c"));
  client.Send(Hex("0d 34 12 00 00"));
  EXPECT_EQ(client.Receive(4), Hex("34 12 00 00"));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(HandshakeTest, Item001_AnyNonceComesBack) {
  RawClient client = Client();
  for (const uint32_t nonce : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    EXPECT_EQ(client.Ask(PingBytes(nonce), 4), U32(nonce));
  }
}

TEST_P(HandshakeTest, Item002_PingIsNotRequired) {
  RawClient client(port());
  client.Send(ValidateBytes());
  EXPECT_EQ(client.Ask(Hex("07"), 8), I64(0));
}

TEST_P(HandshakeTest, Item003_ValidateMayComeByteByByte) {
  RawClient client(port());
  SendInPieces(client, ValidateBytes() + PingBytes(7), 1, Settling());
  EXPECT_EQ(client.Receive(4), U32(7));
}

TEST_P(HandshakeTest, Item003_ValidateMayBeSplitAnywhere) {
  for (size_t first = 1; first < 5; ++first) {
    RawClient client(port());
    const std::string greeting = ValidateBytes();
    client.Send(greeting.substr(0, first));
    Settle();
    client.Send(greeting.substr(first) + PingBytes(9));
    EXPECT_EQ(client.Receive(4), U32(9)) << "split after " << first;
  }
}

TEST_P(HandshakeTest, Item004_EverythingMayComeInOneSegment) {
  RawClient client(port());
  client.Send(ValidateBytes() + PingBytes(0x1234) + SetBytes("/k", "value") + GetBytes("/k"));
  EXPECT_EQ(client.Receive(4), Hex("34 12 00 00"));
  EXPECT_EQ(client.ReceiveBlob(), "value");
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(HandshakeTest, Item005_AWrongMagicNumberIsClosedWithoutAReply) {
  for (const char* wrong :
       {"00 ce f7 85 3d", "00 3c 85 f7 ce", "00 00 00 00 00", "00 cf f7 85 3c"}) {
    RawClient client(port());
    client.Send(Hex(wrong));
    EXPECT_EQ(client.ReceiveUntilClosed(), "") << wrong;
  }
  ExpectServerIsWell();
}

TEST_P(HandshakeTest, Item005_WhatFollowsAWrongMagicNumberIsNotExecuted) {
  RawClient client(port());
  client.Send(Hex("00 00 00 00 00") + SetBytes("/smuggled", "x") + PingBytes(1));
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
  EXPECT_EQ(Client().AskNumber(NumKeysBytes()), 0);
}

TEST_P(HandshakeTest, Item006_ARequestBeforeValidateIsClosedAndStoresNothing) {
  RawClient client(port());
  client.Send(SetBytes("/smuggled", "x"));
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
  RawClient other = Client();
  EXPECT_EQ(other.AskNumber(NumKeysBytes()), 0);
  EXPECT_EQ(other.Ask(CheckBytes({"/smuggled"}), 1), kNotReady);
}

TEST_P(HandshakeTest, Item006_EveryOtherFirstByteIsClosedAtOnce) {
  for (int byte = 1; byte < 256; ++byte) {
    RawClient client(port());
    client.Send(std::string(1, static_cast<char>(byte)));
    EXPECT_EQ(client.ReceiveUntilClosed(), "") << byte;
  }
  ExpectServerIsWell();
}

TEST_P(HandshakeTest, Item006_ValidateAfterSomethingElseDoesNotHelp) {
  RawClient client(port());
  client.Send(PingBytes(5) + ValidateBytes());
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
}

TEST_P(HandshakeTest, Item007_AnHttpRequestIsClosed) {
  RawClient client(port());
  client.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n\r\n");
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
  EXPECT_EQ(Client().AskNumber(NumKeysBytes()), 0);
}

TEST_P(HandshakeTest, Item007_AThousandScannersLeaveTheServerAsItWas) {
  RawClient client = Client();
  for (int i = 0; i < 1000; ++i) {
    RawClient scanner(port());
    scanner.Send(i % 2 == 0 ? "GET / HTTP/1.0\r\n\r\n"s : Hex("16 03 01 02 00 01 00 01 fc 03 03"));
    scanner.Close();
  }
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 0);
  ExpectServerIsWell();
}

TEST_P(HandshakeTest, Item008_ASecondValidateIsClosed) {
  RawClient client = Client();
  client.Send(SetBytes("/k", "v") + ValidateBytes());
  EXPECT_EQ(client.ReceiveUntilClosed(), "");
  EXPECT_EQ(Client().AskBlob(GetBytes("/k")), "v");  // what came before it was executed
}

TEST_P(HandshakeTest, Item009_UndefinedOpcodesAreClosedAndDisturbNoOtherClient) {
  RawClient bystander = Client();
  for (int opcode = 0x13; opcode < 256; ++opcode) {
    if (opcode == wire::kSessionOpcode) continue;  // muster's own
    RawClient client = Client();
    client.Send(std::string(1, static_cast<char>(opcode)));
    EXPECT_EQ(client.ReceiveUntilClosed(), "") << opcode;
  }
  EXPECT_EQ(bystander.SaidSoFar(), "");
  ExpectServerIsWell();
}

TEST_P(HandshakeTest, Item012_AClientOfRelease24MayJoin) {
  // It sends no PING. With a world size it counts itself, waits for the counter and reads it.
  RawClient client(port());
  client.Send(Hex("00 ce f7 85 3c"));
  client.Send(Hex("04 05 00 00 00 00 00 00 00 69 6e 69 74 2f 01 00 00 00 00 00 00 00"));
  EXPECT_EQ(client.Receive(8), I64(1));
  client.Send(Hex("06 01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 69 6e 69 74 2f"));
  EXPECT_EQ(client.Receive(1), kStop);
  client.Send(Hex("03 05 00 00 00 00 00 00 00 69 6e 69 74 2f"));
  EXPECT_EQ(client.Receive(9), Hex("01 00 00 00 00 00 00 00 31"));
}

}  // namespace muster::test
