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
    """Base of all of muster's own errors."""

class DistNetworkError(DistError):
    """
    No connection, or it broke. A TCPStore that has raised this cannot be used any
    more; clone() makes a new connection.
    """

class DistStoreError(DistError):
    """A store could not execute a call."""

class StoreTimeoutError(DistStoreError):
    """
    A key, an element or the others at a barrier did not come in time. The store is still
    usable.
    """

class QueueEmptyError(DistStoreError):
    """The queue is empty."""

class RendezvousError(Exception):
    """Base of the errors of a rendezvous."""

class RendezvousClosedError(RendezvousError):
    """The rendezvous is closed."""

class RendezvousTimeoutError(RendezvousError):
    """The rendezvous did not complete in time."""

class RendezvousConnectionError(RendezvousError):
    """The backend cannot be reached."""

class RendezvousStateError(RendezvousError):
    """The backend holds something that is not a rendezvous state."""

class RendezvousGracefulExitError(RendezvousError):
    """
    The rendezvous was closed while this node was a spare: an orderly exit.
    """

def get_free_port() -> int:
    """
    A TCP port that was free a moment ago. If no other process may take it meanwhile,
    use get_socket_with_port() and pass the socket on.
    """

def listen_on_free_port() -> int:
    """
    The descriptor of a socket that listens on a free port; the caller closes it.
    """

class Store:
    """
    A map from keys to values that the processes of a group share to find each other.

    Keys and values are str or bytes; values come back as bytes. Calls that wait let other
    threads run, and end with KeyboardInterrupt on Ctrl-C; the store can be used afterwards.
    Several threads may use one object, which runs one call at a time: see clone().

    Derived classes can be used wherever a Store is expected. They define set, get, add,
    compare_set, check, wait, delete_key, and other operations that they need. The base
    implements append, multi_get, multi_set, barrier, timeout and set_timeout with these.

    Torch's stores can be used wherever a Store is expected, too.
    """

    def __init__(self) -> None: ...
    def set(self, key: str | bytes, value: str | bytes) -> None:
        """Creates or overwrites a value, and wakes all waiters of the key."""

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
        Removes a value. Returns whether there was one; a FileStore always returns True.
        """

    def num_keys(self) -> int:
        """The number of values in the whole store, including some of its own."""

    def list_keys(self) -> list[str]:
        """All keys that have values, in no particular order."""

    def append(self, key: str | bytes, value: str | bytes) -> None:
        """Adds to the end of a value, or creates it."""

    def multi_get(self, keys: Sequence[str | bytes]) -> list[bytes]:
        """Waits for all keys, then returns their values in the order given."""

    def multi_set(self, keys: Sequence[str | bytes], values: Sequence[str | bytes]) -> None:
        """Sets each key to the value at the same position."""

    def queue_push(self, key: str | bytes, value: str | bytes) -> None:
        """
        Appends an element to a queue. Queues are separate from values; a FileStore has
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
        Returns when `world_size` participants have called it with this key; a key works
        once. Raises StoreTimeoutError if they do not come within `timeout`, or the store's.
        """

    def clone(self) -> Store:
        """
        Another handle on the same data, for another thread: a call that waits delays the
        other calls on the same object.
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
        How long get, multi_get and queue_pop may wait; the default of wait and
        barrier.
        """

class TCPStore(Store):
    """
    A client of a store server: of a StoreServer, of torch's TCPStore, or of its own.

    With is_master=True the server is started here, on `port` (0: any that is free; the
    attribute `port` has it), and lives as long as this object. With multi_tenant=True it is
    shared with other TCPStores of this process on the same port; master_listen_fd is a socket
    that is already bound, and that the store then owns.

    With a world_size each TCPStore counts itself, and the one with the server returns only
    when all are there, unless wait_for_workers=False. `timeout` limits connecting, and is the
    store's timeout afterwards. There is one server: use_libuv changes nothing.

    Raises DistNetworkError if no server answers, StoreTimeoutError if the others do not come.
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
        """The server's host, as given."""

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
        """The prefix of its keys."""

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
        """The prefix of all its keys in etcd."""

    def __repr__(self) -> str: ...

class StoreServer:
    """
    The server that TCPStores connect to, muster's and torch's, and that runs the rendezvous of
    the backend "muster". It serves on threads of its own until close(), or the end of a
    `with` block.

    `host` is the address to listen on (empty: all), `port` 0 any that is free, `threads` 0 half
    of the usable cores; `listen_fd` is a bound socket to use instead, which it then owns. A
    client that exceeds one of the limits is disconnected: sizes in bytes, times as timedelta or
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
        """The port on which it listens."""

    @property
    def address(self) -> str:
        """The address on which it listens: "[::]:29500"."""

    def close(self) -> None:
        """Ends it, and every connection. A second call does nothing."""

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
    Returns when `world_size` members have called it with this prefix; a prefix works
    once. If they do not come in time, StoreTimeoutError gives the number that came. If
    all members pass their rank, it names the missing ones on rank 0: by number, or by
    rank_tracing_decoder(rank). trace_timeout limits the time to find these.
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
    """Every member passes a value and gets the values of all, by rank."""

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
    A TCPStore, with a server if requested. server_port -1: a free one, for a world of
    one; `retries` attempts to get it.
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
        """The others continue without this node."""

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
        """The node that was lost, or that closed the rendezvous."""

    @property
    def why(self) -> str: ...
    def __str__(self) -> str: ...
    def __repr__(self) -> str: ...

class WaitReport:
    """Which nodes a rendezvous waits for, and why; str() is one sentence."""

    def __init__(self) -> None: ...

    class Phase(enum.Enum):
        """The phase of the wait."""

        IDLE = 0
        """No call is waiting."""

        CONTACT = 1
        """The backend has not answered yet."""

        FORMING = 2
        """Too few nodes yet."""

        LAST_CALL = 3
        """Enough; more may come until the last call is over."""

        NEXT_ROUND = 4
        """The node came late; the members must leave their round."""

        SPARE = 5
        """The round is full."""

        BOOTSTRAP = 6
        """Rank 0 has not published the address of its store yet."""

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
        """These nodes, or the first of them, in rank order."""

    @property
    def waiting(self) -> list[str]:
        """Nodes that wait for the next round."""

    @property
    def spares(self) -> list[str]: ...
    @property
    def expected(self) -> list[str]:
        """Nodes of the last round that have not joined again."""

    @property
    def silent(self) -> list[str]:
        """Nodes that have missed a heartbeat."""

    @property
    def trouble(self) -> str:
        """The error that separates this node from its backend."""

    @property
    def first(self) -> str:
        """The round's rank 0, while the call waits for it."""

    @property
    def awaited(self) -> int:
        """Nodes that must still come, or leave."""

    @property
    def last_call_left(self) -> datetime.timedelta | None: ...
    @property
    def time_left(self) -> datetime.timedelta | None:
        """Time until the waiting call times out."""

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
    """Registers the backends of etcd; called automatically where needed."""

__version__: str
