"""The peers that tests connect with each other. Every operation has a deadline.

Importing this does not import torch, so that conftest.py can report a missing torch.
"""

import contextlib
import ctypes
import datetime
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent

# Enough for a sanitized server on a busy machine; reached only by a failing test.
PATIENCE_S = 30.0
# A cold import of torch reads hundreds of megabytes.
IMPORT_S = 120.0

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
POLL_SYSCALLS = {"7", "271"}  # poll and ppoll on x86-64


def eventually(condition, what: str, patience_s: float = PATIENCE_S):
    """Waits until `condition()` is true, and returns its value; fails with `what` when the time is up."""
    give_up = time.monotonic() + patience_s
    while True:
        outcome = condition()
        if outcome:
            return outcome
        assert time.monotonic() < give_up, f"not within {patience_s:g} s: {what}"
        time.sleep(0.002)


def ms(milliseconds: float) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=milliseconds)


def connect(server, timeout_s: float = PATIENCE_S, connect_s: float = PATIENCE_S, **options):
    """A torch client. By default it does not wait for workers, and is not counted as one."""
    import torch.distributed as dist

    options.setdefault("wait_for_workers", False)
    host = options.pop("host", server.host)
    store = dist.TCPStore(host, server.port, timeout=ms(connect_s * 1000), **options)
    store.set_timeout(ms(timeout_s * 1000))
    return store


def die_with_parent() -> None:
    """Called by a child: it dies with the tests, even if they are killed."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def required(variable: str) -> str:
    """The program that the environment variable names: the one from the build under test."""
    path = os.environ.get(variable, "")
    assert os.access(path, os.X_OK), f"{variable} must name a program that can be run, not '{path}'"
    return path


class LineReader:
    """Lines from a child's output, with a deadline for each."""

    def __init__(self, stream):
        self._fd = stream.fileno()
        self._stream = stream  # keeps the descriptor open
        self._buffer = b""

    def line(self, patience_s: float = PATIENCE_S) -> str:
        give_up = time.monotonic() + patience_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, give_up - time.monotonic()))
            assert ready, f"no line within {patience_s:g} s; so far {self._buffer!r}"
            more = os.read(self._fd, 65536)
            assert more, f"the output ended; its last words were {self._buffer!r}"
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()


class Child:
    """A child process. It never outlives the test, and its stderr is shown if it fails."""

    def __init__(self, command, log: pathlib.Path, **environment: str):
        self._log = log
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                preexec_fn=die_with_parent,
            )
        self.output = LineReader(self.process.stdout)

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, line: str) -> None:
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, line: str, patience_s: float = PATIENCE_S) -> str:
        self.say(line)
        return self.output.line(patience_s)

    def errors(self) -> str:
        return self._log.read_text(errors="replace")

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """The exit status, once it has ended by itself."""
        try:
            return self.process.wait(patience_s)
        finally:
            self.end()

    def end(self) -> None:
        """Ends it; when this returns it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class MusterServer:
    """`muster serve` in a process of its own."""

    def __init__(self, directory: pathlib.Path, listen: str = "127.0.0.1:0", *options: str):
        self._port_file = directory / f"port-{time.monotonic_ns()}"
        command = [
            required("MUSTER_BIN"),
            "serve",
            "--listen",
            listen,
            "--port-file",
            self._port_file,
            *options,
        ]
        self.child = Child(command, self._port_file.with_suffix(".log"))
        try:
            self.announced = self.child.output.line()
            self.port = int(self._port_file.read_text())
        except BaseException as failure:
            self.child.end()
            raise AssertionError(f"muster serve did not start: {self.child.errors()}") from failure
        self.host = "127.0.0.1"
        self._running = True

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def stop(self) -> None:
        """SIGTERM ends it at once, with status 0 and without leftovers, whichever clients are connected."""
        if not self._running:
            return
        self._running = False
        self.child.process.send_signal(signal.SIGTERM)
        status = self.child.ended()
        assert status == 0, f"muster serve ended with status {status}: {self.child.errors()}"
        assert not self._port_file.exists(), "muster serve left its port file behind"

    def crash(self) -> None:
        """SIGKILL, as if the machine had lost the process."""
        self._running = False
        self.child.end()


class TorchServer:
    """PyTorch's server inside this process, on a thread of its own."""

    def __init__(self, use_libuv: bool = True):
        import torch_server

        self._store = torch_server.start(use_libuv)
        self.host = "127.0.0.1"
        self.port = self._store.port

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def stop(self) -> None:
        self._store = None

    crash = stop


class TorchServerProcess:
    """PyTorch's server in a process of its own, as a peer of muster's command line."""

    def __init__(self, directory: pathlib.Path, *arguments: str):
        log = directory / f"torch-server-{time.monotonic_ns()}.log"
        self.child = Child([sys.executable, "-B", HERE / "torch_server.py", *arguments], log)
        line = self.child.output.line(IMPORT_S)
        self.host, self.port = "127.0.0.1", int(line.removeprefix("PORT="))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def stop(self) -> None:
        self.child.process.stdin.close()
        status = self.child.ended()
        assert status == 0, f"torch_server.py ended with status {status}: {self.child.errors()}"


