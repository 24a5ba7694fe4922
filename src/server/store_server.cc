#include "muster/store_server.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "base/limits.h"
#include "base/siphash.h"
#include "base/text.h"
#include "os/posix/cores.h"
#include "os/posix/entropy.h"
#include "os/posix/memory.h"
#include "os/posix/posix_clock.h"
#include "os/uv/uv_listener.h"
#include "os/uv/uv_loop.h"
#include "rendezvous/session/session_hub.h"
#include "rendezvous/wire/session_codec.h"
#include "server/server_loop.h"
#include "server/shared_store.h"
#include "store/throw.h"

namespace muster {

namespace {

LogSink ToSink(const StoreServerOptions& options) {
  if (!options.log) return nullptr;
  return [log = options.log](LogLevel level, std::string_view line) {
    log(level >= LogLevel::kWarning, line);
  };
}

ListeningSocket BindOrThrow(const StoreServerOptions& options) {
  Result<ListeningSocket> socket =
      options.listen_fd >= 0 ? ListeningSocket::FromDescriptor(options.listen_fd, options.port)
                             : ListeningSocket::Bind(options.host, options.port);
  if (socket) return std::move(*socket);
  if (socket.error().code == Code::kInvalid) throw StoreError(socket.error().message);
  throw NetworkError(Concat(
      "The server socket has failed to listen on any local network address. port: ", options.port,
      ": ", socket.error().message));
}

uint64_t StoreBytesMax(const StoreServerOptions& options) {
  return options.store_bytes_max > 0 ? options.store_bytes_max
                                     : std::max(UsableMemory() / 4, kStoreBytesLeast);
}

CoordinatorOptions CoordinatorOptionsOf(const StoreServerOptions& options) {
  return {.runs_max = options.runs_max,
          .nodes_per_run_max = options.nodes_per_run_max,
          .bytes_max = std::max(StoreBytesMax(options) / 8, kSessionBytesLeast),
          .ended_kept = options.run_kept_max,
          .entropy = RandomFromKernel,
          .has_store = true};
}

/// Whether the first bytes are those of a node, which requests or opens a session, or of another
/// client.
Opening JudgeBytes(std::string_view bytes) {
  const std::string asks = wire::SessionGreeting(true);
  const std::string opens = wire::SessionGreeting(false) + static_cast<char>(wire::kSessionOpcode);
  if (bytes.starts_with(asks) || bytes.starts_with(opens)) return Opening::kSession;
  if (asks.starts_with(bytes) || opens.starts_with(bytes)) return Opening::kIncomplete;
  return bytes.starts_with(wire::SessionGreeting(false)) ? Opening::kRequest : Opening::kOther;
}

/// A secret of this process: no client can know which keys collide.
SipKey MakeSecret() { return {RandomFromKernel(), RandomFromKernel()}; }

size_t ThreadCount(const StoreServerOptions& options) {
  return static_cast<size_t>(options.threads > 0 ? options.threads : DefaultLoops());
}

}  // namespace

void StoreServerOptions::Validate() const {
  const auto positive = [](uint64_t value, std::string_view name, uint64_t most) {
    if (value == 0 || value > most) {
      throw Invalid("StoreServerOptions::", name, " is ", value, ", allowed: 1 to ", most);
    }
  };
  constexpr uint64_t kFrame = 4ull << 30;  // libuv counts the bytes of a write in 32 bits
  positive(key_bytes_max, "key_bytes_max", kFrame - 1);
  positive(value_bytes_max, "value_bytes_max", kFrame - 1);
  positive(keys_per_request_max, "keys_per_request_max", kFrame - 1);
  positive(request_bytes_max, "request_bytes_max", 64 * kFrame);
  positive(reply_bytes_max, "reply_bytes_max", kFrame / 2);
  positive(queued_reply_bytes_max, "queued_reply_bytes_max", kFrame / 4);
  if (store_bytes_max != 0 && store_bytes_max < kStoreBytesLeast) {
    throw Invalid("StoreServerOptions::store_bytes_max is ", store_bytes_max,
                  ", allowed: 0 (a quarter of the memory) or at least ", kStoreBytesLeast);
  }
  const auto positive_time = [&](std::chrono::milliseconds time, std::string_view name) {
    positive(static_cast<uint64_t>(std::max<int64_t>(0, time.count())), name, kFrame);
  };
  positive_time(handshake_max, "handshake_max");
  positive_time(stall_max, "stall_max");
  positive(runs_max, "runs_max", kFrame);
  positive(nodes_per_run_max, "nodes_per_run_max", kFrame);
  positive_time(run_kept_max, "run_kept_max");
  if (threads < 0 || threads > 1024) {
    throw Invalid("StoreServerOptions::threads is ", threads,
                  ", allowed: 0 (one for every two cores) to 1024");
  }
}

struct StoreServer::Impl {
  Impl(const StoreServerOptions& options, ListeningSocket socket)
      : port(socket.port()),
        address(socket.address()),
        store({.reply_bytes_max = options.reply_bytes_max,
               .reserved_key = wire::kSessionKey,
               .hash_secret = MakeSecret()},
              StoreBytesMax(options), ThreadCount(options),
              [this](size_t loop) { Wake(loop, &ServerLoop::Collect); }),
        sessions(CoordinatorOptionsOf(options), ThreadCount(options), clock, &SharedStore::LoopOf,
                 [this](size_t loop) { Wake(loop, &ServerLoop::CollectPushes); }) {
    if (GivesMemoryBack()) {
      store.account().CountResident([this] { return resident.Read(); }, &TrimMemory);
    }
    KeepScopes(sessions, store);
    const size_t count = ThreadCount(options);
    server_loops.resize(count);
    for (size_t i = 0; i < count; ++i) threads.push_back(ValueOrThrow(UvThread::Open()));
    for (size_t i = 0; i < count; ++i) {
      threads[i]->RunAndWait([&] {
        server_loops[i] = std::make_unique<ServerLoop>(
            threads[i]->loop(), store, sessions, i, options, ToSink(options),
            [this, log = ToSink(options)] { return OnTick(log); });
      });
    }
    threads[0]->RunAndWait([&] {
      listener = std::make_unique<UvListener>(threads[0]->loop(), std::move(socket), &JudgeBytes,
                                              ToSink(options), options.descriptor_reserve);
      listener->Start([this](UvListener::OpenSocket open) { HandOut(std::move(open)); },
                      [this](const PeerGroup& from, size_t connections, bool only_unused) {
                        MakeRoom(next_loop % threads.size(), threads.size(), from, connections,
                                 only_unused);
                      });
    });
  }

