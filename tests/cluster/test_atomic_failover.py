"""Tests of atomic batches to a replicated stream while leaders change, and servers stop and die."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import BatchState, errors

from ..support.connection_faults import Events, connect
from ..support.servers import wait_for
from ..support.stream_verifier import Ledger, contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

LONG = 120.0


@pytest.fixture
def nc(whole: Cluster) -> Iterator[jsync.Connection]:
    with connect(whole.urls, Events(), connect_timeout=2) as nc:
        yield nc


@pytest.fixture
def stream(whole: Cluster, nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    js = nc.jetstream(timeout=LONG)
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], num_replicas=3, allow_atomic=True
    )
    yield stream
    whole.start()
    wait_for(lambda: deleted(js, unique), LONG)


def deleted(js: jsync.JetStream, name: str) -> bool:
    with contextlib.suppress(
        errors.APIError, errors.TimeoutError, errors.ConnectionError
    ):
        js.delete_stream(name, timeout=5)
        return True
    return False


def step_down(nc: jsync.Connection, stream: str) -> None:
    with contextlib.suppress(errors.Error):
        nc.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", timeout=5)


def test_a_leader_change_discards_an_open_batch(
    whole: Cluster, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    batch = nc.jetstream().atomic_batch(timeout=LONG)
    batch.add(f"{stream.name}.1", ack=True)
    leader = whole.stream_leader(stream.name)
    step_down(nc, stream.name)
    wait_for(lambda: whole.stream_leader(stream.name) is not leader, LONG)
    with pytest.raises(
        (errors.AtomicPublishIncompleteBatchError, errors.NoStreamResponseError)
    ):
        batch.commit(f"{stream.name}.2")
    assert batch.state is BatchState.FAILED
    wait_for(lambda: holds(stream, 0), LONG)


def holds(stream: jsync.Stream, count: int) -> bool:
    with contextlib.suppress(errors.APIError, errors.TimeoutError):
        return len(contents(stream)) == count
    return False


def publish_while(
    nc: jsync.Connection, stream: jsync.Stream, disturb: Callable[[], None], rounds: int
) -> Ledger:
    """Publish batches while `disturb` is called repeatedly."""
    ledger = Ledger(f"{stream.name}.1")
    js = nc.jetstream()
    stop = threading.Event()

    def run() -> None:
        try:
            for number in range(rounds):
                wait_for(lambda n=number: ledger.verdicts["stored"] > n, LONG)  # type: ignore[misc]
                time.sleep(0.2)
                disturb()
        finally:
            stop.set()

    disturbing = threading.Thread(target=run)
    disturbing.start()
    try:
        while not stop.is_set():
            ledger.publish(js, 7, timeout=2)
            ledger.publish(js, 3, timeout=2, ack_first=True)
            ledger.publish(js, 1, timeout=2)
    finally:
        disturbing.join()
    return ledger


def check(whole: Cluster, stream: jsync.Stream, ledger: Ledger) -> None:
    whole.wait_until_ready()

    def is_led() -> bool:
        with contextlib.suppress(errors.APIError, errors.TimeoutError):
            stream.info(timeout=5)
            return True
        return False

    wait_for(is_led, LONG)
    ledger.check(stream)
    assert ledger.verdicts["stored"] > 4, ledger.verdicts


def test_leader_changes_store_all_or_nothing_as_reported(
    whole: Cluster, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    ledger = publish_while(nc, stream, lambda: step_down(nc, stream.name), 6)
    check(whole, stream, ledger)


@pytest.mark.fault
def test_killed_servers_store_all_or_nothing_as_reported(
    whole: Cluster, nc: jsync.Connection, stream: jsync.Stream
) -> None:
    numbers = iter(range(100))

    def kill() -> None:
        server = whole.servers[next(numbers) % 3]
        server.kill()
        time.sleep(0.5)
        server.start()
        whole.wait_until_ready()

    ledger = publish_while(nc, stream, kill, 5)
    check(whole, stream, ledger)


# Batches sent to a server that is paused and resumed ------------------------------------


@pytest.fixture
def follower(whole: Cluster, stream: jsync.Stream) -> Iterator[LocalServer]:
    """A server that leads nothing. It runs again at the end."""
    leaders = (whole.stream_leader(stream.name), whole.meta_leader())
    follower = next(server for server in whole.servers if server not in leaders)
    yield follower
    follower.resume()


@pytest.fixture
def through(whole: Cluster, follower: LocalServer) -> Iterator[jsync.Connection]:
    """A connection to that server, which soon notices if the server stops."""
    others = [server.url for server in whole.servers if server is not follower]
    with jsync.connect(
        [follower.url, *others],
        randomize=False,
        ignore_discovered_servers=True,
        ping_interval=1.0,
        connect_timeout=10,
        reconnect_wait=0.05,
    ) as through:
        yield through


def test_a_late_commit_reported_as_unstored_is_refused(
    follower: LocalServer, through: jsync.Connection, stream: jsync.Stream
) -> None:
    batch = through.jetstream(timeout=LONG).atomic_batch()
    batch.add(f"{stream.name}.1", ack=True)
    follower.pause()
    with pytest.raises(errors.AmbiguousCommitError):
        batch.commit(f"{stream.name}.2", b"late")
    assert batch.resolve() is None
    follower.resume()
    # The server processes the bytes that it received before, then this message.
    with jsync.connect(follower.url, connect_timeout=LONG) as again:
        again.jetstream(timeout=LONG).publish(f"{stream.name}.3", b"after")
    wait_for(lambda: holds(stream, 1), LONG)
    time.sleep(0.5)
    assert contents(stream) == [("3", b"after")]


def test_a_batch_under_way_has_no_known_outcome(
    whole: Cluster,
    follower: LocalServer,
    through: jsync.Connection,
    stream: jsync.Stream,
) -> None:
    going = next(server.url for server in whole.servers if server is not follower)
    js = through.jetstream(timeout=LONG)
    js.publish_batch([(f"{stream.name}.1", b"known")])
    follower.pause()
    with pytest.raises(errors.AmbiguousCommitError) as caught:
        js.publish_batch([(f"{stream.name}.{n}", b"late") for n in range(4)])
    with (
        jsync.connect(going) as other,
        other.jetstream().batch_advisories(stream.name) as advisories,
    ):
        other.flush()
        with pytest.raises(errors.AmbiguousCommitError, match="still be under way"):
            caught.value.resolve()
        # The batch that `resolve` used for its question is gone, and does not interfere.
        assert advisories.next(LONG).batch == caught.value.batch
        follower.resume()
        time.sleep(1)
        # The commit usually has arrived now. jsync would have been wrong to report it as rejected.
        led = other.jetstream(timeout=LONG).stream(stream.name)
        with contextlib.suppress(errors.AmbiguousCommitError):
            if (ack := caught.value.resolve()) is not None:
                assert (ack.seq, ack.count) == (5, 4)
                assert holds(led, 5)
                return
        assert holds(led, 1)


def test_resolve_waits_for_the_next_leader(
    whole: Cluster, follower: LocalServer, stream: jsync.Stream
) -> None:
    """While a stream has no leader, it seems that no stream takes the subject."""
    with jsync.connect(follower.url, ignore_discovered_servers=True) as nc:
        batch = nc.jetstream(timeout=LONG).atomic_batch()
        batch.add(f"{stream.name}.1", ack=True)
        leader = whole.stream_leader(stream.name)
        leader.pause()
        with pytest.raises(errors.AmbiguousCommitError):
            batch.commit(f"{stream.name}.2", timeout=0.5)
        leader.kill()
        stored = 0 if batch.resolve(LONG) is None else 2
        wait_for(lambda: holds(stream, stored), LONG)
