"""Answers that cross with cancellations: whatever a call returns, the stream stays in step."""

import random
import time

import pytest
import torch.distributed as dist

from peers import Background, ms

ROUNDS_MIN = 150
ROUNDS_MAX = 3000
BUDGET_S = 10.0


class Crossings:
    """Aims one client's action at the moment in which another client's call times out.

    The aim is corrected after every round, so that about half of the actions come too early and half too late: many of
    them cross on the wire.
    """

    def __init__(self, timeout_ms: int, seed: int):
        self._timeout_ms = timeout_ms
        self._delay_s = timeout_ms / 1000
        self._random = random.Random(seed)
        self.in_time = 0
        self.too_late = 0

    def rounds(self):
        give_up = time.monotonic() + BUDGET_S
        for number in range(ROUNDS_MAX):
            both = min(self.in_time, self.too_late)
            if number >= ROUNDS_MIN and (both >= ROUNDS_MIN // 3 or time.monotonic() > give_up):
                return
            yield number

    def shoot(self, call, deed) -> bool:
        """Runs `call` and, close to its end, `deed`. Returns whether `call` succeeded."""
        delay = max(0.0, self._delay_s + self._random.uniform(-1, 1) * self._timeout_ms / 4000)
        fire_at = time.monotonic() + delay

        def wait_and_do():
            while time.monotonic() < fire_at:
                pass  # a sleep is not exact enough
            deed()

        shot = Background(wait_and_do)
        try:
            call()
            succeeded = True
            self.in_time += 1
            self._delay_s += self._timeout_ms / 20_000
        except dist.DistStoreError as failure:
            assert "timeout after" in str(failure)
            succeeded = False
            self.too_late += 1
            self._delay_s = max(0.0, self._delay_s - self._timeout_ms / 20_000)
        shot.result()
        return succeeded


@pytest.mark.parametrize("timeout_ms", [1, 5])
def test_sets_that_cross_with_timeouts_leave_the_stream_in_step(store, other, timeout_ms):
    crossings = Crossings(timeout_ms, seed=timeout_ms)
    for number in crossings.rounds():
        key = f"key{number}"
        crossings.shoot(
            lambda key=key: store.wait([key], ms(timeout_ms)),
            lambda key=key, number=number: other.set(key, f"value{number}"),
        )
        # A byte too many or too few would change these answers.
        assert store.add("rounds", 1) == number + 1
        assert store.get(key) == f"value{number}".encode()
    assert store.num_keys() == other.num_keys() == crossings.in_time + crossings.too_late + 1
    assert crossings.too_late > 0


def test_waits_for_many_keys_that_cross_with_their_sets_stay_in_step(store, other):
    crossings = Crossings(3, seed=2)
    for number in crossings.rounds():
        keys = [f"{number}/{part}" for part in range(5)]
        crossings.shoot(
            lambda keys=keys: store.wait(keys, ms(3)),
            lambda keys=keys: other.multi_set(keys, keys),
        )
        assert store.multi_get(keys) == [key.encode() for key in keys]
    assert store.check(["never"]) is False


def test_pushes_that_cross_with_timeouts_lose_no_element(client, other):
    store = client(timeout_s=0.003)
    crossings = Crossings(3, seed=3)
    popped = []
    for number in crossings.rounds():

        def push(number=number):
            other.queue_push("queue", str(number))
            other.num_keys()  # an answer: the push before it has been executed

        crossings.shoot(lambda: popped.append(int(store.queue_pop("queue"))), push)
        if len(popped) == number:  # it timed out: the element must still be there
            popped.append(int(store.queue_pop("queue", block=False)))
        assert popped[-1] == number
        assert store.queue_len("queue") == 0
    assert crossings.too_late > 0


def test_barriers_that_cross_with_timeouts_leave_the_stream_in_step(store, other):
    crossings = Crossings(3, seed=4)
    for number in crossings.rounds():
        gate = f"gate{number}"
        crossings.shoot(
            lambda gate=gate: store.barrier(gate, 2, timeout=ms(3)),
            lambda gate=gate: other.barrier(gate, 2),
        )
        assert store.get(gate) == b"2"
        assert store.add("rounds", 1) == number + 1
    assert crossings.too_late > 0


def test_many_clients_giving_up_at_once_stay_in_step(client, other):
    clients, rounds = 8, 60

    def give_up_and_count(store, name):
        timeouts = 0
        for number in range(rounds):
            try:
                store.wait([f"tick{number}"], ms(1 + number % 3))
            except dist.DistStoreError:
                timeouts += 1
            store.set(f"{name}/{number}", str(timeouts))
            assert store.get(f"{name}/{number}") == str(timeouts).encode()
        return timeouts

    calls = [Background(give_up_and_count, client(), name) for name in range(clients)]
    for number in range(rounds):
        other.set(f"tick{number}", "")
    for call in calls:
        call.result()
    assert other.num_keys() == rounds + clients * rounds


def test_deletes_and_sets_between_a_wait_and_its_get_never_break_the_stream(store, other):
    """Torch's get is a WAIT and then a GET: the key may be deleted in between. Then the value is empty."""

    def flicker(times):
        for _ in range(times):
            other.set("key", "value")
            other.delete_key("key")
        other.set("key", "value")

    flickering = Background(flicker, 2000)
    seen = set()
    while flickering.running:
        seen.add(store.get("key"))
        assert store.add("reads", 0) == 0
    flickering.result()
    assert seen <= {b"value", b""}
    assert store.get("key") == b"value"
