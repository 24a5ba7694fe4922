// Outgoing TCP connections on a libuv loop, behind the Connector port.
#pragma once

#include <functional>
#include <memory>

#include "os/ports/transport.h"
#include "os/uv/uv_loop.h"

namespace muster {

class UvConnector final : public Connector {
 public:
  explicit UvConnector(UvLoop& loop) : loop_(loop) {}

  std::unique_ptr<Attempt> Connect(const Endpoint& to, const ConnectOptions& options,
                                   std::function<void(Result<StreamPtr>)> done) override;

 private:
  UvLoop& loop_;
};

}  // namespace muster
