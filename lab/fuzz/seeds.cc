// Writes the first inputs of the fuzzers: real frames, real states and realistic options, so that
// fuzzing starts from what is valid.
//
//   fuzz_seeds FOLDER    one folder below it for each fuzzer, which must exist
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/encoding.h"
#include "rendezvous/wire/session_codec.h"
#include "rendezvous/wire/state_codec.h"
#include "support/bytes.h"
#include "support/state_pickles.h"

namespace muster::fuzz {
namespace {

using Seeds = std::vector<std::string>;

/// Two bytes of options before the stream: the usual limits, pieces of up to 16 bytes.
Seeds Requests() {
  using namespace test;  // NOLINT: it is the vocabulary of this function
  const Seeds streams = {
      ValidateBytes() + PingBytes(4660),
      SetBytes("/foo", "bar") + GetBytes("/foo"),
      CompareSetBytes("/foo", "bar", "baz"),
      AddBytes("/ctr", 5) + AddBytes("/ctr", -1),
      CheckBytes({"/a", "/bb"}),
      WaitBytes({"/a", "/bb"}) + CancelBytes(),
      WaitBytes({}),
      NumKeysBytes() + ListKeysBytes(),
      DeleteBytes("/foo"),
      AppendBytes("/foo", std::string(40, 'x')),
      MultiGetBytes({"/a", "", "/c"}),
      MultiSetBytes({{"/a", "1"}, {"/b", ""}}),
      CheckBytes(Keys(100, "")) + MultiSetBytes(Pairs(7, {"k", "v"})),
      PushBytes("/q", "job1") + PopBytes("/q") + QueueLenBytes("/q"),
      BarrierBytes("/b", 2),
      wire::SessionGreeting(true),
  };
  Seeds seeds;
  for (const std::string& stream : streams) seeds.push_back(std::string("\0\2", 2) + stream);
  return seeds;
}

/// A byte that selects no builder, and the frames of docs/reference/protocol.md.
Seeds Sessions() {
  const Seeds streams = {
      test::Hex("a0 62 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ff ff ff ff ff ff ff ff "
                "01 03 00 72 75 6e 00 00 67 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
                "02 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 30 75 00 00 00 00 00 00 "
                "e8 03 00 00 00 00 00 00 03 00 00 00 00 00 00 00 2c 01 00 00 00 00 00 00 "
                "00 00 00 3c 73"),
      test::Hex("a0 20 00 00 00 00 88 77 66 55 44 33 22 11 01 00 00 00 00 00 00 00 00 00 00 00 "
                "00 08 00 31 30 2e 30 2e 30 2e 37"),
      test::Hex("a0 1d 00 00 00 01 88 77 66 55 44 33 22 11 01 00 00 00 ff ff ff ff ff ff ff ff "
                "c0 27 09 00 00 00 00 00"),
      test::Hex("a0 39 00 00 00 05 88 77 66 55 44 33 22 11 01 00 00 00 00 00 00 00 00 00 00 00 "
                "01 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 "
                "08 00 31 30 2e 30 2e 30 2e 32 3c 73"),
      test::Hex("a0 15 00 00 00 04 88 77 66 55 44 33 22 11 01 00 00 00 00 00 00 00 00 00 00 00"),
  };
  Seeds seeds;
  for (const std::string& stream : streams) seeds.push_back("\xff" + stream);
  using Kind = wire::SessionRequest::Kind;
  for (const Kind kind : {Kind::kLeave, Kind::kClose, Kind::kStatus}) {
    wire::AppendSessionFrame(seeds.emplace_back("\xff"), {.kind = kind, .reason = "done"});
  }
  for (uint8_t kind = 0; kind < 12; ++kind) {
    const Push push{.kind = static_cast<Push::Kind>(kind), .addr = "a", .who = "b", .why = "c"};
    wire::AppendSessionFrame(seeds.emplace_back("\xff"), push);
  }
  RunReport run{.id = "run", .last_call_left = 1s, .members = {{.node = {"10.0.0.7", 4711, 0}}}};
  wire::AppendStatus(seeds.emplace_back("\xff"), {run}, false);
  for (const char builder : {'\0', '\1', '\2'}) seeds.push_back(std::string(1, builder) + "text");
  return seeds;
}

Seeds States() {
  namespace p = test::pickle;
  const std::string node = p::Node("10.0.0.7", 1, 2);
  const std::string time = p::DateTime({p::kMorningBytes, p::Utc()});
  RendezvousState closed = test::State3();
  closed.closed = true;
  closed.closed_by = "host_4711_0: workers failed";
  closed.completion = {.round = 3, .world_size = 2};
  return {
      test::Vector1(),
      test::Vector2(),
      test::Vector3(),
      test::Vector4(),
      test::Vector5(),
      Base64Encode(test::Vector1()),
      wire::WriteState(test::State3()),
      wire::WriteState(closed),
      p::StateWith({{"deadline", p::DateTime({p::kMorningBytes})}}),
      p::StateWith({{"wait_list", p::Set({node})}, {"last_heartbeats", p::Dict({{node, time}})}}),
      p::StateWith({{"newer", p::List({p::Text("x"), p::Tuple({p::Int(1), p::Long("\xff")})})}}),
      p::StateWith({{"newer", p::Dict({{p::Int(1), time}})}}),
      p::StateWith({{"redundancy_list", ""}, {"round", p::Int(7)}}),
      // States that no real writer makes: a list in itself, a deeply nested one, and one byte that
      // stands for many.
      p::StateWith({{"newer", std::string("]\x94h\0a", 5)}}),
      p::StateWith({{"newer", std::string(70, ']') + std::string(69, 'a')}}),
      p::StateWith({{"newer", "](" + p::Text(std::string(200, 'x')) + "\x94" +
                                  test::Hex("68 00 68 00 68 00 68 00 68 00") + "e"}}),
  };
}

Seeds Configurations() {
  return {
      "localhost:29400\njoin_timeout=60,last_call_timeout=5",
      "[::1]:0\nkeep_alive_interval=1,keep_alive_max_attempt=3,heartbeat_timeout=5",
      "node-0.example.com\nis_host=true, rank_policy = label ,label=rack7",
      "[fe80::1]\nclose_timeout=0.5,grace=1e-3",
      ":80\njoin_timeout=1_000,is_host=no",
      "10.0.0.7:65535\njoin_timeout=-1",
      "a:1\njoin_timeout=-9223372036854775808",
      "a:1\nkeep_alive_interval=3153600000,keep_alive_max_attempt=9223372036854775807",
      "h:70000\na=b=c,d=e/f",
      "\na=1,a=2,b",
      "tcp://h:1\n=x",
  };
}

/// Seeds of plain stories: six and four bytes for each event.
Seeds Machine() {
  return {test::Hex("00 00 00 00  00 06 10 00 00 00  01 01 00 01 00 00  02 06 20 00 00 04"),
          test::Hex("00 00 00 00  00 06 10 00 00 02  01 0e 02 04 00 00  00 0f 02 00 00 00"),
          test::Hex("01 01 01 01  00 12 00 00 01 00  01 12 00 00 01 00  02 0c 00 00 00 00"),
          test::Hex("00 00 01 00  00 09 00 09 00 00  01 09 00 09 00 00  f8 00 00 00 04 00")};
}

Seeds Coordinator() {
  return {test::Hex("00 01 03 01 03 00  00 00 00 00  01 00 00 00  00 02 07 00  01 02 07 00"),
          test::Hex("00 00 05 00 03 01  00 00 00 00  00 02 07 00  08 08 06 00  00 04 00 00"),
          test::Hex("00 01 05 00 00 02  00 00 00 00  00 02 07 00  00 07 00 00  00 00 00 00")};
}

void Write(const std::string& folder, std::string_view fuzzer, const Seeds& seeds) {
  for (size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream out(Concat(folder, '/', fuzzer, "/seed", i), std::ios::binary);
    out << seeds[i];
    if (!out.flush()) std::fprintf(stderr, "cannot write to %s\n", folder.c_str());
  }
}

}  // namespace
}  // namespace muster::fuzz

int main(int count, char** arguments) {
  using namespace muster::fuzz;  // NOLINT: it is this file's own
  if (count != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::string folder = arguments[1];
  Write(folder, "configuration", Configurations());
  Write(folder, "coordinator", Coordinator());
  Write(folder, "machine", Machine());
  Write(folder, "requests", Requests());
  Write(folder, "sessions", Sessions());
  Write(folder, "state", States());
  return 0;
}
