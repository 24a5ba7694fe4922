# Made by python/make_stubs from native/*.cc: change it there.
"""
The native core of muster; its names are found in muster and muster.rendezvous.
"""

import datetime
import enum
import os
import typing
from collections.abc import Callable, Sequence

class DistError(RuntimeError):
    """Root of all errors of muster's own."""

class DistNetworkError(DistError):
    """
    No connection, or it broke. A TCPStore that has raised this is of no further
    use; clone() makes a fresh connection.
    """

class DistStoreError(DistError):
    """A store could not do what it was asked."""

class StoreTimeoutError(DistStoreError):
    """
    A key, an element or the others at a barrier did not come in time. The store is still
    usable.
    """

class QueueEmptyError(DistStoreError):
    """Nothing to pop."""

class RendezvousError(Exception):
    """Root of the errors of a rendezvous."""

class RendezvousClosedError(RendezvousError):
    """The rendezvous is closed."""

class RendezvousTimeoutError(RendezvousError):
    """The rendezvous did not complete in time."""

class RendezvousConnectionError(RendezvousError):
    """The backend cannot be reached."""

class RendezvousStateError(RendezvousError):
    """The shared state is not what it should be."""

class RendezvousGracefulExitError(RendezvousError):
    """The node left, as it was asked to."""

def get_free_port() -> int:
    """
    A TCP port that was free a moment ago. Where nobody may take it meanwhile, use
    get_socket_with_port() and pass the socket on.
    """

def listen_on_free_port() -> int:
    """
    The descriptor of a socket that listens on a free port; whoever gets it closes it.
    """

