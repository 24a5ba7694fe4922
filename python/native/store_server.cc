// muster.StoreServer.
#include "muster/store_server.h"

#include <algorithm>
#include <climits>
#include <string>
#include <string_view>

#include "arguments.h"
#include "blocking.h"
#include "store_objects.h"

namespace muster::python {

namespace {

struct ServerObject {
  explicit ServerObject(const std::shared_ptr<StoreServer>& its_server)
      : server(its_server, "StoreServer"),
        port(its_server->port()),
        address(its_server->address()) {}

  AtHome<StoreServer> server;
  const uint16_t port;
  const std::string address;
  bool is_closed = false;
};

struct NamedLimit {
  const char* name;
  uint64_t StoreServerOptions::*limit;
};
constexpr NamedLimit kLimits[] = {
    {"key_bytes_max", &StoreServerOptions::key_bytes_max},
    {"value_bytes_max", &StoreServerOptions::value_bytes_max},
    {"keys_per_request_max", &StoreServerOptions::keys_per_request_max},
    {"request_bytes_max", &StoreServerOptions::request_bytes_max},
    {"reply_bytes_max", &StoreServerOptions::reply_bytes_max},
    {"queued_reply_bytes_max", &StoreServerOptions::queued_reply_bytes_max},
    {"store_bytes_max", &StoreServerOptions::store_bytes_max},
    {"runs_max", &StoreServerOptions::runs_max},
    {"nodes_per_run_max", &StoreServerOptions::nodes_per_run_max},
};

struct NamedTime {
  const char* name;
  milliseconds StoreServerOptions::*time;
};
constexpr NamedTime kTimes[] = {
    {"handshake_max", &StoreServerOptions::handshake_max},
    {"stall_max", &StoreServerOptions::stall_max},
    {"run_kept_max", &StoreServerOptions::run_kept_max},
};

/// Sets the limit of this name, and returns whether there is one; None leaves it unchanged.
bool SetLimit(StoreServerOptions& options, std::string_view name, nb::handle value) {
  for (const auto& [its_name, limit] : kLimits) {
    if (name != its_name) continue;
    if (!value.is_none()) options.*limit = static_cast<uint64_t>(Integer(value, its_name, 1));
    return true;
  }
  for (const auto& [its_name, time] : kTimes) {
    if (name != its_name) continue;
    if (value.is_none()) return true;
    options.*time = Time(value, its_name);
    if ((options.*time).count() <= 0) {
      throw nb::value_error((std::string(its_name) + " must be above zero").c_str());
    }
    return true;
  }
  return false;
}

void Init(ServerObject* self, nb::handle host, nb::handle port, nb::handle threads,
          nb::handle listen_fd, const nb::kwargs& limits) {
  StoreServerOptions options;
  options.host = Text(host, "host");
  options.port = static_cast<uint16_t>(Integer(port, "port", 0, UINT16_MAX));
  options.threads = static_cast<int>(Integer(threads, "threads", 0, 1024));
  if (!listen_fd.is_none()) {
    options.listen_fd = static_cast<int>(Integer(listen_fd, "listen_fd", 0, INT_MAX));
  }
  for (const auto [name, value] : limits) {
    const std::string its_name = Text(name, "name");
    if (SetLimit(options, its_name, value)) continue;
    throw nb::type_error(("StoreServer() has no argument '" + its_name + "'").c_str());
  }
  new (self) ServerObject(Blocking([&] { return std::make_shared<StoreServer>(options); }));
}

void Close(ServerObject& self) {
  if (self.is_closed) return;
  static_cast<void>(*self.server);  // not in a fork
  self.is_closed = true;
  self.server.Drop();
}

void Exit(ServerObject& self, const nb::args&) {
  if (self.server.IsHere()) Close(self);  // a fork that leaves the block leaves the server alone
}

}  // namespace

void BindStoreServer(nb::module_& module) {
  nb::class_<ServerObject> server(
      module, "StoreServer",
      "The server that TCPStores connect to, muster's and torch's, and that runs the rendezvous "
      "of\n"
      "the backend \"muster\". It serves on threads of its own until close(), or the end of a\n"
      "`with` block.\n\n"
      "`host` is the address to listen on (empty: all), `port` 0 any that is free, `threads` 0 "
      "half\n"
      "of the usable cores; `listen_fd` is a bound socket to use instead, which it then owns. A\n"
      "client that exceeds one of the limits is disconnected: sizes in bytes, times as timedelta "
      "or\n"
      "seconds. Raises DistNetworkError if it cannot listen.");
  server.def(
      "__init__", &Init, Any("host") = "", Any("port") = 0, nb::kw_only(), Any("threads") = 0,
      Any("listen_fd") = nb::none(), nb::arg("limits"),
      nb::sig("def __init__(self, host: str = '', port: int = 0, *, threads: int = 0, "
              "listen_fd: int | None = None, key_bytes_max: int | None = 8192, "
              "value_bytes_max: int | None = 8388608, keys_per_request_max: int | None = 131072, "
              "request_bytes_max: int | None = 268435456, "
              "reply_bytes_max: int | None = 268435456, "
              "queued_reply_bytes_max: int | None = 1048576, "
              "store_bytes_max: int | None = None, "
              "handshake_max: datetime.timedelta | float | None = 30, "
              "stall_max: datetime.timedelta | float | None = 60, "
              "runs_max: int | None = 10000, nodes_per_run_max: int | None = 131072, "
              "run_kept_max: datetime.timedelta | float | None = 600) -> None"));
  server.def_prop_ro(
      "port", [](const ServerObject& self) { return int{self.port}; },
      nb::for_getter(nb::sig("def port(self) -> int")), "The port on which it listens.");
  server.def_prop_ro(
      "address", [](const ServerObject& self) { return ToText(self.address); },
      nb::for_getter(nb::sig("def address(self) -> str")),
      "The address on which it listens: \"[::]:29500\".");
  server.def("close", &Close, nb::sig("def close(self) -> None"),
             "Ends it, and every connection. A second call does nothing.");
  server.def(
      "__enter__", [](nb::handle self) { return nb::borrow(self); },
      nb::sig("def __enter__(self) -> StoreServer"));
  server.def("__exit__", &Exit, nb::sig("def __exit__(self, *args: object) -> None"));
  server.def(
      "__repr__",
      [](const ServerObject& self) {
        return ToText("<StoreServer at " + self.address + (self.is_closed ? ", closed>" : ">"));
      },
      nb::sig("def __repr__(self) -> str"));
}

}  // namespace muster::python
