// A TCPStore client that sends exactly the bytes of the test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "support/bytes.h"
#include "support/raw_socket.h"

namespace muster::test {

class RawClient : public RawSocket {
 public:
  /// Connects over loopback and sends nothing.
  explicit RawClient(uint16_t port, Family family = Family::kIpv4);

  /// Connected and validated.
  static RawClient Validated(uint16_t port, Family family = Family::kIpv4);

  /// Sends a request and reads as many bytes as its answer has.
  std::string Ask(std::string_view request, size_t reply_bytes);
  int64_t AskNumber(std::string_view request);
  /// A length, and as many bytes.
  std::string AskBlob(std::string_view request);
  std::string ReceiveBlob();
  int64_t ReceiveNumber();

  /// Everything that the server sent to this client before its answer to a PING that is sent now.
  /// "" shows that nothing came, and nothing will, without waiting.
  std::string SaidSoFar();
  /// A round trip: earlier requests have been executed.
  void Settle() { SaidSoFar(); }

 private:
  uint32_t next_nonce_ = 0x7e7d7c01;
};

/// Sends `bytes` in pieces of `piece` bytes; `settle` runs after each and returns when the server
/// has had time to read it, so that the pieces arrive one by one.
void SendInPieces(RawSocket& client, std::string_view bytes, size_t piece,
                  const std::function<void()>& settle);

/// Sends `chunk` repeatedly, until the server takes no more although it had time for it (many
/// rounds of `settle`), or `bytes_max` have been sent. Returns the bytes sent.
size_t SendUntilRefused(RawSocket& client, std::string_view chunk, size_t bytes_max,
                        const std::function<void()>& settle);

}  // namespace muster::test
