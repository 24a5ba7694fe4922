// PyTorch's own TCPStore server, in a process of its own: muster's client must work with it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace muster::test {

class TorchServer {
 public:
  /// The one server of this test process, started by the first call (importing torch takes
  /// seconds). Null, with the reason in `why`, if there is no PyTorch: MUSTER_TORCH_PYTHON does not
  /// name a Python that can import it.
  static TorchServer* Get(std::string* why);

  /// Whether tests that need PyTorch must fail rather than be skipped: MUSTER_REQUIRE_TORCH=1.
  static bool IsRequired();

  uint16_t port() const { return port_; }

  TorchServer(const TorchServer&) = delete;
  TorchServer& operator=(const TorchServer&) = delete;
  ~TorchServer();

 private:
  TorchServer();

  struct Impl;
  std::unique_ptr<Impl> impl_;
  uint16_t port_ = 0;
};

}  // namespace muster::test
