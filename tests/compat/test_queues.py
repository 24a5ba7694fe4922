"""Queues: first in, first out, one waiter released for each element. Items 67 to 79."""

import pytest
import torch.distributed as dist

from peers import Background, RawClient, blob, eventually, ms


def test_item067_an_unknown_queue_is_empty_and_not_there(store):
    assert store.queue_len("queue") == 0
    assert store.check(["queue"]) is False
    assert store.num_keys() == 0


def test_item068_elements_come_out_in_the_order_they_went_in(store, other):
    store.queue_push("queue", "1")
    store.queue_push("queue", "2")
    assert store.queue_len("queue") == 2
    assert store.check(["queue"]) is True
    store.wait(["queue"], ms(10_000))
    assert store.queue_pop("queue") == b"1"
    assert other.queue_pop("queue") == b"2"
    assert store.queue_len("queue") == 0
    assert store.check(["queue"]) is False


def test_item068_elements_are_any_bytes(store):
    elements = [b"", b"\0", bytes(range(256)), b"x" * 100_000, b""]
    for element in elements:
        store.queue_push("queue", element)
    assert [store.queue_pop("queue") for _ in elements] == elements
    assert store.queue_len("queue") == 0


def test_item069_a_pop_that_must_not_wait_reports_an_empty_queue(store):
    with pytest.raises(dist.QueueEmptyError, match=r"^queue is empty$"):
        store.queue_pop("queue", block=False)
    store.queue_push("queue", "1")
    assert store.queue_pop("queue", block=False) == b"1"
    with pytest.raises(dist.QueueEmptyError):
        store.queue_pop("queue", False)


def test_item070_the_answer_to_a_pop_carries_the_length_before_it(server, store):
    store.queue_push("queue", "one")
    store.queue_push("queue", "two")
    assert store.queue_len("queue") == 2
    with RawClient(server) as raw:
        raw.send(b"\x0f", blob(b"/queue"))
        assert (raw.receive_int(), raw.receive_blob()) == (2, b"one")
        raw.send(b"\x0f", blob(b"/queue"))
        assert (raw.receive_int(), raw.receive_blob()) == (1, b"two")
        raw.send(b"\x0f", blob(b"/queue"))
        assert raw.receive_int() == 0
        raw.ping()


def test_item071_a_push_releases_a_pop_that_waits(server, store, other):
    popper = Background(store.queue_pop, "queue").parked(store, server)
    other.queue_push("queue", "element")
    assert popper.result() == b"element"
    assert other.queue_len("queue") == 0


def test_item072_a_pop_ends_at_the_timeout_of_the_store(client):
    store = client(timeout_s=0.1)
    with pytest.raises(dist.DistStoreError, match=r"^wait timeout after 100ms, keys: /queue$"):
        store.queue_pop("queue")
    store.queue_push("queue", "1")
    assert store.queue_pop("queue") == b"1"


def test_item073_one_push_releases_the_pop_that_has_waited_longest(server, client, other):
    stores = [client() for _ in range(4)]
    poppers = [Background(store.queue_pop, "queue").parked(store, server) for store in stores]
    for number, popper in enumerate(poppers):
        other.queue_push("queue", str(number))
        assert popper.result() == str(number).encode()
        assert all(later.running for later in poppers[number + 1 :])


@pytest.mark.muster_differs(
    "PyTorch's server keeps a released waiter in the queue's list, and releases it again falsely",
    torch_answers="DID NOT RAISE",
)
def test_item074_a_push_does_not_release_a_client_that_has_stopped_waiting(server, client, other):
    store = client(timeout_s=3)
    popper = Background(store.queue_pop, "queue").parked(store, server)
    other.queue_push("queue", "1")
    assert popper.result() == b"1"
    waiter = Background(store.get, "unrelated").parked(store, server)
    other.queue_push("queue", "2")
    assert other.queue_len("queue") == 1
    with pytest.raises(dist.DistStoreError, match="^wait timeout after 3000ms, keys: /unrelated$"):
        waiter.result()  # after a wrong release: an empty value


