// Every request in bytes: the worked examples of the protocol, and large, split and empty requests.
#include "support/raw_server_test.h"

namespace muster::test {

class RawRequestsTest : public RawServerTest {
 protected:
  /// Sends what the document shows for the client, and expects what it shows for the server.
  static void Exchange(RawClient& client, std::string_view sent, std::string_view answer) {
    client.Send(Hex(sent));
    const std::string expected = Hex(answer);
    EXPECT_EQ(ToHex(client.Receive(expected.size())), ToHex(expected));
    EXPECT_EQ(ToHex(client.SaidSoFar()), "") << "behind the answer";
  }
};
MUSTER_ON_ONE_AND_TWO_LOOPS(RawRequestsTest);

TEST_P(RawRequestsTest, Item013_SetAndGetAsDocumented) {
  RawClient client = Client();
  Exchange(client, "01 04 00 00 00 00 00 00 00 2f 66 6f 6f 03 00 00 00 00 00 00 00 62 61 72", "");
  Exchange(client, "06 01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 2f 66 6f 6f", "00");
  Exchange(client, "03 04 00 00 00 00 00 00 00 2f 66 6f 6f", "03 00 00 00 00 00 00 00 62 61 72");
}

TEST_P(RawRequestsTest, Item015_GetOfAnAbsentKeyIsAnEmptyValue) {
  RawClient client = Client();
  Exchange(client, "03 04 00 00 00 00 00 00 00 2f 66 6f 6f", "00 00 00 00 00 00 00 00");
}

TEST_P(RawRequestsTest, Item018_AddAsDocumented) {
  RawClient client = Client();
  Exchange(client, "04 04 00 00 00 00 00 00 00 2f 63 74 72 05 00 00 00 00 00 00 00",
           "05 00 00 00 00 00 00 00");
  Exchange(client, "04 04 00 00 00 00 00 00 00 2f 63 74 72 fe ff ff ff ff ff ff ff",
           "03 00 00 00 00 00 00 00");
  EXPECT_EQ(client.AskBlob(GetBytes("/ctr")), "3");
}

TEST_P(RawRequestsTest, Item018_AddWrapsInTwosComplement) {
  RawClient client = Client();
  client.Send(SetBytes("/n", "9223372036854775807"));
  EXPECT_EQ(client.AskNumber(AddBytes("/n", 1)), INT64_MIN);
  EXPECT_EQ(client.AskBlob(GetBytes("/n")), "-9223372036854775808");
}

TEST_P(RawRequestsTest, Item040_CheckAsDocumented) {
  RawClient client = Client();
  constexpr std::string_view kCheck =
      "05 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 03 00 00 00 00 00 00 00 2f 62 62";
  Exchange(client, kCheck, "01");
  client.Send(SetBytes("/a", "") + SetBytes("/bb", ""));
  Exchange(client, kCheck, "00");
}

TEST_P(RawRequestsTest, Item033_CompareSetAsDocumented) {
  RawClient client = Client();
  constexpr std::string_view kOldToNew =
      "02 02 00 00 00 00 00 00 00 2f 6b 03 00 00 00 00 00 00 00 6f 6c 64 03 00 00 00 00 00 00 00 "
      "6e 65 77";
  Exchange(client, kOldToNew, "03 00 00 00 00 00 00 00 6f 6c 64");
  Exchange(client,
           "02 02 00 00 00 00 00 00 00 2f 6b 00 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 76 31",
           "02 00 00 00 00 00 00 00 76 31");
  client.Send(SetBytes("/k", "zz"));
  Exchange(client, kOldToNew, "02 00 00 00 00 00 00 00 7a 7a");
  client.Send(SetBytes("/k", "old"));
  Exchange(client, kOldToNew, "03 00 00 00 00 00 00 00 6e 65 77");
}

TEST_P(RawRequestsTest, Item023_DeleteAndCountAsDocumented) {
  RawClient client = Client();
  client.Send(SetBytes("/foo", "v"));
  Exchange(client, "07", "01 00 00 00 00 00 00 00");
  Exchange(client, "08 04 00 00 00 00 00 00 00 2f 66 6f 6f", "01 00 00 00 00 00 00 00");
  Exchange(client, "08 04 00 00 00 00 00 00 00 2f 66 6f 6f", "00 00 00 00 00 00 00 00");
  Exchange(client, "07", "00 00 00 00 00 00 00 00");
}

TEST_P(RawRequestsTest, Item058_AppendAsDocumented) {
  RawClient client = Client();
  Exchange(client, "09 04 00 00 00 00 00 00 00 2f 6c 6f 67 02 00 00 00 00 00 00 00 78 79", "");
  Exchange(client, "09 04 00 00 00 00 00 00 00 2f 6c 6f 67 02 00 00 00 00 00 00 00 78 79", "");
  EXPECT_EQ(client.AskBlob(GetBytes("/log")), "xyxy");
}

TEST_P(RawRequestsTest, Item060_MultiSetAndMultiGetAsDocumented) {
  RawClient client = Client();
  Exchange(client,
           "0b 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 01 00 00 00 00 00 00 00 31"
           "02 00 00 00 00 00 00 00 2f 62 03 00 00 00 00 00 00 00 74 77 6f",
           "");
  Exchange(client,
           "0a 02 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 2f 61 02 00 00 00 00 00 00 00 2f 62",
           "01 00 00 00 00 00 00 00 31 03 00 00 00 00 00 00 00 74 77 6f");
}

TEST_P(RawRequestsTest, Item080_ListKeysAsDocumented) {
  RawClient client = Client();
  Exchange(client, "11", "00 00 00 00 00 00 00 00");
  client.AskNumber(AddBytes("init/", 1));
  Exchange(client, "11", "01 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 69 6e 69 74 2f");
  client.Send(SetBytes("/foo", "v"));
  client.Send(ListKeysBytes());
  EXPECT_EQ(client.ReceiveNumber(), 2);
  const Keys keys = {client.ReceiveBlob(), client.ReceiveBlob()};
  EXPECT_THAT(keys, ::testing::UnorderedElementsAre("init/", "/foo"));
}

TEST_P(RawRequestsTest, Item028_TheServerAddsAndInterpretsNothing) {
  RawClient client = Client();
  for (const std::string& key :
       Keys{"no slash", "", "/", "//", "init/", std::string("\0\xff", 2)}) {
    client.Send(SetBytes(key, "value of " + key));
    EXPECT_EQ(client.AskBlob(GetBytes(key)), "value of " + key);
  }
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 6);
}

