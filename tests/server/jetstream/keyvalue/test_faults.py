"""Tests of writers, watches, live copies and locks with killed servers and cut connections."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import os
import signal
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from ....support.campaign import seeded
from ....support.connection_faults import Events, connect
from ....support.processes import Child
from ....support.proxy import FaultProxy
from ....support.servers import wait_for
from ....support.threads import LONG, Recorder
from .support import Writers, await_agreement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server

LOG = logging.getLogger(__name__)
KILLS = [2, pytest.param(20, marks=pytest.mark.fault)]


@pytest.mark.parametrize("kills", KILLS)
def test_watches_and_live_copies_match_after_each_kill(
    own_server: StartServer, kills: int
) -> None:
    server, rng = own_server(), seeded(kills)
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(server.url, Events()) as near,
        connect(proxy.url, Events()) as far,
    ):
        kv = near.jetstream().create_key_value(bucket="B", history=64)
        far_kv = far.jetstream().key_value("B")
        seen: tuple[list[int], list[int]] = ([], [])
        with (
            kv.watch(
                "k.>",
                include_history=True,
                callback=lambda entry: seen[0].append(entry.revision),
                on_error=Recorder(),
            ),
            far_kv.watch(
                "k.>",
                include_history=True,
                callback=lambda entry: seen[1].append(entry.revision),
                on_error=Recorder(),
            ),
            kv.live(on_error=Recorder()) as view,
            far_kv.live(on_error=Recorder()) as far_view,
            Writers([kv, far_kv, kv]) as writers,
        ):
            for number in range(kills):
                count = writers.done
                wait_for(functools.partial(written, writers, count + 100), LONG)
                if number % 2:
                    proxy.cut_after(rng.randrange(1, 20_000), "client")
                server.kill()
                server.start()
                wait_for(functools.partial(written, writers, count + 200), LONG)
                writers.pause()
                revisions = await_agreement(kv, seen, [view, far_view])
                wait_for(lambda: view.is_current and far_view.is_current, LONG)
                LOG.info(
                    "kill %d: %d revisions, %d keys, %d writes failed so far",
                    *(number + 1, revisions, len(view), writers.failed),
                )
                writers.resume()


def written(writers: Writers, count: int) -> bool:
    return writers.done >= count


HOLDER = """
    import random, sys, jsync
    from jsync import errors
    from jsync.core.clock import boottime

    nc = jsync.connect(sys.argv[1], reconnect_wait=0.02, on_error=lambda error: None)
    while True:
        try:
            kv = nc.jetstream(timeout=1).key_value("L")
            break
        except errors.Error:  # the server is busy, or was killed
            pass
    while True:
        lock = kv.lock("a", ttl=2, on_lost=lambda error: None)
        try:
            if not lock.acquire(60):
                break
            token = lock.token
            first = last = boottime()
            if not lock.held:  # it may have been stopped before the clock was read
                continue
            print(token, flush=True)
            end = first + random.uniform(0.3, 0.8)
            while last < end:
                moment = boottime()
                if not lock.held:
                    break
                last = moment
            print(token, first, last, flush=True)
        except errors.Error:
            pass
        finally:
            lock.release()
"""


class Term(NamedTuple):
    """The time in which a holder believed that it had the lock, by the clock of all processes."""

    token: int
    first: float
    last: float


@pytest.mark.slow
@pytest.mark.parametrize("kills", KILLS)
def test_no_two_holders_share_a_lock_despite_faults(
    own_server: StartServer, kills: int
) -> None:
    server, terms = own_server(), list[Term]()
    with connect(server.url, Events()) as nc:
        nc.jetstream().create_key_value(bucket="L", limit_marker_ttl=60)
        for number in range(kills):
            terms += hurt(server, number)
    assert len(terms) > kills
    terms.sort()
    LOG.info("%d kills: %d terms, %d revisions", kills, len(terms), terms[-1].token)
    assert len({term.token for term in terms}) == len(terms)
    for before, after in itertools.pairwise(terms):
        assert before.last <= after.first, (before, after)


class Holder(NamedTuple):
    """A process that holds the lock now and then, and the terms that it has reported."""

    child: Child
    begun: list[int]
    terms: list[Term]

    @property
    def holds(self) -> bool:
        return len(self.begun) > len(self.terms)

    def read(self) -> None:
        while line := self.child.line():
            token, *times = line.split()
            if times:
                self.terms.append(Term(int(token), *map(float, times)))
            else:
                self.begun.append(int(token))


@contextlib.contextmanager
def holding(url: str) -> Iterator[Holder]:
    with Child(HOLDER, url, patience=10 * LONG) as child:
        holder = Holder(child, [], [])
        reader = threading.Thread(target=holder.read)
        reader.start()
        try:
            yield holder
        finally:
            child.process.kill()
            reader.join()


def hurt(server: LocalServer, number: int) -> list[Term]:
    """Run three processes that hold the lock in turn, stop the holder, and kill the server."""
    with contextlib.ExitStack() as stack:
        holders = [stack.enter_context(holding(server.url)) for _ in range(3)]
        await_terms(holders, 2)
        wait_for(lambda: any(holder.holds for holder in holders), LONG)
        stopped = next((h for h in holders if h.holds), holders[0])
        os.kill(stopped.child.pid, signal.SIGSTOP)
        if number % 2:
            server.kill()
            server.start()
        await_terms([holder for holder in holders if holder is not stopped], 2)
        os.kill(stopped.child.pid, signal.SIGCONT)
        if not number % 2:
            server.kill()
            server.start()
        await_terms(holders, 3)
    return [term for holder in holders for term in holder.terms]


def await_terms(holders: list[Holder], more: int) -> None:
    """Wait until the processes have reported `more` further terms."""

    def count() -> int:
        return sum(len(holder.terms) for holder in holders)

    wanted = count() + more
    wait_for(lambda: count() >= wanted, 2 * LONG)
