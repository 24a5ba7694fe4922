// TCPStore, FileStore, HashStore, PrefixStore, EtcdStore.
#include <climits>
#include <string>

#include "arguments.h"
#include "blocking.h"
#include "etcd_plugin.h"
#include "muster/etcd_store.h"
#include "muster/file_store.h"
#include "muster/hash_store.h"
#include "muster/prefix_store.h"
#include "muster/tcp_store.h"
#include "store_objects.h"
#include "stores.h"

namespace muster::python {

namespace {

std::string Repr(const std::string& text) { return nb::repr(ToText(text)).c_str(); }

/// std::invalid_argument comes from the core; here the name of the argument is added.
template <typename Call>
auto Naming(const char* argument, Call&& call) {
  try {
    return call();
  } catch (const std::invalid_argument& error) {
    throw nb::value_error((std::string(argument) + ": " + error.what()).c_str());
  }
}

// --- TCPStore ------------------------------------------------------------------------------------

struct TcpArguments {
  nb::handle host_name, port, world_size, is_master, timeout, wait_for_workers, multi_tenant,
      master_listen_fd;
};

TcpStoreOptions TcpOptions(const TcpArguments& given) {
  TcpStoreOptions options;
  options.is_server = Flag(given.is_master, "is_master");
  // Only a server can leave the choice to the kernel.
  const int64_t port_min = options.is_server ? 0 : 1;
  options.port = static_cast<uint16_t>(Integer(given.port, "port", port_min, UINT16_MAX));
  if (!given.world_size.is_none()) {
    // As in torch: below zero means unknown.
    const int64_t size = Integer(given.world_size, "world_size", INT_MIN, INT_MAX);
    if (size == 0) throw nb::value_error("world_size: TCPStore world size cannot be 0");
    if (size > 0) options.world_size = static_cast<int>(size);
  }
  if (!given.timeout.is_none()) options.timeout = Time(given.timeout, "timeout");
  options.wait_for_workers = Flag(given.wait_for_workers, "wait_for_workers");
  options.multi_tenant = Flag(given.multi_tenant, "multi_tenant");
  if (!given.master_listen_fd.is_none()) {
    const int64_t fd = Integer(given.master_listen_fd, "master_listen_fd", 0, INT_MAX);
    if (options.is_server) options.server.listen_fd = static_cast<int>(fd);
  }
  return options;
}

void InitTcp(TcpStoreObject* self, nb::handle host_name, nb::handle port, nb::handle world_size,
             nb::handle is_master, nb::handle timeout, nb::handle wait_for_workers,
             nb::handle multi_tenant, nb::handle master_listen_fd, nb::handle use_libuv) {
  const std::string host = Text(host_name, "host_name");
  const TcpStoreOptions options = TcpOptions({host_name, port, world_size, is_master, timeout,
                                              wait_for_workers, multi_tenant, master_listen_fd});
  const bool wants_libuv = use_libuv.is_none() || Flag(use_libuv, "use_libuv");
  const auto store = Blocking([&] { return std::make_shared<TcpStore>(host, options); });
  new (self) TcpStoreObject(store, store->host(), store->port(), store->is_server(), wants_libuv);
}

void BindTcpStore(nb::module_& module) {
  nb::class_<TcpStoreObject, StoreObject> tcp(
      module, "TCPStore",
      "A client of a store server: of a StoreServer, of torch's TCPStore, or of its own.\n\n"
      "With is_master=True the server is started here, on `port` (0: any that is free; the\n"
      "attribute `port` has it), and lives as long as this object. With multi_tenant=True it is\n"
      "shared with other TCPStores of this process on the same port; master_listen_fd is a socket\n"
      "that is already bound, and that the store then owns.\n\n"
      "With a world_size each TCPStore counts itself, and the one with the server returns only\n"
      "when all are there, unless wait_for_workers=False. `timeout` limits connecting, and is the\n"
      "store's timeout afterwards. There is one server: use_libuv changes nothing.\n\n"
      "Raises DistNetworkError if no server answers, StoreTimeoutError if the others do not come.");
  tcp.def("__init__", &InitTcp, Any("host_name"), Any("port"), Any("world_size") = nb::none(),
          Any("is_master") = false, Any("timeout") = nb::none(), Any("wait_for_workers") = true,
          Any("multi_tenant") = false, Any("master_listen_fd") = nb::none(),
          Any("use_libuv") = true,
          nb::sig("def __init__(self, host_name: str, port: int, world_size: int | None = None, "
                  "is_master: bool = False, "
                  "timeout: datetime.timedelta | float | None = datetime.timedelta(seconds=300), "
                  "wait_for_workers: bool = True, multi_tenant: bool = False, "
                  "master_listen_fd: int | None = None, use_libuv: bool | None = True) -> None"));
  tcp.def_prop_ro(
      "host", [](const TcpStoreObject& self) { return ToText(self.host); },
      nb::for_getter(nb::sig("def host(self) -> str")), "The server's host, as given.");
  tcp.def_prop_ro(
      "port", [](const TcpStoreObject& self) { return int{self.port}; },
      nb::for_getter(nb::sig("def port(self) -> int")), "The server's port.");
  tcp.def_prop_ro(
      "is_master", [](const TcpStoreObject& self) { return self.is_master; },
      nb::for_getter(nb::sig("def is_master(self) -> bool")),
      "Whether the server lives in this object.");
  tcp.def_prop_ro(
      "libuvBackend", [](const TcpStoreObject& self) { return self.use_libuv; },
      nb::for_getter(nb::sig("def libuvBackend(self) -> bool")),
      "The argument use_libuv; there is one kind of server.");
  tcp.def(
      "__repr__",
      [](const TcpStoreObject& self) {
        const std::string port = std::to_string(self.port);
        return ToText("TCPStore(client=TCPClient(" + self.host + ":" + port + "), server=" +
                      (self.is_master ? "TCPServer(port=" + port + ")" : "<nullptr>") + ")");
      },
      nb::sig("def __repr__(self) -> str"));
}

// --- FileStore, HashStore ------------------------------------------------------------------------

/// A path as text in the system's encoding.
std::string Path(nb::handle given, const char* argument) {
  const nb::object path = nb::steal(PyOS_FSPath(given.ptr()));
  if (!path.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    RaiseWrongType(argument, "a str or os.PathLike", given);
  }
  std::string text = Bytes(path, argument);
  if (text.empty()) throw nb::value_error((std::string(argument) + " must not be empty").c_str());
  if (text.find('\0') != std::string::npos) {
    throw nb::value_error((std::string(argument) + " must not have a null character").c_str());
  }
  return text;
}

void BindFileStore(nb::module_& module) {
  nb::class_<FileStoreObject, StoreObject> file(
      module, "FileStore",
      "A store in a file that processes share, also with torch's FileStore.\n\n"
      "The file is made if it is not there. With a world_size of 0 or more it is removed when the\n"
      "last of (at least) that many FileStores on it is gone; otherwise it stays.");
  file.def(
      "__init__",
      [](FileStoreObject* self, nb::handle file_name, nb::handle world_size) {
        const std::string path = Path(file_name, "file_name");
        const auto size = static_cast<int>(Integer(world_size, "world_size", -1, INT_MAX));
        const auto store = Naming("file_name", [&] {
          return Blocking([&] { return std::make_shared<FileStore>(path, size); });
        });
        new (self) FileStoreObject(store, store->path());
      },
      Any("file_name"), Any("world_size") = -1,
      nb::sig(
          "def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None"));
  file.def_prop_ro(
      "path", [](const FileStoreObject& self) { return ToText(self.path); },
      nb::for_getter(nb::sig("def path(self) -> str")), "The file.");
  file.def(
      "__repr__",
      [](const FileStoreObject& self) { return ToText("FileStore(" + Repr(self.path) + ")"); },
      nb::sig("def __repr__(self) -> str"));
}

void BindHashStore(nb::module_& module) {
  nb::class_<HashStoreObject, StoreObject> hash(module, "HashStore",
                                                "A store inside this process, for its threads.");
  hash.def(
      "__init__", [](HashStoreObject* self) { new (self) HashStoreObject(HashStore::Create()); },
      nb::sig("def __init__(self) -> None"));
  hash.def("__repr__", [](const HashStoreObject&) { return "HashStore()"; });
}

// --- PrefixStore ---------------------------------------------------------------------------------

nb::object UnderlyingNonPrefix(const PrefixStoreObject& self) {
  // Torch's PrefixStore has this attribute, too.
  return nb::getattr(self.inner, "_underlying_non_prefix_store", self.inner);
}

/// The references that it holds, for Python's collector: a class written in Python may refer back
/// to it.
int VisitPrefixStore(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* const object = nb::inst_ptr<PrefixStoreObject>(self);
  Py_VISIT(object->inner.ptr());
  return 0;
}

int ClearPrefixStore(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* const object = nb::inst_ptr<PrefixStoreObject>(self);
  object->Drop();  // may refer to the inner one, without owning it
  object->inner.reset();
  return 0;
}

PyType_Slot prefix_store_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&VisitPrefixStore)},
    {Py_tp_clear, reinterpret_cast<void*>(&ClearPrefixStore)},
    {0, nullptr},
};

