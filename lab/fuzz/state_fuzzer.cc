// The serialized rendezvous state, from a key that any client may have written. What is accepted is
// within the limits, and is read as the same again after muster has written it. The same holds for
// the base64 around it.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/encoding.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "fuzz/check.h"
#include "fuzz/input.h"
#include "rendezvous/wire/state_codec.h"

namespace muster::fuzz {
namespace {

void CheckNode(const Node& node) {
  FUZZ_CHECK(IsUtf8(node.addr));
  FUZZ_CHECK(node.addr.size() <= kNodeAddressBytesMax);
}

size_t BytesOf(const std::map<std::string, std::string>& unknown) {
  FUZZ_CHECK(unknown.size() <= kStateUnknownMax);
  size_t bytes = 0;
  for (const auto& [name, value] : unknown) bytes += name.size() + value.size();
  return bytes;
}

/// The memo lets one byte stand for many, but only up to a limit.
void CheckLimits(const RendezvousState& state, size_t pickle_bytes) {
  size_t bytes = state.closed_by.size() + BytesOf(state.unknown);
  for (const auto& [node, unknown] : state.unknown_of_nodes) bytes += BytesOf(unknown);
  for (const auto& [node, rank] : state.participants) {
    CheckNode(node);
    FUZZ_CHECK(rank >= 0);
  }
  for (const Node& node : state.wait_list) CheckNode(node);
  for (const Node& node : state.redundancy_list) CheckNode(node);
  for (const auto& [node, time] : state.last_heartbeats) CheckNode(node);
  FUZZ_CHECK(state.round >= 0);
  FUZZ_CHECK(IsUtf8(state.closed_by));
  FUZZ_CHECK(bytes <= 8 * pickle_bytes + 64 * 1024, bytes, " from ", pickle_bytes);
}

void CheckState(std::string_view bytes) {
  const ExactCopy pickle(bytes);
  const Result<RendezvousState> state = wire::ReadState(pickle.view());
  if (!state) {
    FUZZ_CHECK(state.error().code == Code::kProtocol);
    return CheckMessage(state.error().message);
  }
  CheckLimits(*state, bytes.size());
  const std::string written = wire::WriteState(*state);
  const Result<RendezvousState> again = wire::ReadState(written);
  FUZZ_CHECK(again.has_value(), again ? "" : again.error().message);
  FUZZ_CHECK(*again == *state);
  FUZZ_CHECK(wire::WriteState(*again) == written);
}

void CheckBase64(std::string_view bytes) {
  const Result<std::string> decoded = Base64Decode(bytes);
  if (!decoded) CheckMessage(decoded.error().message);
  if (decoded) FUZZ_CHECK(Base64Decode(Base64Encode(*decoded)).value() == *decoded);
  const std::string encoded = Base64Encode(bytes);
  FUZZ_CHECK(encoded.size() == (bytes.size() + 2) / 3 * 4);
  FUZZ_CHECK(Base64Decode(encoded).value() == bytes);
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = muster::fuzz::Input(data, size).Rest();
  muster::fuzz::CheckState(bytes);
  muster::fuzz::CheckBase64(bytes);
  return 0;
}