  ~Impl() {
    threads[0]->RunAndWait([&] { listener.reset(); });
    for (size_t i = 0; i < threads.size(); ++i) {
      threads[i]->RunAndWait([&] { server_loops[i].reset(); });
    }
    threads.clear();
  }

  /// True: the reserve of memory is not full yet.
  bool OnTick(const LogSink& log) {
    store.account().Reclaim();
    if (reserve.Refill() && log) {
      log(LogLevel::kError, Concat("out of memory with ", HumanBytes(store.account().used()),
                                   " of clients: the limit of all of it (store_bytes_max) is ",
                                   HumanBytes(store.account().limit()), " now"));
    }
    return !reserve.is_full();
  }

  // Round robin: all loops serve about as many connections.
  void HandOut(UvListener::OpenSocket open) {
    const size_t loop = next_loop++ % threads.size();
    PostTo(loop, [this, loop, open = std::move(open)](ServerLoop& server) {
      try {
        StreamPtr stream = open(threads[loop]->loop());
        if (stream) server.Serve(std::move(stream));
      } catch (const std::bad_alloc&) {
        // There is no memory for another connection: it is closed, the others remain.
      }
    });
  }

  // Closes connections of one loop, then of the next one, until there are enough.
  void MakeRoom(size_t loop, size_t loops_left, PeerGroup from, size_t wanted, bool only_unused) {
    if (wanted == 0 || loops_left == 0) return;
    PostTo(loop, [this, loop, loops_left, from, wanted, only_unused](ServerLoop& server) {
      const size_t closed = server.CloseLeastUsed(from, wanted, only_unused);
      MakeRoom((loop + 1) % threads.size(), loops_left - 1, from, wanted - closed, only_unused);
    });
  }

  void Wake(size_t loop, void (ServerLoop::*collect)()) {
    PostTo(loop, [collect](ServerLoop& server) { (server.*collect)(); });
  }

  /// Runs `work` on a loop, unless the server has ended there.
  void PostTo(size_t loop, auto work) {
    threads[loop]->loop().Post([this, loop, work = std::move(work)] {
      if (server_loops[loop]) work(*server_loops[loop]);
    });
  }

  const uint16_t port;
  const std::string address;
  PosixClock clock;
  ResidentMemory resident;
  SharedStore store;
  MemoryReserve reserve{store.account()};
  SessionHub sessions;
  std::vector<std::unique_ptr<ServerLoop>> server_loops;  // each used by its own loop only
  std::vector<std::unique_ptr<UvThread>> threads;
  std::unique_ptr<UvListener> listener;
  size_t next_loop = 0;  // the listener's loop only
};

StoreServer::StoreServer(const StoreServerOptions& options) {
  options.Validate();
  impl_ = std::make_unique<Impl>(options, BindOrThrow(options));
}

StoreServer::~StoreServer() = default;

std::shared_ptr<StoreServer> StoreServer::Shared(const StoreServerOptions& options) {
  // "multi_tenant" of PyTorch's TCPStore: one table per process, with weak references to its
  // servers.
  static std::mutex mutex;
  static std::map<uint16_t, std::weak_ptr<StoreServer>> servers;
  const std::lock_guard lock(mutex);
  if (options.port != 0) {
    if (auto running = servers[options.port].lock()) return running;
  }
  auto server = std::make_shared<StoreServer>(options);
  servers[server->port()] = server;
  return server;
}

uint16_t StoreServer::port() const { return impl_->port; }
std::string StoreServer::address() const { return impl_->address; }

}  // namespace muster
