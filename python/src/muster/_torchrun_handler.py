"""torch's RendezvousHandler, implemented with muster's: see muster.torchrun."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import api
from torch.distributed.elastic.utils.logging import get_logger

import muster
from muster import rendezvous
from muster.torch import AdaptedStore

logger = get_logger("muster.torchrun")

BACKEND = "muster"
REPORT_S = 10.0  # between two lines about a wait
LOOK_S = 1.0  # between two checks of the server
SLICE = timedelta(milliseconds=200)  # of a wait for others; events are read in between
UNCOUNTED_S = 10.0  # longer than it takes to notice any loss
SHUTDOWN_S = 2.0  # time for the others to see the end before the server in this process stops

# Keys of a round. The first two are the plug-in's own, the third is shared with `muster run`.
HERE = "muster/here"
VERDICT = "muster/verdict"  # all members stay in the round, or all leave it
HEARD = "muster/heard"
ROLE_INFO = "torchelastic/role_info/"  # In each round, agents write theirs before anything else.


@contextmanager
def _torch_errors() -> Iterator[None]:
    """Agents catch torch's rendezvous errors. Store errors of muster do not derive from them."""
    try:
        yield
    except muster.DistError as error:
        raise api.RendezvousConnectionError(str(error)) from error


class MusterRendezvousHandler(api.RendezvousHandler):
    """One node's part in the rendezvous; one caller at a time, as torchrun's agent is."""

    def __init__(self, params: api.RendezvousParameters) -> None:
        config = {key: value for key, value in params.config.items() if key != "timeout"}
        self._read_timeout = timedelta(seconds=_positive(params, "read_timeout", 60))
        self._contact_s = _positive(params, "contact_timeout", 30)
        config.pop("contact_timeout", None)
        endpoint = (params.endpoint or "").strip()
        in_etcd = endpoint.lower().startswith("etcd://")
        if not in_etcd:
            config.pop("read_timeout", None)
            _, port = rendezvous.parse_rendezvous_endpoint(endpoint, 29400)
            if port == 0 and config.get("is_host") is None:
                config["is_host"] = True  # port 0 means nothing for another node
        with _torch_errors():
            made = rendezvous.get_rendezvous_handler(
                rendezvous.RendezvousParameters(
                    "etcd" if in_etcd else "muster",
                    endpoint,
                    params.run_id,
                    params.min_nodes,
                    params.max_nodes,
                    params.local_addr,
                    **config,
                )
            )
        self._native = cast(rendezvous.NativeRendezvousHandler, made)
        self._info: rendezvous.RendezvousInfo | None = None
        self._store: dist.Store | None = None  # torch's C++ alone would not keep it
        self._loss: str | None = None  # of a member, or of this node's own place
        self._looked_at = 0.0
        self._out_of_reach_since: float | None = None

    def get_backend(self) -> str:
        return BACKEND  # also in etcd: torchrun requested it under this name

    def get_run_id(self) -> str:
        return self._native.get_run_id()

    @property
    def use_agent_store(self) -> bool:
        return self._native.use_agent_store

    def next_rendezvous(self) -> api.RendezvousInfo:
        with _torch_errors(), _reporting_waits(self._native):
            while True:
                self._loss = None
                self._out_of_reach_since = None
                self._info = info = self._native.next_rendezvous()
                if self._all_are_here(info):
                    break
                logger.info("%s; joining the next round", self._loss)
            store = self._agents_store(info)
        logger.info(
            "rank %s of %s in round %s of rendezvous '%s'",
            info.rank,
            info.world_size,
            info.round,
            self.get_run_id(),
        )
        master = info.bootstrap_store_info
        return api.RendezvousInfo(
            store,
            info.rank,
            info.world_size,
            api.RendezvousStoreInfo(master.master_addr, master.master_port),
        )

    def is_closed(self) -> bool:
        with _torch_errors():
            self._read_events()
            return self._native.is_closed()

    def set_closed(self) -> None:
        with _torch_errors():
            self._native.set_closed()

    def num_nodes_waiting(self) -> int:
        """The number of waiting nodes. Above zero it is time for the next round: also when a
        member, or this node's own place, is lost. RendezvousConnectionError when the rendezvous is
        out of reach for too long."""
        with _torch_errors():
            self._read_events()
            # Then no round follows, and the workers of this one may finish.
            if self._native.is_closed():
                return 0
            self._check_contact()
            waiting = self._native.num_nodes_waiting()
        return max(waiting, 1) if self._loss else waiting

    def shutdown(self) -> bool:
        try:
            with _torch_errors():
                is_closed = self._native.shutdown()
        except api.RendezvousError as error:
            logger.warning("%s", error)
            return False
        if not is_closed:
            logger.warning(
                "rendezvous '%s' could not be closed: the server does not confirm it",
                self.get_run_id(),
            )
            return False
        self._await_others()
        return True

    # ------------------------------------------------------------------------------------------

    def _agents_store(self, info: rendezvous.RendezvousInfo) -> dist.Store:
        """muster's own client, with torch's interface.

        torch's client would work, too, but it looks up the name of the server's address in the DNS
        each time. With 64 nodes at once, or without the name server, that takes seconds. It also
        does not react to signals while an agent waits in it for others to finish.
        """
        self._store = AdaptedStore(info.store)
        self._store.set_timeout(self._read_timeout)
        return self._store

    def _read_events(self) -> None:
        kinds = rendezvous.MembershipEvent.Kind
        while (event := self._native.await_event(timedelta(0))) is not None:
            if event.kind in (kinds.MEMBER_LOST, kinds.PLACE_LOST) and self._loss is None:
                self._loss = str(event)
                logger.warning("%s", event)

    def _check_contact(self) -> None:
        """A lost server sends nothing."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        report = self._native.describe_wait()
        if report.phase != rendezvous.WaitReport.Phase.CONTACT:
            self._out_of_reach_since = None
            return
        if self._out_of_reach_since is None:
            self._out_of_reach_since = now
            logger.warning("%s", report)
        lasts = now - self._out_of_reach_since
        if lasts >= self._contact_s:
            raise api.RendezvousConnectionError(
                f"rendezvous '{self.get_run_id()}' has been out of reach for {lasts:.0f} s "
                f"(contact_timeout): {report.trouble}"
            )

    def _all_are_here(self, info: rendezvous.RendezvousInfo) -> bool:
        """Whether each member of the round has come out of the rendezvous alive.

        Next, torchrun's agents exchange keys, and watch no events meanwhile. A member that died the
        moment the round was complete would cost the others their read timeout, and then the job.
        False: a member is lost.
        """
        if info.world_size == 1:
            return True
        try:
            return self._count(info, info.store)
        except muster.DistNetworkError as error:
            self._loss = f"the server of round {info.round} is gone: {error}"
            return False  # joining waits for the server to come back, up to its timeout

    def _count(self, info: rendezvous.RendezvousInfo, store: muster.Store) -> bool:
        def decide(verdict: str) -> bool:
            """The first verdict holds for all: no member stays in a round that others have left."""
            stays = store.compare_set(VERDICT, "", verdict) == b"stay"
            if not stays and self._loss is None:
                self._loss = f"others have left round {info.round}"
            return stays

        if store.add(HERE, 1) >= info.world_size:
            return decide("stay")
        until = time.monotonic() + UNCOUNTED_S
        while time.monotonic() < until:
            try:
                store.wait([VERDICT], SLICE)
                return decide("stay")
            except muster.StoreTimeoutError:
                self._read_events()
            if self._loss:
                return decide("leave")
            if self._native.is_closed():
                raise api.RendezvousClosedError(
                    f"rendezvous '{self.get_run_id()}' was closed the moment round {info.round} "
                    "was complete"
                )
            # Nodes of other launchers do not count themselves, but they write their role.
            others = sum(store.check([f"{ROLE_INFO}{rank}"]) for rank in range(info.world_size))
            if store.add(HERE, 0) + others >= info.world_size:
                break
        return decide("stay")  # as far as this node can see

    def _await_others(self) -> None:
        """The server in this process must not stop before the others have seen the end."""
        info = self._info
        if info is None:
            return
        until = time.monotonic() + SHUTDOWN_S
        try:
            heard = info.store.add(HEARD, 1)
            while self._native.is_host and heard < info.world_size and time.monotonic() < until:
                time.sleep(0.005)
                heard = info.store.add(HEARD, 0)
        except muster.DistError as error:
            logger.debug("the server has gone first: %s", error)
        self._info = None


def _positive(params: api.RendezvousParameters, key: str, default: int) -> int:
    seconds = params.get_as_int(key, default)
    if seconds is None:
        return default
    if seconds <= 0:
        raise ValueError(f"{key} is {seconds}: it must be a positive number of seconds")
    return seconds


@contextmanager
def _reporting_waits(native: rendezvous.RendezvousHandler) -> Iterator[None]:
    """Logs regularly which nodes the block is waiting for."""
    is_over = threading.Event()

    def report() -> None:
        while not is_over.wait(REPORT_S):
            logger.info("rendezvous '%s': %s", native.get_run_id(), native.describe_wait())

    reporter = threading.Thread(target=report, name="muster-reporter", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        is_over.set()
        reporter.join()
