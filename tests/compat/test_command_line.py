"""`muster store` as a client of PyTorch's server, every operation; torch's client checks the results."""

import itertools
import json
import random
import re
import socket
import subprocess
import time

import pytest

from peers import (
    PATIENCE_S,
    Background,
    Child,
    TorchServer,
    TorchServerProcess,
    connect,
    die_with_parent,
    eventually,
    required,
)

TIMED_OUT, NO_SERVER, FAILED, USAGE = 3, 4, 1, 2


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """PyTorch's server, in a process of its own. Tests share it, and use keys of their own."""
    server = TorchServerProcess(tmp_path_factory.mktemp("peer"))
    yield server
    server.stop()


@pytest.fixture
def witness(peer):
    """Torch's client of the same server."""
    return connect(peer)


NUMBERS = itertools.count()


@pytest.fixture
def key():
    """A name that no other test uses."""
    return f"test{next(NUMBERS)}"


class Result:
    def __init__(self, finished: subprocess.CompletedProcess):
        self.status = finished.returncode
        self.bytes = finished.stdout
        self.text = finished.stdout.decode(errors="replace").removesuffix("\n")
        self.errors = finished.stderr.decode(errors="replace")

    def __repr__(self):
        return f"status {self.status}: {self.text!r} {self.errors!r}"


def muster(server, *words, options=(), stdin: bytes = b"") -> Result:
    command = [required("MUSTER_BIN"), "store", "--server", server.address, *options, *words]
    return Result(
        subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            preexec_fn=die_with_parent,
        )
    )


def done(server, *words, **more) -> str:
    """Its output, after it succeeded without a message on stderr."""
    result = muster(server, *words, **more)
    assert result.status == 0 and not result.errors, result
    return result.text


def test_set_and_get_agree_with_torch(peer, witness, key):
    assert done(peer, "set", key, "value with spaces") == "ok"
    assert witness.get(key) == b"value with spaces"
    witness.set(key, "from torch")
    assert done(peer, "get", key) == "from torch"
    witness.set(key, "")
    assert done(peer, "get", key) == ""


def test_values_of_any_bytes_go_in_and_out(peer, witness, key):
    everything = bytes(range(256)) * 300
    assert done(peer, "set", key, "-", stdin=everything) == "ok"
    assert witness.get(key) == everything
    assert muster(peer, "get", key).bytes == everything + b"\n"
    assert done(peer, "append", key, "-", stdin=b"\0\xff") == "ok"
    assert witness.get(key) == everything + b"\0\xff"