TEST_P(RawRequestsTest, Item061_MultiGetRepeatsAndKeepsTheOrder) {
  RawClient client = Client();
  client.Send(SetBytes("/a", "1") + SetBytes("/b", "22") + MultiGetBytes({"/b", "/a", "/b"}));
  EXPECT_EQ(client.ReceiveBlob(), "22");
  EXPECT_EQ(client.ReceiveBlob(), "1");
  EXPECT_EQ(client.ReceiveBlob(), "22");
}

// Values that have grown have up to 64 KiB that are copied: of many, that takes several steps.
TEST_P(RawRequestsTest, AMultiGetOfGrownValuesIsAnsweredBetweenItsNeighbours) {
  RawClient client = Client();
  const std::string first(5'000, 'f'), rest(60'000, 'r');
  Keys keys;
  for (int i = 0; i < 200; ++i) {
    keys.push_back("/grown/" + std::to_string(i));
    client.Send(SetBytes(keys.back(), first) + AppendBytes(keys.back(), rest));
  }
  const std::string read = AddBytes("/n", 1) + MultiGetBytes(keys);
  client.Send(read + read + AddBytes("/n", 1));
  for (int round = 1; round <= 2; ++round) {
    EXPECT_EQ(client.ReceiveNumber(), round);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(client.ReceiveBlob(), first + rest);
  }
  EXPECT_EQ(client.ReceiveNumber(), 3);
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawRequestsTest, Item064_HalfAMultiSetIsNoMultiSet) {
  const std::string request = MultiSetBytes({{"/a", "1"}, {"/b", "2"}, {"/c", "3"}});
  const Keys all = {"/a", "/b", "/c"};
  RawClient reader = Client();
  for (size_t cut = 1; cut < request.size(); ++cut) {
    RawClient writer = Client();
    writer.Send(request.substr(0, cut));
    Settle();
    ASSERT_EQ(reader.AskNumber(NumKeysBytes()), 0) << "after " << cut << " bytes";
    writer.Send(request.substr(cut));
    writer.Settle();
    ASSERT_EQ(reader.Ask(CheckBytes(all), 1), kReady);
    for (const std::string& key : all) reader.AskNumber(DeleteBytes(key));
  }
}