void BindPrefixStore(nb::module_& module) {
  nb::class_<PrefixStoreObject, StoreObject> prefix(
      module, "PrefixStore", nb::type_slots(prefix_store_slots),
      "A part of another store: key \"k\" under prefix \"p\" is \"p/k\" there. The timeout is "
      "that\n"
      "of the other store, num_keys() counts all that is in it.");
  prefix.def(
      "__init__",
      [](PrefixStoreObject* self, nb::handle its_prefix, nb::handle store) {
        std::string text = Bytes(its_prefix, "prefix");
        if (store.is_none()) throw nb::value_error("store argument cannot be None");
        StoreOf(store, "store");  // checks that it is a store that can be used here
        new (self) PrefixStoreObject(std::move(text), nb::borrow(store));
      },
      Any("prefix"), Any("store"),
      nb::sig("def __init__(self, prefix: str, store: Store) -> None"));
  prefix.def_prop_ro(
      "prefix", [](const PrefixStoreObject& self) { return ToText(self.prefix); },
      nb::for_getter(nb::sig("def prefix(self) -> str")), "The prefix of its keys.");
  prefix.def_prop_ro(
      "underlying_store", [](const PrefixStoreObject& self) { return self.inner; },
      nb::for_getter(nb::sig("def underlying_store(self) -> Store")), "The other store.");
  prefix.def_prop_ro("underlying_non_prefix_store", &UnderlyingNonPrefix,
                     nb::for_getter(nb::sig("def underlying_non_prefix_store(self) -> Store")),
                     "The innermost store that is not a PrefixStore.");
  prefix.def_prop_ro("_underlying_non_prefix_store", &UnderlyingNonPrefix,
                     nb::for_getter(nb::sig("def _underlying_non_prefix_store(self) -> Store")),
                     "The same, by torch's name.");
  prefix.def(
      "__repr__",
      [](const PrefixStoreObject& self) {
        // A class written in Python may return text that UTF-8 cannot hold.
        return ToText("PrefixStore(" + Repr(self.prefix) + ", " +
                      Bytes(nb::repr(self.inner), "repr(store)") + ")");
      },
      nb::sig("def __repr__(self) -> str"));
}