class Background:
    """A call on a thread of its own. Its result is awaited with a deadline."""

    def __init__(self, call, *arguments, **keywords):
        self._outcome = None
        self._failure = None
        self._thread = threading.Thread(
            target=self._run, args=(call, arguments, keywords), daemon=True
        )
        self._thread.start()

    def _run(self, call, arguments, keywords):
        try:
            self._outcome = call(*arguments, **keywords)
        except BaseException as failure:  # result() raises it
            self._failure = failure

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, patience_s: float = PATIENCE_S):
        self._thread.join(patience_s)
        assert not self._thread.is_alive(), f"the call has not returned within {patience_s:g} s"
        if self._failure is not None:
            raise self._failure
        return self._outcome

    def _in_poll(self) -> bool:
        try:
            syscall = pathlib.Path(f"/proc/self/task/{self._thread.native_id}/syscall").read_text()
        except FileNotFoundError:
            return False
        return syscall.split()[0] in POLL_SYSCALLS

    def parked(self, store, server) -> "Background":
        """Returns once the call waits for an answer that `server` owes it."""
        eventually(
            lambda: self._in_poll() and unread_bytes(server.port, local_port(store)) == 0,
            "the call is parked at the server",
        )
        return self


def local_port(store) -> int:
    """The client's own port. Torch prints it, but wrongly where no name server answers."""
    descriptor = int(re.search(r"client=TCPClient\(SocketImpl\(fd=(\d+),", repr(store)).group(1))
    with socket.socket(fileno=os.dup(descriptor)) as same:
        return same.getsockname()[1]


def unread_bytes(server_port: int, client_port: int) -> int:
    """Bytes that the kernel holds for the server on that connection; -1 if there is no such connection."""
    # A row: local address:port, remote address:port, state, bytes to send:bytes to read, ...
    row = re.compile(rf":{server_port:04X} \w+:{client_port:04X} \w+ \w+:(\w+)")
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        found = row.search(pathlib.Path(table).read_text())
        if found:
            return int(found.group(1), 16)
    return -1


class RawClient:
    """Raw protocol messages (docs/reference/protocol.md), for what torch's client never does."""

    VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)

    def __init__(self, server, validate: bool = True):
        self.socket = socket.create_connection((server.host, server.port), timeout=PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if validate:
            self.send(self.VALIDATE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Closes with RST instead of FIN, as after a crash of the machine."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, *pieces: bytes) -> None:
        self.socket.sendall(b"".join(pieces))

    def receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            more = self.socket.recv(size - len(received))
            assert more, f"the server hung up after {received!r}"
            received += more
        return received

    def receive_blob(self) -> bytes:
        (size,) = struct.unpack("<Q", self.receive(8))
        return self.receive(size)

    def receive_int(self) -> int:
        return struct.unpack("<q", self.receive(8))[0]

    def ping(self) -> None:
        """Returns when everything sent before has been executed. A parked WAIT does not delay it."""
        nonce = os.urandom(4)
        self.send(b"\x0d", nonce)
        assert self.receive(4) == nonce

    def hung_up(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


def blob(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


def quoted(content: bytes) -> str:
    """An argument for file_store_peer: percent-encoded, and '%' alone for an empty one."""
    return urllib.parse.quote_from_bytes(content, safe="") or "%"


def unquoted(word: str) -> bytes:
    return b"" if word == "%" else urllib.parse.unquote_to_bytes(word)


class FilePeer:
    """muster's FileStore in its own process (file_store_peer.cc), with the methods of torch's."""

    class Error(Exception):
        """The peer's exception."""

    def __init__(self, directory: pathlib.Path, path: pathlib.Path, *world_size: int):
        log = directory / f"file-peer-{time.monotonic_ns()}.log"
        self.child = Child([required("MUSTER_FILE_STORE_PEER"), path, *world_size], log)
        self.num_keys()  # the constructor is finished when it answers

    def _ask(self, operation: str, *words: str) -> str:
        answer = self.child.ask(" ".join((operation, *words)))
        if answer.startswith("! "):
            raise self.Error(answer[2:])
        return answer

    @staticmethod
    def _bytes(text) -> bytes:
        return text if isinstance(text, bytes) else text.encode()

    def _quoted(self, *texts) -> list[str]:
        return [quoted(self._bytes(text)) for text in texts]

    def set(self, key, value) -> None:
        assert self._ask("set", *self._quoted(key, value)) == "ok"

    def get(self, key) -> bytes:
        return unquoted(self._ask("get", *self._quoted(key)))

    def add(self, key, delta: int) -> int:
        return int(self._ask("add", *self._quoted(key), str(delta)))

    def compare_set(self, key, expected, desired) -> bytes:
        return unquoted(self._ask("cas", *self._quoted(key, expected, desired)))

    def delete_key(self, key) -> bool:
        return self._ask("del", *self._quoted(key)) == "true"

    def check(self, keys) -> bool:
        return self._ask("check", *self._quoted(*keys)) == "true"

    def append(self, key, suffix) -> None:
        assert self._ask("append", *self._quoted(key, suffix)) == "ok"

    def num_keys(self) -> int:
        return int(self._ask("num"))

    def list_keys(self) -> list[bytes]:
        return [unquoted(word) for word in self._ask("keys").split()]

    def set_timeout_ms(self, timeout_ms: int) -> None:
        assert self._ask("timeout", str(timeout_ms)) == "ok"

    def quit(self) -> None:
        """Destroys the store and ends the process."""
        self.child.say("quit")
        status = self.child.ended()
        assert status == 0, f"file_store_peer ended with status {status}: {self.child.errors()}"
