// The functions of muster.utils: torchelastic's helpers around a store.
#include "muster/store_utilities.h"

#include <climits>
#include <string>

#include "arguments.h"
#include "blocking.h"
#include "interpreter.h"
#include "store_objects.h"
#include "stores.h"

namespace muster::python {

namespace {

/// The user's function, called in a thread that does not hold Python's lock. The call that uses it
/// raises its exceptions.
std::function<std::string(int64_t)> NameOfRank(nb::handle decoder) {
  if (PyCallable_Check(decoder.ptr()) == 0) {
    RaiseWrongType("rank_tracing_decoder", "a function", decoder);
  }
  return [decoder](int64_t rank) {
    const nb::gil_scoped_acquire locked;
    return Text(decoder(rank), "what rank_tracing_decoder returns");
  };
}

/// A member's rank and the number of members.
struct Place {
  Place(nb::handle given_rank, nb::handle given_world_size)
      : world_size(Integer(given_world_size, "world_size", 1)),
        rank(Integer(given_rank, "rank", 0, world_size - 1)) {}

  int64_t world_size;
  int64_t rank;
};

void BarrierOf(nb::handle store, nb::handle world_size, nb::handle key_prefix,
               nb::handle barrier_timeout, nb::handle rank, nb::handle rank_tracing_decoder,
               nb::handle trace_timeout) {
  const std::shared_ptr<Store> its = StoreOf(store, "store");
  const int64_t size = Integer(world_size, "world_size", 1);
  const std::string prefix = Text(key_prefix, "key_prefix");
  BarrierOptions options;
  options.timeout = Time(barrier_timeout, "barrier_timeout");
  if (!rank.is_none()) options.rank = Place(rank, world_size).rank;
  if (!rank_tracing_decoder.is_none()) {
    options.name_of_rank = NameOfRank(rank_tracing_decoder);
    if (!options.rank) throw nb::value_error("rank_tracing_decoder needs the argument rank, too");
  }
  options.trace_timeout = Time(trace_timeout, "trace_timeout");
  Blocking([&] { Barrier(*its, size, prefix, options); });
}

nb::list GetAllOf(nb::handle store, nb::handle rank, nb::handle prefix, nb::handle world_size) {
  const std::shared_ptr<Store> its = StoreOf(store, "store");
  const Place place(rank, world_size);
  const std::string its_prefix = Text(prefix, "prefix");
  return ToList(Blocking([&] { return GetAll(*its, place.rank, its_prefix, place.world_size); }));
}

nb::list SynchronizeOf(nb::handle store, nb::handle data, nb::handle rank, nb::handle world_size,
                       nb::handle key_prefix, nb::handle timeout) {
  const std::shared_ptr<Store> its = StoreOf(store, "store");
  const std::string value = Bytes(data, "data");
  const Place place(rank, world_size);
  const std::string prefix = Text(key_prefix, "key_prefix");
  const milliseconds time = Time(timeout, "timeout");
  return ToList(Blocking(
      [&] { return Synchronize(*its, value, place.rank, place.world_size, prefix, time); }));
}

nb::object CreateStore(nb::handle is_server, nb::handle server_addr, nb::handle server_port,
                       nb::handle world_size, nb::handle timeout, nb::handle wait_for_workers,
                       nb::handle retries, nb::handle use_libuv) {
  CreateTcpStoreOptions options;
  options.is_server = Flag(is_server, "is_server");
  options.host = Text(server_addr, "server_addr");
  const int64_t port = Integer(server_port, "server_port", -1, UINT16_MAX);
  if (port == 0 && !options.is_server) {
    throw nb::value_error("server_port must be from 1 to 65535, not 0: only a server can choose");
  }
  if (port >= 0) options.port = static_cast<uint16_t>(port);
  options.world_size = static_cast<int>(Integer(world_size, "world_size", 1, INT_MAX));
  options.timeout = Time(timeout, "timeout");
  options.wait_for_workers = Flag(wait_for_workers, "wait_for_workers");
  options.retries = static_cast<int>(Integer(retries, "retries", 1, INT_MAX));
  if (!use_libuv.is_none()) Flag(use_libuv, "use_libuv");
  if (port < 0 && options.world_size > 1) {
    throw nb::value_error(
        "server_port must be given where world_size is above 1: the others have to know it");
  }
  return WrapStore(Blocking([&] { return CreateTcpStore(options); }));
}

}  // namespace

void BindStoreUtilities(nb::module_& module) {
  module.def("barrier", &BarrierOf, Any("store"), Any("world_size"), Any("key_prefix"),
             Any("barrier_timeout") = 300, Any("rank") = nb::none(),
             Any("rank_tracing_decoder") = nb::none(), Any("trace_timeout") = 10,
             nb::sig("def barrier(store: Store, world_size: int, key_prefix: str, "
                     "barrier_timeout: datetime.timedelta | float = 300, rank: int | None = None, "
                     "rank_tracing_decoder: collections.abc.Callable[[int], str] | None = None, "
                     "trace_timeout: datetime.timedelta | float = 10) -> None"),
             "Returns when `world_size` members have called it with this prefix; a prefix works\n"
             "once. If they do not come in time, StoreTimeoutError gives the number that came. If\n"
             "all members pass their rank, it names the missing ones on rank 0: by number, or by\n"
             "rank_tracing_decoder(rank). trace_timeout limits the time to find these.");
  module.def("get_all", &GetAllOf, Any("store"), Any("rank"), Any("prefix"), Any("world_size"),
             nb::sig("def get_all(store: Store, rank: int, prefix: str, world_size: int) "
                     "-> list[bytes]"),
             "The values that `world_size` members have set under prefix + rank, by rank. Rank 0\n"
             "returns last: it may be the one that serves the store.");
  module.def("synchronize", &SynchronizeOf, Any("store"), Any("data"), Any("rank"),
             Any("world_size"), Any("key_prefix"), Any("timeout") = 300,
             nb::sig("def synchronize(store: Store, data: str | bytes, rank: int, world_size: int, "
                     "key_prefix: str, timeout: datetime.timedelta | float = 300) -> list[bytes]"),
             "Every member passes a value and gets the values of all, by rank.");
  module.def("create_c10d_store", &CreateStore, Any("is_server"), Any("server_addr"),
             Any("server_port") = -1, Any("world_size") = 1, Any("timeout") = 600,
             Any("wait_for_workers") = true, Any("retries") = 3, Any("use_libuv") = nb::none(),
             nb::sig("def create_c10d_store(is_server: bool, server_addr: str, "
                     "server_port: int = -1, world_size: int = 1, "
                     "timeout: datetime.timedelta | float = 600, wait_for_workers: bool = True, "
                     "retries: int = 3, use_libuv: bool | None = None) -> TCPStore"),
             "A TCPStore, with a server if requested. server_port -1: a free one, for a world of\n"
             "one; `retries` attempts to get it.");
}

}  // namespace muster::python