// --- EtcdStore -----------------------------------------------------------------------------------

struct EtcdArguments {
  nb::handle endpoint, protocol, cacert, cert, key, user, password, prefix, timeout;
};

std::string Endpoints(nb::handle given) {
  if (PyUnicode_Check(given.ptr())) return Text(given, "endpoint");
  if (PyList_Check(given.ptr()) == 0 && PyTuple_Check(given.ptr()) == 0) {
    RaiseWrongType("endpoint", "a str or a list of str", given);
  }
  std::string joined;
  for (const std::string& one : Texts(given, "endpoint"))
    joined += (joined.empty() ? "" : ",") + one;
  return joined;
}

EtcdOptions OptionsOfEtcd(const EtcdArguments& given) {
  const std::string endpoints = Endpoints(given.endpoint);
  EtcdOptions options = Naming("endpoint", [&] { return EtcdOptions::Parse(endpoints); });
  if (!given.protocol.is_none()) {
    const std::string protocol = Text(given.protocol, "protocol");
    if (protocol != "http" && protocol != "https") {
      throw nb::value_error(("protocol must be 'http' or 'https', not '" + protocol + "'").c_str());
    }
    options.tls = protocol == "https";
  }
  if (!given.cacert.is_none()) options.cacert = Path(given.cacert, "cacert");
  if (!given.cert.is_none()) options.cert = Path(given.cert, "cert");
  if (!given.key.is_none()) options.key = Path(given.key, "key");
  if (!given.user.is_none()) options.user = Text(given.user, "user");
  if (!given.password.is_none()) options.password = Text(given.password, "password");
  if (!given.prefix.is_none()) options.prefix = Text(given.prefix, "prefix");
  options.timeout = kDefaultStoreTimeout;
  if (!given.timeout.is_none()) options.timeout = Time(given.timeout, "timeout");
  if (options.timeout.count() <= 0) {
    throw nb::value_error("timeout must be above zero: it limits connecting, too");
  }
  return options;
}

