#include "support/torch_server.h"

#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "support/child_process.h"
#include "support/place.h"

namespace muster::test {

namespace {

// A cold import of torch reads hundreds of megabytes.
constexpr milliseconds kStartMax{180'000};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

struct TorchServer::Impl {
  ChildProcess process;
};

TorchServer::TorchServer() {
  const std::string python = Environment("MUSTER_TORCH_PYTHON");
  if (python.empty()) throw std::runtime_error("MUSTER_TORCH_PYTHON is not set");
  impl_ = std::make_unique<Impl>(
      Impl{ChildProcess::Run({python, TestsFolder() + "/compat/torch_server.py"})});
  const std::string announced = "PORT=";
  while (const std::optional<std::string> line = impl_->process.ReadLine(kStartMax)) {
    if (!line->starts_with(announced)) continue;
    port_ = static_cast<uint16_t>(std::stoi(line->substr(announced.size())));
    return;
  }
  throw std::runtime_error("the server of " + python + " did not start");
}

TorchServer::~TorchServer() = default;

TorchServer* TorchServer::Get(std::string* why) {
  // Function-local and never replaced: each test process has at most one.
  static std::string failure;
  static const std::unique_ptr<TorchServer> server = []() -> std::unique_ptr<TorchServer> {
    try {
      return std::unique_ptr<TorchServer>(new TorchServer);
    } catch (const std::exception& error) {
      failure = error.what();
      return nullptr;
    }
  }();
  *why = failure;
  return server.get();
}

bool TorchServer::IsRequired() { return Environment("MUSTER_REQUIRE_TORCH") == "1"; }

}  // namespace muster::test
