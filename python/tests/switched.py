"""A script as people write it for torch: all public names of its rendezvous and of its stores.

test_import_switch.py runs it as it is, and with `torch.distributed` replaced in the imports. It
prints what it sees, one line each. Not a test itself.
"""

import enum
import threading
from datetime import timedelta

import torch.distributed as dist
from torch.distributed.elastic import rendezvous
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousHandlerCreator,
    RendezvousHandlerRegistry,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.api import RendezvousError as ErrorOfApi
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import (
    DEFAULT_PORT,
    C10dRendezvousBackend,
    create_backend,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    RendezvousSettings,
    RendezvousTimeout,
    Token,
    create_handler,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import (
    StaticTCPRendezvous,
    create_rdzv_handler,
)
from torch.distributed.elastic.rendezvous.utils import (
    _parse_rendezvous_config,
    parse_rendezvous_endpoint,
)

ADDRESS = "127.0.0.1"
SHORT = timedelta(milliseconds=50)


def show(title, value):
    print(f"{title}: {value!r}")


def attempt(title, call):
    """Shows the result, or the name of the error that both libraries have."""
    try:
        show(title, call())
    except Exception as error:
        name = type(error).__name__
        show(title, "DistStoreError" if name == "StoreTimeoutError" else name)


def mentions(title, call, *words):
    try:
        call()
    except Exception as error:
        show(title, [type(error).__name__, [word in str(error) for word in words]])


# --- Stores ---------------------------------------------------------------------------------------


def use(name, store, queues):
    store.set_timeout(SHORT)
    attempt(f"{name} timeout", lambda: store.timeout)
    attempt(f"{name} set", lambda: store.set("k", "v"))
    attempt(f"{name} get", lambda: store.get("k"))
    attempt(f"{name} get absent", lambda: store.get("absent"))
    attempt(f"{name} add", lambda: store.add("n", 2))
    attempt(f"{name} check", lambda: (store.check(["k", "n"]), store.check(["absent"])))
    attempt(f"{name} wait", lambda: store.wait(["k"], SHORT))
    attempt(f"{name} compare_set", lambda: store.compare_set("k", "v", "w"))
    attempt(f"{name} append", lambda: store.append("k", "!"))
    attempt(f"{name} multi_set", lambda: store.multi_set(["a", "b"], ["1", "2"]))
    attempt(f"{name} multi_get", lambda: store.multi_get(["b", "a", "k"]))
    attempt(f"{name} delete_key", lambda: store.delete_key("a"))
    attempt(f"{name} num_keys", lambda: store.num_keys() >= 3)
    attempt(f"{name} list_keys", lambda: {"b", "k", "n"} <= set(store.list_keys()))
    attempt(f"{name} has_extended_api", lambda: store.has_extended_api())
    attempt(f"{name} clone", lambda: store.clone().get("b"))
    attempt(f"{name} barrier", lambda: store.barrier("gate", 1))
    if queues:
        attempt(f"{name} queue_push", lambda: store.queue_push("q", "x"))
        attempt(f"{name} queue_len", lambda: store.queue_len("q"))
        attempt(f"{name} queue_pop", lambda: store.queue_pop("q"))
        attempt(f"{name} queue_pop of nothing", lambda: store.queue_pop("q", block=False))


class PythonStore(dist.Store):
    def __init__(self):
        super().__init__()
        self.inner = dist.HashStore()

    def set(self, key, value):
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def add(self, key, value):
        return self.inner.add(key, value)

    def compare_set(self, key, expected_value, desired_value):
        return self.inner.compare_set(key, expected_value, desired_value)

    def check(self, keys):
        return self.inner.check(keys)

    def wait(self, keys, timeout=SHORT):
        self.inner.wait(keys, timeout)

    def delete_key(self, key):
        return self.inner.delete_key(key)


def stores(path):
    tcp = dist.TCPStore(ADDRESS, 0, None, True, timedelta(seconds=30), use_libuv=True)
    show("tcp", (tcp.host, tcp.port > 0, tcp.libuvBackend, repr(tcp).startswith("TCPStore(client")))
    use("tcp", tcp, True)
    client = dist.TCPStore(ADDRESS, tcp.port, is_master=False, wait_for_workers=False)
    show("tcp client", (client.get("b"), "server=<nullptr>" in repr(client)))
    file = dist.FileStore(path, 1)
    show("file", file.path == path)
    use("hash", dist.HashStore(), True)
    prefix = dist.PrefixStore("p", dist.PrefixStore("q", tcp))
    use("prefix", prefix, True)
    show("prefix of", prefix.underlying_store.underlying_store is tcp)
    show("prefix of all", prefix._underlying_non_prefix_store is tcp)
    show("prefix in it", tcp.get("q/p/b"))
    python = PythonStore()
    outer = dist.PrefixStore("p", python)
    outer.set("k", "v")
    outer.append("k", "w")
    show("python", (python.get("p/k"), outer.multi_get(["k"]), outer.has_extended_api()))
    python.append("other", "x")
    python.multi_set(["m"], ["n"])
    show("python itself", (python.multi_get(["other", "m"]), python.has_extended_api()))
    mentions("no store", lambda: dist.PrefixStore("p", None), "store argument cannot be None")
    mentions("no world", lambda: dist.TCPStore(ADDRESS, 0, 0, True), "world size cannot be 0")
    tcp.set_timeout(timedelta(seconds=30))
    for error in (dist.DistError, dist.DistNetworkError, dist.DistStoreError, dist.QueueEmptyError):
        show(error.__name__, issubclass(error, RuntimeError))
    return tcp


# --- Parameters -----------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = 1


def parameters():
    params = RendezvousParameters(
        "c10d", f"{ADDRESS}:1", "run", 1, 2, word="yes", n="3", color=Color
    )
    show("params", (params.backend, params.endpoint, params.run_id, params.local_addr))
    show("counts", (params.min_nodes, params.max_nodes, sorted(params.config)))
    show("get", (params.get("word"), params.get("none", 7), params.get("color") is Color))
    show("get as", (params.get_as_bool("word"), params.get_as_int("n"), params.get_as_int("none")))
    backend = "backend name must be a non-empty string"
    mentions("backend None", lambda: RendezvousParameters(None, "", "run", 1, 1), backend)
    mentions("backend ''", lambda: RendezvousParameters("", "", "run", 1, 1), backend)
    mentions("min", lambda: RendezvousParameters("x", "", "run", 0, 1), "(0) must be greater than")
    mentions("max", lambda: RendezvousParameters("x", "", "run", 2, 1), "(1) must be greater than")
    mentions("bool", lambda: params.get_as_bool("n"), "option 'n' does not represent a valid bool")
    mentions("int", lambda: params.get_as_int("word"), "option 'word' does not represent a valid")
    timeout = RendezvousTimeout(join=timedelta(seconds=9), close=timedelta(minutes=1))
    show("timeouts", (timeout.join, timeout.last_call, timeout.close, timeout.heartbeat))
    mentions("timeout", lambda: RendezvousTimeout(join=timedelta(0)), "join timeout", "positive")
    settings = RendezvousSettings("run", 1, 2, timeout, SHORT, 3)
    show("settings", (settings.run_id, settings.keep_alive_interval, settings.timeout is timeout))
    show("port", DEFAULT_PORT)
    for endpoint in ("", None, "host", "host:5", "[::1]:6", "::1", " host:7 "):
        attempt(f"endpoint {endpoint}", lambda e=endpoint: parse_rendezvous_endpoint(e, 29))
    for endpoint in ("host:port", "host:", "host:99999"):
        words = f"port number of the rendezvous endpoint '{endpoint}' must be an integer between 0"
        mentions("bad port", lambda e=endpoint: parse_rendezvous_endpoint(e, 29), words)
    for endpoint in (":5", "a b", "a/b:1"):
        words = f"hostname of the rendezvous endpoint '{endpoint}' must be a dot-separated list"
        mentions("bad host", lambda e=endpoint: parse_rendezvous_endpoint(e, 29), words)
    show("config", _parse_rendezvous_config(" a=1, b = c=d "))
    mentions("no value", lambda: _parse_rendezvous_config("a"), "option 'a' must have a value")
    mentions("no key", lambda: _parse_rendezvous_config("=1"), "configuration string must be in")


# --- Handlers -------------------------------------------------------------------------------------


class OwnHandler(RendezvousHandler):
    def __init__(self, params):
        self.node, self.is_host, self.params = 3, "no", params

    def get_backend(self):
        return "own"

    def next_rendezvous(self):
        return RendezvousInfo(dist.HashStore(), 0, 1, RendezvousStoreInfo("host", 1))

    def is_closed(self):
        return True

    def set_closed(self):
        raise RendezvousStateError("of its own")

    def num_nodes_waiting(self):
        return 0

    def get_run_id(self):
        return self.params.run_id

    def shutdown(self):
        return True


class OwnBackend(RendezvousBackend):
    def __init__(self, tells=True):
        self.cell: tuple[bytes, Token] | None = None
        self.lock, self.tells = threading.Lock(), tells

    @property
    def name(self):
        return "own"

    def get_state(self):
        return self.cell

    def set_state(self, state, token=None):
        with self.lock:
            was_set = token is (self.cell[1] if self.cell else None)
            if was_set:
                self.cell = (state, object())
            return (*self.cell, was_set) if self.tells else None


def registry():
    creator: RendezvousHandlerCreator = OwnHandler
    own = RendezvousHandlerRegistry()
    own.register("own", creator)
    own.register("own", creator)
    params = RendezvousParameters("own", "", "run", 1, 1)
    handler = own.create_handler(params)
    info = handler.next_rendezvous()
    show(
        "own", (handler.node, handler.is_host, handler.use_agent_store, info.rank, info.world_size)
    )
    show("own store", info.bootstrap_store_info == RendezvousStoreInfo("host", 1))
    mentions("own error", handler.set_closed, "of its own")
    mentions("twice", lambda: own.register("own", len), "backend 'own' cannot be registered with")
    mentions("nameless", lambda: own.register("", creator), "name must be a non-empty string")
    other = RendezvousParameters("other", "", "run", 1, 1)
    mentions("unknown", lambda: own.create_handler(other), "backend 'other' is not registered")
    own.register("other", creator)
    mentions("mismatch", lambda: own.create_handler(other), "'own' does not match the requested")
    show("the registry", isinstance(rendezvous_handler_registry, RendezvousHandlerRegistry))
    show("the same", rendezvous.RendezvousError is RendezvousError is ErrorOfApi)


def meet(title, handlers):
    """Forms a round, and shows what the nodes see, in the order of ranks."""
    infos, threads = [], []
    for handler in handlers:
        threads.append(threading.Thread(target=lambda h=handler: infos.append(h.next_rendezvous())))
        threads[-1].start()
    for thread in threads:
        thread.join()
    infos.sort(key=lambda info: info.rank)
    show(f"{title} ranks", [(info.rank, info.world_size) for info in infos])
    infos[0].store.set("key", title)
    show(f"{title} store", {info.store.get("key") for info in infos})
    masters = {info.bootstrap_store_info.master_addr for info in infos}
    show(f"{title} master", masters)
    return infos


def dynamic(tcp, path):
    second = timedelta(seconds=1)
    timeout = RendezvousTimeout(timedelta(seconds=30), second, 5 * second, 5 * second)
    backends = [OwnBackend()] * 2
    for title, pair in (
        ("own", backends),
        ("c10d", [C10dRendezvousBackend(tcp.clone(), "dynamic") for _ in range(2)]),
    ):
        handlers = [
            DynamicRendezvousHandler.from_backend(
                run_id=f"run {title}",
                store=tcp.clone(),  # a waiting thread blocks others on the same object
                backend=backend,
                min_nodes=2,
                max_nodes=2,
                local_addr=ADDRESS,
                timeout=timeout,
                keep_alive_interval=1,
                keep_alive_max_attempt=5,
            )
            for backend in pair
        ]
        show(f"{title} settings", handlers[0].settings.timeout.last_call)
        meet(title, handlers)
        show(f"{title} waiting", [handler.num_nodes_waiting() for handler in handlers])
        handlers[0].set_closed()
        show(f"{title} closed", (handlers[0].is_closed(), handlers[0].get_run_id()))
        attempt(f"{title} join closed", handlers[0].next_rendezvous)
        show(f"{title} ends", [handler.shutdown() for handler in handlers])
        show(f"{title} agent store", handlers[0].use_agent_store)
    state = C10dRendezvousBackend(dist.HashStore(), "state")
    show("state", (state.name, state.get_state()))
    written, token, was_set = state.set_state(b"one")
    show("state 1", (written, was_set, state.get_state() == (written, token)))
    show("state 2", state.set_state(b"two", "no token")[2])
    show("state 3", state.set_state(b"two", token)[::2])

    params = RendezvousParameters(
        "c10d", f"{ADDRESS}:0", "made", 1, 1, ADDRESS, is_host=True, last_call_timeout=1, x=object()
    )
    backend, store = create_backend(params)
    handler = create_handler(store, backend, params)
    show("made", (handler.get_backend(), type(store).__name__, handler.settings.run_id))
    meet("made", [handler])
    handler.shutdown()
    file = RendezvousParameters("c10d", path, "file", 1, 1, ADDRESS, store_type="file")
    handler = get_rendezvous_handler(file)
    meet("file", [handler])
    handler.shutdown()
    mentions(
        "store type",
        lambda: get_rendezvous_handler(
            RendezvousParameters("c10d", "x", "run", 1, 1, store_type="no")
        ),
        "file",
        "tcp",
    )
    attempt(
        "read timeout",
        lambda: get_rendezvous_handler(
            RendezvousParameters("c10d", "localhost:0", "run", 1, 1, is_host=True, read_timeout=-1)
        ),
    )


def errors(tcp):
    second = timedelta(seconds=1)
    lonely = DynamicRendezvousHandler.from_backend(
        "lonely", tcp, OwnBackend(), 2, 2, ADDRESS, RendezvousTimeout(second, second, second)
    )
    for error in (RendezvousTimeoutError, RendezvousError, Exception):
        try:
            lonely.next_rendezvous()
        except error as caught:
            show("lonely", isinstance(caught, RendezvousTimeoutError))
    for error in (
        RendezvousClosedError,
        RendezvousConnectionError,
        RendezvousGracefulExitError,
        RendezvousStateError,
        RendezvousTimeoutError,
    ):
        show(
            error.__name__, [issubclass(error, x) for x in (RendezvousError, RuntimeError, OSError)]
        )
    show("root", RendezvousError("x", 1).args)

    class Broken(OwnBackend):
        def get_state(self):
            raise RendezvousConnectionError("out of reach")

        def set_state(self, state, token=None):
            raise RendezvousConnectionError("out of reach")

    broken = DynamicRendezvousHandler.from_backend("run", tcp, Broken(), 1, 1, ADDRESS)
    mentions("broken", broken.next_rendezvous, "out of reach")
    show("broken ends", broken.shutdown())

    class BrokenStore(PythonStore):
        def compare_set(self, key, expected_value, desired_value):
            raise RuntimeError("of the store")

    try:
        C10dRendezvousBackend(BrokenStore(), "run")
    except RendezvousConnectionError as error:
        show("cause", (type(error.__cause__).__name__, str(error.__cause__)))


def static():
    server = dist.TCPStore(ADDRESS, 0, is_master=True)
    port = server.port
    del server
    handlers = [
        StaticTCPRendezvous(ADDRESS, port, 0, 2, "static", 30),
        create_rdzv_handler(
            RendezvousParameters("static", f"{ADDRESS}:{port}", "static", 2, 2, rank=1, timeout=30)
        ),
    ]
    for handler in handlers:
        show("static", (handler.rank, handler.world_size, handler.timeout, handler.run_id))
        show("static at", (handler.master_addr, handler.master_port == port))
    meet("static", handlers)
    show("static is", (handlers[0].get_backend(), handlers[0].use_agent_store))
    handlers[0].set_closed()
    show("static closed", (handlers[0].is_closed(), handlers[0].num_nodes_waiting()))
    show("static ends", [handler.shutdown() for handler in handlers])
    mentions(
        "no rank",
        lambda: create_rdzv_handler(RendezvousParameters("static", "host:1", "run", 1, 1)),
        "rank",
    )
    mentions(
        "no port",
        lambda: create_rdzv_handler(RendezvousParameters("static", "host", "run", 1, 1, rank=0)),
        "port",
    )


def store_info():
    store = dist.HashStore()
    built = RendezvousStoreInfo.build(0, store, "host", 29)
    show("built", built)
    show("read", RendezvousStoreInfo.build(1, store, "other") == built)
    show("keys", (store.get(RendezvousStoreInfo.MASTER_ADDR_KEY), store.get("MASTER_PORT")))
    own = RendezvousStoreInfo.build(rank=0, store=dist.HashStore(), local_addr=None)
    show("chosen", (bool(own.master_addr), own.master_port > 0))
    info = RendezvousInfo(store, 1, 2, built)
    show("info", (info.store is store, info.rank, info.world_size, info.bootstrap_store_info))


def main(folder):
    tcp = stores(f"{folder}/store")
    parameters()
    registry()
    store_info()
    dynamic(tcp, f"{folder}/rendezvous")
    errors(tcp)
    static()


if __name__ == "__main__":
    import sys

    main(sys.argv[1])