class Store:
    """
    A map from keys to values that a group of processes shares in order to find each other.

    Keys and values are str or bytes; values come back as bytes. Calls that wait let other
    threads run, and end with KeyboardInterrupt on Ctrl-C; the store can be used afterwards.
    One object may be used from several threads, one call at a time runs on it: see clone().

    Classes may be derived from it, and given to all that takes a Store. They define set, get,
    add, compare_set, check, wait, delete_key and what else is to be used of them; append,
    multi_get, multi_set, barrier, timeout and set_timeout are there, made of the others.

    All that takes a Store takes torch.distributed's stores, too.
    """

    def __init__(self) -> None: ...
    def set(self, key: str | bytes, value: str | bytes) -> None:
        """
        Creates or overwrites a value, and wakes everybody who waits for the key.
        """

    def get(self, key: str | bytes) -> bytes:
        """
        Waits for the key, then returns its value.

        Raises StoreTimeoutError (a DistStoreError) if it does not come within `timeout`.
        """

    def add(self, key: str | bytes, value: int) -> int:
        """
        Adds to a counter, atomically, and returns the sum. A key that is not there counts as
        0; the counter is kept as decimal text.
        """

    def compare_set(
        self, key: str | bytes, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """
        If the value is `expected_value`, it becomes `desired_value`; an empty expectation
        also means a key that is not there. Returns the value afterwards. If there is none,
        because another one was expected, `expected_value` itself is returned.
        """

    def check(self, keys: Sequence[str | bytes]) -> bool:
        """Whether all keys are there. Does not wait."""

    def wait(
        self, keys: Sequence[str | bytes], timeout: datetime.timedelta | float | None = None
    ) -> None:
        """
        Waits until all keys are there: for at most `timeout` (a timedelta or seconds; zero:
        without limit), or the store's own. Raises StoreTimeoutError after that.
        """

    def delete_key(self, key: str | bytes) -> bool:
        """
        Removes a value. Whether there was one; a FileStore cannot tell and says True.
        """

    def num_keys(self) -> int:
        """
        How many values there are in the whole store, some of its own included.
        """

    def list_keys(self) -> list[str]:
        """All keys that have values, in no particular order."""

    def append(self, key: str | bytes, value: str | bytes) -> None:
        """Adds to the end of a value, or creates it."""

    def multi_get(self, keys: Sequence[str | bytes]) -> list[bytes]:
        """Waits for all keys, then returns their values in the order given."""

    def multi_set(self, keys: Sequence[str | bytes], values: Sequence[str | bytes]) -> None:
        """Sets each key to the value at the same place."""

    def queue_push(self, key: str | bytes, value: str | bytes) -> None:
        """
        Puts an element at the end of a queue. Queues are apart from values; a FileStore has
        none: NotImplementedError.
        """

    def queue_pop(self, key: str | bytes, block: bool = True) -> bytes:
        """
        Takes the oldest element of a queue. Waits for one; with block=False raises
        QueueEmptyError instead.
        """

    def queue_len(self, key: str | bytes) -> int:
        """How many elements a queue has."""

    def barrier(
        self, key: str | bytes, world_size: int, timeout: datetime.timedelta | float | None = None
    ) -> None:
        """
        Returns when `world_size` participants have called it with this key; a key serves
        once. Raises StoreTimeoutError if they do not come within `timeout`, or the store's.
        """

    def clone(self) -> Store:
        """
        Another handle on the same data, for a thread of its own: a call that waits holds up
        the other calls on the same object.
        """

    def has_extended_api(self) -> bool:
        """
        Whether append, multi_get and multi_set are one operation each. They work in any
        case.
        """

    def set_timeout(self, timeout: datetime.timedelta | float) -> None:
        """Sets `timeout`: a timedelta, or seconds. Zero: without limit."""

    @property
    def timeout(self) -> datetime.timedelta:
        """
        How long get, multi_get and queue_pop may wait, and wait and barrier where
        they are not told otherwise.
        """

class TCPStore(Store):
    """
    A client of a store server: of a StoreServer, of torch's TCPStore, or of its own.

    With is_master=True the server is started here, on `port` (0: any that is free; the
    attribute `port` tells), and lives as long as this object. With multi_tenant=True it is
    shared with other TCPStores of this process on the same port; master_listen_fd is a socket
    that is already bound, and is taken over.

    With a world_size each TCPStore counts itself in, and the one with the server returns only
    when all are there, unless wait_for_workers=False. `timeout` limits connecting, and is the
    store's timeout afterwards. There is one server: use_libuv changes nothing.

    Raises DistNetworkError if nobody answers, StoreTimeoutError if the others do not come.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: datetime.timedelta | float | None = datetime.timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool | None = True,
    ) -> None: ...
    @property
    def host(self) -> str:
        """The server's host, as it was given."""

    @property
    def port(self) -> int:
        """The server's port."""

    @property
    def is_master(self) -> bool:
        """Whether the server lives in this object."""

    @property
    def libuvBackend(self) -> bool:
        """The argument use_libuv; there is one kind of server."""

    def __repr__(self) -> str: ...

class FileStore(Store):
    """
    A store in a file that processes share, also with torch's FileStore.

    The file is made if it is not there. With a world_size of 0 or more it is removed when the
    last of (at least) that many FileStores on it is gone; otherwise it stays.
    """

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None: ...
    @property
    def path(self) -> str:
        """The file."""

    def __repr__(self) -> str: ...

class HashStore(Store):
    """A store inside this process, for its threads."""

    def __init__(self) -> None: ...
    def __repr__(self) -> str: ...

class PrefixStore(Store):
    """
    A part of another store: key "k" under prefix "p" is "p/k" there. The timeout is that
    of the other store, num_keys() counts all that is in it.
    """

    def __init__(self, prefix: str, store: Store) -> None: ...
    @property
    def prefix(self) -> str:
        """What its keys begin with."""

    @property
    def underlying_store(self) -> Store:
        """The other store."""

    @property
    def underlying_non_prefix_store(self) -> Store:
        """The innermost store that is not a PrefixStore."""

    @property
    def _underlying_non_prefix_store(self) -> Store:
        """The same, by torch's name."""

    def __repr__(self) -> str: ...

class EtcdStore(Store):
    """
    A store in a cluster of etcd (v3), which survives any machine of the job.

    `endpoint` is "etcd://h1:2379,h2:2379/prefix", the same with http:// or https:// (TLS),
    "user:password@" before the hosts, plain "h1:2379,h2", or a list of such hosts. What is
    given by name counts more: protocol ("http", "https"), cacert, cert and key (files),
    user, password, and the prefix of all its keys ("/muster/store"). `timeout` limits
    connecting, and is the store's timeout afterwards.

    One object serves many threads at a time. Raises DistNetworkError if no endpoint answers.
    """

    def __init__(
        self,
        endpoint: str | Sequence[str] = "localhost:2379",
        *,
        protocol: str | None = None,
        cacert: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        user: str | None = None,
        password: str | None = None,
        prefix: str | None = None,
        timeout: datetime.timedelta | float | None = datetime.timedelta(seconds=300),
    ) -> None: ...
    @property
    def prefix(self) -> str:
        """Of all its keys in etcd."""

    def __repr__(self) -> str: ...

class StoreServer:
    """
    The server that TCPStores connect to, muster's and torch's, and that runs the rendezvous of
    the backend "muster". It serves on threads of its own until close(), or the end of a
    `with` block.

    `host` is the address to listen on (empty: all), `port` 0 any that is free, `threads` 0 one
    for each core; `listen_fd` is a bound socket to use instead, which is taken over. A client
    that exceeds one of the limits is disconnected: sizes in bytes, times as timedelta or
    seconds. Raises DistNetworkError if it cannot listen.
    """

    def __init__(
        self,
        host: str = "",
        port: int = 0,
        *,
        threads: int = 0,
        listen_fd: int | None = None,
        key_bytes_max: int | None = 8192,
        value_bytes_max: int | None = 8388608,
        keys_per_request_max: int | None = 131072,
        request_bytes_max: int | None = 268435456,
        reply_bytes_max: int | None = 268435456,
        queued_reply_bytes_max: int | None = 1048576,
        store_bytes_max: int | None = None,
        handshake_max: datetime.timedelta | float | None = 30,
        stall_max: datetime.timedelta | float | None = 60,
        runs_max: int | None = 10000,
        nodes_per_run_max: int | None = 131072,
        run_kept_max: datetime.timedelta | float | None = 600,
    ) -> None: ...
    @property
    def port(self) -> int:
        """Where it listens."""

    @property
    def address(self) -> str:
        """Where it listens: "[::]:29500"."""

    def close(self) -> None:
        """Ends it, and every connection. Nothing, the second time."""

    def __enter__(self) -> StoreServer: ...
    def __exit__(self, *args: object) -> None: ...
    def __repr__(self) -> str: ...

def barrier(
    store: Store,
    world_size: int,
    key_prefix: str,
    barrier_timeout: datetime.timedelta | float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None,
    trace_timeout: datetime.timedelta | float = 10,
) -> None:
    """
    Returns when `world_size` members have called it with this prefix; a prefix serves
    once. If they do not come in time, StoreTimeoutError says how many came and, where
    all members give their rank, on rank 0 who is missing: by number, or by the name
    that rank_tracing_decoder(rank) gives. trace_timeout limits finding out.
    """

def get_all(store: Store, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """
    The values that `world_size` members have set under prefix + rank, by rank. Rank 0
    returns last: it may be the one that serves the store.
    """

def synchronize(
    store: Store,
    data: str | bytes,
    rank: int,
    world_size: int,
    key_prefix: str,
    timeout: datetime.timedelta | float = 300,
) -> list[bytes]:
    """Every member gives a value and gets those of all, by rank."""

def create_c10d_store(
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: datetime.timedelta | float = 600,
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:
    """
    A TCPStore, with a server if asked for. server_port -1: one that is free, for a
    world of one; `retries` attempts to get it.
    """

class MembershipEvent:
    """What happens to a round while its workers run."""

    def __init__(
        self, kind: Kind, round: int = 0, waiting: int = 0, who: str = "", why: str = ""
    ) -> None: ...

    class Kind(enum.Enum):
        """What happened."""

        MEMBER_LOST = 0
        """A member died or fell silent."""

        NODES_WAITING = 1
        """Nodes wait for the next round."""

        PLACE_LOST = 2
        """The others go on without this node."""

        CLOSED = 3
        """The rendezvous is closed."""

    @property
    def kind(self) -> MembershipEvent.Kind: ...
    @property
    def round(self) -> int: ...
    @property
    def waiting(self) -> int:
        """How many nodes wait for the next round."""

    @property
    def who(self) -> str:
        """The node that was lost, or who closed."""

    @property
    def why(self) -> str: ...
    def __str__(self) -> str: ...
    def __repr__(self) -> str: ...

class WaitReport:
    """Whom a rendezvous is waiting for, and why; str() is one sentence."""

    def __init__(self) -> None: ...

    class Phase(enum.Enum):
        """How far the wait has come."""

        IDLE = 0
        """Nobody is waiting here."""

        CONTACT = 1
        """The backend has not yet said how things stand."""

        FORMING = 2
        """Too few nodes yet."""

        LAST_CALL = 3
        """Enough; more may come until the last call is over."""

        NEXT_ROUND = 4
        """Came late; the members must leave their round."""

        SPARE = 5
        """The round is full."""

        BOOTSTRAP = 6
        """Rank 0 has yet to say where its store is."""

        COMPLETE = 7
        """In a round."""

        CLOSED = 8

    @property
    def phase(self) -> WaitReport.Phase: ...
    @property
    def run_id(self) -> str: ...
    @property
    def round(self) -> int: ...
    @property
    def min_nodes(self) -> int: ...
    @property
    def max_nodes(self) -> int: ...
    @property
    def here(self) -> int:
        """Nodes in the round."""

    @property
    def joined(self) -> list[str]:
        """Them, or the first of them, in rank order."""

    @property
    def waiting(self) -> list[str]:
        """For the next round."""

    @property
    def spares(self) -> list[str]: ...
    @property
    def expected(self) -> list[str]:
        """Known, but not back from the last round."""

    @property
    def silent(self) -> list[str]:
        """Have missed a heartbeat."""

    @property
    def trouble(self) -> str:
        """What keeps this node from its backend."""

    @property
    def first(self) -> str:
        """The round's rank 0, while it is waited for."""

    @property
    def awaited(self) -> int:
        """Nodes that must still come, or leave."""

    @property
    def last_call_left(self) -> datetime.timedelta | None: ...
    @property
    def time_left(self) -> datetime.timedelta | None:
        """Until the waiting call gives up."""

    def __str__(self) -> str: ...
    def __repr__(self) -> str: ...

class RendezvousEvent:
    """One step of a rendezvous."""

    @property
    def name(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def hostname(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def node_state(self) -> str: ...
    @property
    def master_endpoint(self) -> str: ...
    @property
    def rank(self) -> int | None: ...
    @property
    def local_id(self) -> int | None: ...
    @property
    def error_trace(self) -> str: ...
    def to_json(self) -> str:
        """One JSON object."""

    def __str__(self) -> str: ...

def set_event_sink(sink: object | None) -> None: ...

class NativeC10dBackend:
    def __init__(self, store: object | None, run_id: object | None) -> None: ...
    def get_state(self) -> tuple[bytes, typing.Any] | None: ...
    def set_state(self, state: object, token: object) -> tuple[bytes, typing.Any, bool] | None: ...

def create_c10d_backend(params: object) -> tuple[NativeC10dBackend, Store]: ...

class NativeRendezvousHandler:
    def get_backend(self) -> str: ...
    def get_run_id(self) -> str: ...
    def node(self) -> str: ...
    def active_backend(self) -> str: ...
    def is_host(self) -> bool: ...
    def use_agent_store(self) -> bool: ...
    def next_rendezvous(self) -> tuple[typing.Any, ...]: ...
    def is_closed(self) -> bool: ...
    def set_closed(self, reason: object | None) -> None: ...
    def num_nodes_waiting(self) -> int: ...
    def await_event(self, timeout: object | None) -> MembershipEvent | None: ...
    def stop_waiting(self) -> bool: ...
    def leave(self) -> None: ...
    def shutdown(self) -> bool: ...
    def describe_wait(self) -> WaitReport: ...
    def settings(self) -> tuple[typing.Any, ...]: ...
    def cost(self) -> tuple[typing.Any, ...]: ...

def create_rendezvous_handler(params: object) -> NativeRendezvousHandler: ...
def create_dynamic_handler(
    settings: object, store: object, backend: object, local_addr: object
) -> NativeRendezvousHandler: ...
def build_store_info(
    rank: object, store: object, local_addr: object, server_port: object
) -> tuple[str, int]: ...
def parse_rendezvous_endpoint(endpoint: object, default_port: object) -> tuple[str, int]: ...
def parse_rendezvous_config(config_str: object) -> dict[str, str]: ...
def load_etcd() -> None:
    """Makes the backends of etcd known; done by itself where needed."""

__version__: str
