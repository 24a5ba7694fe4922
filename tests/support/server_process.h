// A StoreServer in a process of its own: for tests that measure its memory or take its descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "muster/store_server.h"
#include "support/child_process.h"

namespace muster::test {

class ServerProcess {
 public:
  /// `descriptors_max` lowers the process's limit; 0 leaves it.
  explicit ServerProcess(const StoreServerOptions& options, rlim_t descriptors_max = 0)
      : process_(ChildProcess::Fork([&](int input, int output) {
          if (descriptors_max > 0) {
            const rlimit limit{.rlim_cur = descriptors_max, .rlim_max = descriptors_max};
            if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 2;
          }
          const StoreServer server(options);
          dprintf(output, "%d\n", server.port());
          char end;
          while (read(input, &end, 1) > 0) {
          }
          return 0;
        })) {
    const auto line = process_.ReadLine();
    if (!line) throw std::runtime_error("the server process did not start");
    port_ = static_cast<uint16_t>(std::stoi(*line));
  }

  uint16_t port() const { return port_; }
  pid_t pid() const { return process_.pid(); }
  size_t ResidentBytes() const { return process_.ResidentBytes(); }

  /// Ends it and returns its exit status. 0 also shows that its sanitizer reported nothing.
  int Stop() {
    process_.CloseInput();
    return process_.Wait();
  }

 private:
  ChildProcess process_;
  uint16_t port_ = 0;
};

}  // namespace muster::test
