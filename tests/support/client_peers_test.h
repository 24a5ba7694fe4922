// The fixture of tests that play the server: a TcpStore, and the other end of its connection.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "muster/tcp_store.h"
#include "support/background.h"
#include "support/bytes.h"
#include "support/raw_socket.h"

namespace muster::test {

using StorePtr = std::shared_ptr<TcpStore>;

class ClientPeersTest : public ::testing::Test {
 protected:
  StorePtr Connect(milliseconds timeout) const {
    return std::make_shared<TcpStore>(
        "127.0.0.1", TcpStoreOptions{.port = listener_.port(), .timeout = timeout});
  }
  auto Connecting(milliseconds timeout = kPatience) const {
    return [this, timeout] { return Connect(timeout); };
  }

  /// The server's part of the handshake.
  RawSocket AcceptAndGreet() {
    RawSocket peer = listener_.Accept();
    EXPECT_EQ(peer.Receive(10), ValidateBytes() + PingBytes(static_cast<uint32_t>(getpid())));
    peer.Send(U32(static_cast<uint32_t>(getpid())));
    return peer;
  }

  /// A store whose peer is `peer_`.
  StorePtr Connected(milliseconds timeout = kPatience) {
    Background<StorePtr> connecting(Connecting(timeout));
    peer_.emplace(AcceptAndGreet());
    return connecting.Result();
  }

  RawListener listener_;
  std::optional<RawSocket> peer_;
};

}  // namespace muster::test