TEST_P(RawRequestsTest, Item064_AMultiSetIsAppliedOnce) {
  // If it were parsed again with each piece, it would also be applied again, and undo other
  // clients' writes.
  const std::string request = MultiSetBytes({{"/a", "new"}, {"/b", std::string(10'000, 'x')}});
  RawClient writer = Client();
  RawClient other = Client();
  other.Send(SetBytes("/a", "old"));
  other.Settle();
  SendInPieces(writer, request.substr(0, request.size() - 1), 1'000, Settling());
  EXPECT_EQ(other.AskBlob(GetBytes("/a")), "old");
  writer.Send(request.substr(request.size() - 1));
  writer.Settle();
  EXPECT_EQ(other.AskBlob(GetBytes("/a")), "new");
}

TEST_P(RawRequestsTest, Item065_MultiGetOfAnAbsentKeyHasAnEmptyValueInItsPlace) {
  RawClient client = Client();
  client.Send(SetBytes("/a", "1") + SetBytes("/c", "3") + MultiGetBytes({"/a", "/b", "/c"}));
  EXPECT_EQ(client.Receive(8 + 1 + 8 + 8 + 1), Blob("1") + Blob("") + Blob("3"));
  EXPECT_EQ(client.SaidSoFar(), "");
}

TEST_P(RawRequestsTest, Item066_MultiOperationsOnNothing) {
  RawClient client = Client();
  client.Send(MultiSetBytes({}) + MultiGetBytes({}));
  EXPECT_EQ(client.SaidSoFar(), "");
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 0);
}

TEST_P(RawRequestsTest, Item117_AValueMayComeLongAfterItsKey) {
  RawClient slow = Client();
  const std::string request = SetBytes("/k", "late");
  slow.Send(request.substr(0, 1 + 8 + 2));
  // Others are served meanwhile, and notice nothing.
  RawClient other = Client();
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(other.AskNumber(AddBytes("/n", 1)), i + 1);
  EXPECT_EQ(other.Ask(CheckBytes({"/k"}), 1), kNotReady);
  slow.Send(request.substr(1 + 8 + 2));
  slow.Settle();
  EXPECT_EQ(other.AskBlob(GetBytes("/k")), "late");
}

TEST_P(RawRequestsTest, Item118_EveryRequestMayComeByteByByte) {
  RawClient client = Client();
  const std::string requests =
      SetBytes("/k", "v") + CompareSetBytes("/k", "v", "w") + GetBytes("/k") + AddBytes("/n", 300) +
      CheckBytes({"/k", "/n"}) + WaitBytes({"/n", "/k"}) + NumKeysBytes() + DeleteBytes("/n") +
      AppendBytes("/k", "x") + MultiSetBytes({{"/m", "1"}, {"/l", ""}}) +
      MultiGetBytes({"/l", "/m", "/k"}) + CancelBytes() + PushBytes("/q", "e") +
      QueueLenBytes("/q") + PopBytes("/q") + BarrierBytes("/b", 1) + PingBytes(1);
  const std::string answers = Blob("w") + Blob("w") + I64(300) + kReady + kStop + I64(2) + I64(1) +
                              Blob("") + Blob("1") + Blob("wx") + kCancelled + I64(1) + I64(1) +
                              Blob("e") + kStop + U32(1);
  SendInPieces(client, requests, 1, Settling());
  EXPECT_EQ(ToHex(client.Receive(answers.size())), ToHex(answers));
  EXPECT_EQ(client.SaidSoFar(), "");
  // All at once it means the same.
  Start(Options());
  EXPECT_EQ(ToHex(Client().Ask(requests, answers.size())), ToHex(answers));
}

TEST_P(RawRequestsTest, Item119_AHundredThousandSetsBeforeTheFirstAnswer) {
  RawClient client = Client();
  std::string requests;
  for (int i = 0; i < 100'000; ++i) requests += SetBytes("/k" + std::to_string(i), "v");
  client.Send(requests);
  EXPECT_EQ(client.AskNumber(NumKeysBytes()), 100'000);
}

TEST_P(RawRequestsTest, Item119_AnswersToAThousandPipelinedRequestsComeInOrder) {
  RawClient client = Client();
  std::string requests;
  std::string answers;
  for (int i = 1; i <= 1'000; ++i) {
    requests += AddBytes("/n", 1) + GetBytes("/n") + SetBytes("/k", "v") + CheckBytes({"/n"});
    answers += I64(i) + Blob(std::to_string(i)) + kReady;
  }
  EXPECT_TRUE(client.Ask(requests, answers.size()) == answers);
  EXPECT_EQ(client.SaidSoFar(), "");
}

}  // namespace muster::test