void InitEtcd(EtcdStoreObject* self, nb::handle endpoint, nb::handle protocol, nb::handle cacert,
              nb::handle cert, nb::handle key, nb::handle user, nb::handle password,
              nb::handle prefix, nb::handle timeout) {
  const EtcdOptions options =
      OptionsOfEtcd({endpoint, protocol, cacert, cert, key, user, password, prefix, timeout});
  const EtcdPlugin& plugin = LoadEtcd();
  auto store = Blocking([&] { return plugin.open_store(options); });
  std::string its_prefix = EtcdStorePrefix(*store).value_or("");
  new (self) EtcdStoreObject(std::move(store), std::move(its_prefix));
}

void BindEtcdStore(nb::module_& module) {
  nb::class_<EtcdStoreObject, StoreObject> etcd(
      module, "EtcdStore",
      "A store in a cluster of etcd (v3), which survives any machine of the job.\n\n"
      "`endpoint` is \"etcd://h1:2379,h2:2379/prefix\", the same with http:// or https:// (TLS),\n"
      "\"user:password@\" before the hosts, plain \"h1:2379,h2\", or a list of such hosts. What "
      "is\n"
      "given by name counts more: protocol (\"http\", \"https\"), cacert, cert and key (files),\n"
      "user, password, and the prefix of all its keys (\"/muster/store\"). `timeout` limits\n"
      "connecting, and is the store's timeout afterwards.\n\n"
      "One object serves many threads at a time. Raises DistNetworkError if no endpoint answers.");
  etcd.def("__init__", &InitEtcd, Any("endpoint") = "localhost:2379", nb::kw_only(),
           Any("protocol") = nb::none(), Any("cacert") = nb::none(), Any("cert") = nb::none(),
           Any("key") = nb::none(), Any("user") = nb::none(), Any("password") = nb::none(),
           Any("prefix") = nb::none(), Any("timeout") = nb::none(),
           nb::sig("def __init__(self, "
                   "endpoint: str | collections.abc.Sequence[str] = 'localhost:2379', *, "
                   "protocol: str | None = None, cacert: str | os.PathLike[str] | None = None, "
                   "cert: str | os.PathLike[str] | None = None, "
                   "key: str | os.PathLike[str] | None = None, user: str | None = None, "
                   "password: str | None = None, prefix: str | None = None, "
                   "timeout: datetime.timedelta | float | None = datetime.timedelta(seconds=300)"
                   ") -> None"));
  etcd.def_prop_ro(
      "prefix", [](const EtcdStoreObject& self) { return ToText(self.prefix); },
      nb::for_getter(nb::sig("def prefix(self) -> str")), "The prefix of all its keys in etcd.");
  etcd.def(
      "__repr__",
      [](const EtcdStoreObject& self) {
        return ToText("EtcdStore(prefix=" + Repr(self.prefix) + ")");
      },
      nb::sig("def __repr__(self) -> str"));
}

}  // namespace

void BindStoreKinds(nb::module_& module) {
  BindTcpStore(module);
  BindFileStore(module);
  BindHashStore(module);
  BindPrefixStore(module);
  BindEtcdStore(module);
}

}  // namespace muster::python