@pytest.mark.parametrize("leave", ["close", "reset", "cancel"])
@pytest.mark.muster_differs(
    "PyTorch's server releases no other waiter when the released one leaves",
    torch_answers="^wait timeout after 3000ms, keys: /queue$",
)
def test_item075_if_the_released_waiter_leaves_the_next_one_gets_the_element(
    server, client, other, leave
):
    store = client(timeout_s=3)
    raw = RawClient(server)
    raw.send(b"\x06", (1).to_bytes(8, "little"), blob(b"/queue"))
    raw.ping()
    popper = Background(store.queue_pop, "queue").parked(store, server)
    other.queue_push("queue", "element")
    assert raw.receive(1) == b"\0"
    assert popper.running
    if leave == "cancel":
        raw.send(b"\x0c")
        assert raw.receive(1) == b"\x01"
    else:
        getattr(raw, leave)()
    assert popper.result() == b"element"
    raw.close()


def test_item076_elements_are_not_values(store):
    store.queue_push("queue", "element")
    assert store.num_keys() == 0
    assert store.list_keys() == []
    assert store.delete_key("queue") is False
    assert store.queue_len("queue") == 1
    store.set("queue", "value")
    assert store.num_keys() == 1
    assert store.get("queue") == b"value"
    assert store.delete_key("queue") is True
    assert store.check(["queue"]) is True
    assert store.queue_pop("queue") == b"element"
    assert store.check(["queue"]) is False


def test_item077_two_clones_send_each_other_messages(store):
    rounds = 200

    def play(mine, theirs, table, serves):
        for number in range(rounds):
            if serves:
                table.queue_push(theirs, str(number))
            assert table.queue_pop(mine) == str(number).encode()
            if not serves:
                table.queue_push(theirs, str(number))

    players = [
        Background(play, "a", "b", store.clone(), True),
        Background(play, "b", "a", store.clone(), False),
    ]
    for player in players:
        player.result()
    assert store.queue_len("a") == store.queue_len("b") == 0


def test_item078_a_prefix_is_part_of_the_name_of_a_queue(store):
    prefixed = dist.PrefixStore("job", dist.PrefixStore("host", store))
    prefixed.queue_push("queue", "element")
    assert store.queue_len("host/job/queue") == 1
    assert store.queue_len("queue") == 0
    assert prefixed.queue_len("queue") == 1
    assert prefixed.queue_pop("queue") == b"element"
    with pytest.raises(dist.QueueEmptyError):
        prefixed.queue_pop("queue", block=False)


def test_item079_the_older_client_of_torch_refuses_queues_by_itself(server, client):
    store = client(use_libuv=False)
    server.stop()
    for call in (
        lambda: store.queue_push("queue", "element"),
        lambda: store.queue_pop("queue"),
        lambda: store.queue_pop("queue", block=False),
        lambda: store.queue_len("queue"),
    ):
        with pytest.raises(NotImplementedError, match="queues not implemented on legacy TCPStore"):
            call()


def test_every_element_is_popped_once_however_many_pop(client, other):
    poppers, pushers, each = 5, 3, 100

    def push(store, name):
        for number in range(each):
            store.queue_push("queue", f"{name}:{number}")

    def pop_until_stopped(store):
        popped = []
        while True:
            try:
                element = store.queue_pop("queue")
            except dist.QueueEmptyError:
                continue  # another client was faster: torch's pop is a wait and then an attempt
            if element == b"stop":
                return popped
            popped.append(element.decode())

    popping = [Background(pop_until_stopped, client()) for _ in range(poppers)]
    pushing = [Background(push, client(), name) for name in range(pushers)]
    for call in pushing:
        call.result()
    eventually(lambda: other.queue_len("queue") == 0, "all elements are taken")
    for _ in range(poppers):
        other.queue_push("queue", "stop")
    popped = sorted(element for call in popping for element in call.result())
    assert popped == sorted(f"{name}:{number}" for name in range(pushers) for number in range(each))
    assert other.queue_len("queue") == 0