def test_the_largest_value_goes_in_and_out(peer, witness, key):
    value = b"0123456789abcdef" * (8 * 1024 * 1024 // 16)
    assert done(peer, "set", key, "-", stdin=value) == "ok"
    assert witness.get(key) == value
    assert muster(peer, "get", key).bytes == value + b"\n"
    too_large = muster(peer, "set", key, "-", stdin=value + b"!")
    assert too_large.status == USAGE and "8388608" in too_large.errors
    assert witness.get(key) == value


def test_values_and_keys_may_start_with_a_minus(peer, witness, key):
    assert done(peer, "set", "--", f"-{key}", "-5") == "ok"
    assert witness.get(f"-{key}") == b"-5"
    assert done(peer, "add", "--", f"-{key}", "-2") == "-7"
    assert done(peer, "delete", "--", f"-{key}") == "true"


def test_add_agrees_with_torch(peer, witness, key):
    assert done(peer, "add", key) == "1"
    assert witness.add(key, 10) == 11
    assert done(peer, "add", "--", key, "-12") == "-1"
    assert witness.get(key) == b"-1"
    assert done(peer, "add", key, "9223372036854775807") == "9223372036854775806"


def test_add_to_what_is_no_number_is_refused_by_the_server(peer, witness, key):
    witness.set(key, "abc")
    result = muster(peer, "add", key)
    assert result.status == FAILED and "not a number" in result.errors, result
    assert witness.get(key) == b"abc"


def test_cas_agrees_with_torch(peer, witness, key):
    assert done(peer, "cas", key, "wrong", "new") == "wrong"
    assert witness.check([key]) is False
    assert done(peer, "cas", key, "", "first") == "first"
    assert done(peer, "cas", key, "", "second") == "first"
    assert witness.compare_set(key, "first", "second") == b"second"
    assert done(peer, "cas", key, "second", "third") == "third"
    assert witness.get(key) == b"third"


def test_check_and_delete_agree_with_torch(peer, witness, key):
    witness.set(f"{key}/a", "")
    assert done(peer, "check", f"{key}/a") == "true"
    assert done(peer, "check", f"{key}/a", f"{key}/b") == "false"
    assert done(peer, "delete", f"{key}/a") == "true"
    assert done(peer, "delete", f"{key}/a") == "false"
    assert witness.check([f"{key}/a"]) is False


def test_count_and_keys_agree_with_torch(peer, witness, key):
    for name in ("b", "a", "ключ"):
        witness.set(f"{key}/{name}", "")
    assert done(peer, "count") == str(witness.num_keys())
    assert done(peer, "keys", f"{key}/").split("\n") == [f"{key}/a", f"{key}/b", f"{key}/ключ"]
    assert sorted(done(peer, "keys").split("\n")) == sorted(witness.list_keys())


def test_append_agrees_with_torch(peer, witness, key):
    assert done(peer, "append", key, "po") == "ok"
    witness.append(key, "ta")
    witness.num_keys()  # an answer: what was sent before has been executed
    witness.num_keys()
    assert done(peer, "append", key, "to") == "ok"
    assert witness.get(key) == b"potato"


def test_queues_agree_with_torch(peer, witness, key):
    assert done(peer, "len", key) == "0"
    assert done(peer, "push", key, "1") == "ok"
    witness.queue_push(key, "2")
    witness.num_keys()  # an answer: what was sent before has been executed
    assert witness.queue_len(key) == 2
    assert done(peer, "len", key) == "2"
    assert witness.queue_pop(key) == b"1"
    assert done(peer, "pop", key) == "2"
    empty = muster(peer, "pop", key, "now")
    assert empty.status == FAILED and "empty" in empty.errors, empty


def test_get_waits_for_what_torch_sets(peer, witness, key):
    getting = Background(done, peer, "get", key)
    witness.set(key, "at last")
    assert getting.result() == "at last"


def test_wait_waits_for_all_keys(peer, witness, key):
    keys = [f"{key}/{number}" for number in range(3)]
    waiting = Background(done, peer, "wait", *keys)
    for name in keys:
        witness.set(name, "")
    assert waiting.result() == "ok"


def test_pop_waits_for_what_torch_pushes(peer, witness, key):
    popping = Background(done, peer, "pop", key)
    witness.queue_push(key, "element")
    witness.num_keys()  # an answer: what was sent before has been executed
    assert popping.result() == "element"
    assert witness.queue_len(key) == 0


def test_torch_is_released_by_every_write_of_muster(peer, key):
    writes = [("set", "v"), ("add", "1"), ("append", "v"), ("cas", "", "v")]
    for number, (operation, *rest) in enumerate(writes):
        store = connect(peer)
        waiting = Background(store.get, f"{key}/{number}").parked(store, peer)
        done(peer, operation, f"{key}/{number}", *rest)
        assert waiting.result() == rest[-1].encode()
    store = connect(peer)
    popping = Background(store.queue_pop, f"{key}/queue").parked(store, peer)
    done(peer, "push", f"{key}/queue", "element")
    assert popping.result() == b"element"


def test_a_barrier_joins_muster_and_torch(peer, witness, key):
    others = [Background(done, peer, "barrier", key, "4") for _ in range(2)]
    others.append(Background(connect(peer).barrier, key, 4))
    eventually(lambda: witness.check([key]) and witness.get(key) == b"3", "three have arrived")
    assert all(call.running for call in others)
    witness.barrier(key, 4)
    for call in others:
        call.result()
    assert done(peer, "barrier", f"{key}/alone", "1") == "ok"


@pytest.mark.parametrize("operation", ["get", "wait", "pop"])
def test_item047_a_missing_key_is_reported_with_key_server_and_time(peer, witness, key, operation):
    started = time.monotonic()
    result = muster(peer, operation, key, options=["--timeout", "0.3"])
    assert 0.3 <= time.monotonic() - started < 5
    assert result.status == TIMED_OUT, result
    for part in (key, peer.address, "300 ms"):
        assert part in result.errors
    assert result.text == ""
    assert witness.check([key]) is False


def test_a_wait_that_fails_names_only_what_is_missing(peer, witness, key):
    witness.set(f"{key}/there", "")
    result = muster(peer, "wait", f"{key}/there", f"{key}/missing", options=["--timeout", "0.1"])
    assert result.status == TIMED_OUT
    assert f"{key}/missing" in result.errors
    assert f"{key}/there" not in result.errors


def test_item085_a_barrier_that_fails_reports_how_many_came(peer, witness, key):
    result = muster(peer, "barrier", key, "3", options=["--timeout", "0.1"])
    assert result.status == TIMED_OUT
    assert "1 of 3" in result.errors and key in result.errors
    assert witness.get(key) == b"1"


def test_a_connection_survives_what_never_comes(peer, witness, key):
    """Many operations over one connection, with cancelled waits in between."""
    rounds, lines = 2, []
    for number in range(rounds):
        lines += [f"get {key}/never", f"barrier {key}/gate{number} 2"]
        lines += [f"pop {key}/queue", f"wait {key}/never {key}/ever", f"add {key}"]
    result = muster(peer, options=["--timeout", "0.25"], stdin="\n".join(lines).encode())
    assert result.text.split("\n") == [str(number + 1) for number in range(rounds)], result
    assert result.errors.count("\n") == 4 * rounds
    assert witness.get(key) == str(rounds).encode()


def test_answers_that_cross_with_cancellations_leave_the_stream_in_step(peer, witness, key):
    rounds, timeout_s = 8, 0.25
    lines = []
    for number in range(rounds):
        lines += [f"wait {key}/{number}", f"add {key}"]
    asking = Background(
        muster, peer, options=["--timeout", str(timeout_s)], stdin="\n".join(lines).encode()
    )
    aim = random.Random(1)
    for number in range(rounds):
        eventually(lambda number=number: witness.add(key, 0) == number, "the round begins")
        fire_at = time.monotonic() + timeout_s + aim.uniform(-0.004, 0.002)
        while time.monotonic() < fire_at:
            pass  # a sleep is not exact enough
        witness.set(f"{key}/{number}", "")
    result = asking.result()
    answers = [line for line in result.text.split("\n") if line != "ok"]
    assert answers == [str(number + 1) for number in range(rounds)], result


def test_the_prompt_reads_operations_from_a_pipe(peer, witness, key):
    script = f"""
    # a comment, then words in quotes
    set {key} 'two words'
    get {key}
    set {key} "it's"
    get {key}
    nonsense
    count
    quit
    get {key}
    """
    result = muster(peer, stdin=script.encode())
    lines = result.text.split("\n")
    assert lines[:4] == ["ok", "two words", "ok", "it's"]
    assert lines[4:] == [str(witness.num_keys())]
    assert result.status == USAGE and "nonsense" in result.errors


def test_results_for_programs_are_json(peer, witness, key):
    def answer(*words):
        return json.loads(done(peer, *words, options=["--json"]))

    assert answer("set", key, "v") == {"ok": True}
    assert answer("get", key) == {"value": "v"}
    assert answer("add", f"{key}/n", "3") == {"value": 3}
    assert answer("check", key) == {"value": True}
    assert answer("keys", f"{key}/") == {"keys": [f"{key}/n"]}
    assert answer("count") == {"value": witness.num_keys()}
    assert answer("ping") == {"ok": True}
    witness.set(key, b"\xff\0")
    assert answer("get", key) == {"value_hex": "ff00"}


def test_ping_touches_nothing(peer, witness):
    before = witness.num_keys()
    assert done(peer, "ping") == "ok"
    assert witness.num_keys() == before


def test_a_key_that_is_too_long_is_refused_before_it_is_sent(peer, witness, key):
    longest = key + "k" * (8191 - len(key))
    assert done(peer, "set", longest, "v") == "ok"
    assert witness.get(longest) == b"v"
    result = muster(peer, "set", longest + "k", "v")
    assert result.status == USAGE and "8192" in result.errors


@pytest.mark.parametrize(
    "words", [["nonsense"], ["set", "only-a-key"], ["add", "n", "x"], ["count", "1"]]
)
def test_a_usage_error_is_distinguished_from_a_failure(peer, words):
    result = muster(peer, *words)
    assert result.status == USAGE and result.errors and not result.text


# --- No server, a server that dies, an old server.


@pytest.fixture
def no_server():
    """An address without a listener, which no other process gets."""

    class Nobody:
        host = "127.0.0.1"

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        Nobody.port = holder.getsockname()[1]
        Nobody.address = f"127.0.0.1:{Nobody.port}"
        yield Nobody


def test_item107_no_server_is_reported_in_time(no_server):
    started = time.monotonic()
    result = muster(no_server, "ping", options=["--connect-timeout", "5"])
    # with a second for starting the program
    assert 5 <= time.monotonic() - started < 1.2 * 5
    assert result.status == NO_SERVER
    assert no_server.host in result.errors and str(no_server.port) in result.errors


def test_item108_a_host_without_an_address_is_reported_in_time(no_server):
    no_server.address = f"no-such-host.invalid:{no_server.port}"
    started = time.monotonic()
    result = muster(no_server, "ping", options=["--connect-timeout", "1"])
    assert time.monotonic() - started < 10  # the system's resolver may be slow
    assert result.status == NO_SERVER
    assert "no-such-host.invalid" in result.errors


def test_item056_a_server_that_dies_ends_the_wait_at_once():
    server = TorchServer()
    getting = Background(muster, server, "get", "never")
    store = connect(server)
    barrier = Background(muster, server, "barrier", "gate", "2")
    eventually(lambda: store.check(["gate"]), "the barrier waits")
    started = time.monotonic()
    server.stop()
    for call in (getting, barrier):
        result = call.result()
        assert result.status == NO_SERVER and result.errors, result
    assert time.monotonic() - started < 10


def test_the_older_server_of_torch_serves_all_but_queues():
    server = TorchServer(use_libuv=False)
    witness = connect(server, use_libuv=False)
    assert done(server, "set", "key", "value") == "ok"
    assert witness.get("key") == b"value"
    assert done(server, "get", "key") == "value"
    assert done(server, "add", "n", "3") == "3"
    assert done(server, "cas", "key", "value", "new") == "new"
    assert done(server, "append", "key", "er") == "ok"
    assert done(server, "check", "key", "n") == "true"
    assert done(server, "barrier", "gate", "1") == "ok"
    assert done(server, "keys").split("\n") == ["gate", "key", "n"]
    assert done(server, "delete", "n") == "true"
    assert done(server, "count") == "2"
    assert muster(server, "wait", "never", options=["--timeout", "0.1"]).status == TIMED_OUT
    waiting = Background(done, server, "wait", "late")
    witness.set("late", "")
    assert waiting.result() == "ok"
    refused = muster(server, "push", "queue", "1")  # it disconnects on the opcode
    assert refused.status == FAILED and "no queues" in refused.errors, refused
    assert witness.get("key") == b"newer"


def test_get_waits_for_the_key_on_the_older_server_of_torch_too():
    server = TorchServer(use_libuv=False)
    getting = Background(done, server, "get", "late")
    connect(server, use_libuv=False).set("late", "value")
    assert getting.result() == "value"
    assert muster(server, "get", "never", options=["--timeout", "0.1"]).status == TIMED_OUT


def test_item101_muster_does_not_serve_where_torch_does(tmp_path):
    server = TorchServer()
    command = [required("MUSTER_BIN"), "serve", "--listen", f":{server.port}"]
    child = Child(command, tmp_path / "serve.log")
    assert child.ended() == FAILED
    text = rf"The server socket has failed to listen on any local .*{server.port}"
    assert re.search(text, child.errors()), child.errors()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_item105_muster_reaches_torchs_server_under_every_name(host):
    server = TorchServer()
    server.host = host
    assert done(server, "ping") == "ok"
