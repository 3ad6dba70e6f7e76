"""Tests of atomic batches with failing connections and servers: the reports match the stream."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import BatchState, errors

from ....support.campaign import seeded
from ....support.connection_faults import Events, connect
from ....support.servers import wait_for
from ....support.stream_verifier import Ledger, contents
from ....support.threads import LONG, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side

pytestmark = pytest.mark.server


@pytest.fixture
def stream(nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    stream = nc.jetstream().create_stream(
        name=unique, subjects=[f"{unique}.>"], allow_atomic=True, storage="memory"
    )
    yield stream
    stream.delete()


@pytest.fixture
def broken(proxy: FaultProxy) -> Iterator[jsync.Connection]:
    """A connection through the proxy."""
    with connect(proxy.url, Events()) as broken:
        yield broken
        broken.close()  # no drain: the test may have cut it a moment ago


def lose_acks(proxy: FaultProxy) -> None:
    """Drop all frames that report a commit."""

    def drop(data: bytes, to: Side) -> bytes:
        return b"" if to == "client" and b'"batch":' in data else data

    proxy.rewrite(drop)


# Acks that do not come ------------------------------------------------------------------


def fill(batch: jsync.AtomicBatch, rows: list[tuple[str, bytes]]) -> None:
    with batch:
        for row in rows:
            batch.add(*row)


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("at_once", [True, False])
def test_an_unacknowledged_commit_is_found_in_the_stream(
    proxy: FaultProxy,
    broken: jsync.Connection,
    stream: jsync.Stream,
    count: int,
    at_once: bool,
) -> None:
    js = broken.jetstream()
    js.publish(f"{stream.name}.before")
    rows = [(f"{stream.name}.{n}", b"%d" % n) for n in range(count)]
    if at_once:
        js.publish_batch([(f"{stream.name}.before", b"")])
    lose_acks(proxy)
    batch = js.atomic_batch(timeout=0.7)
    with pytest.raises(errors.AmbiguousCommitError) as caught:
        js.publish_batch(rows, timeout=0.7) if at_once else fill(batch, rows)
    assert isinstance(caught.value.__cause__, errors.TimeoutError)
    proxy.rewrite(None)
    before = 2 if at_once else 1
    ack = caught.value.resolve(timeout=LONG)
    assert (ack.stream, ack.batch) == (stream.name, caught.value.batch)
    assert (ack.seq, ack.count) == (before + count, count)
    assert [data for _, data in contents(stream)[before:]] == [data for _, data in rows]
    if not at_once:
        assert batch.state is BatchState.COMMITTED
        assert batch.pub_ack == ack


def test_a_commit_is_found_before_others_later_messages(
    proxy: FaultProxy,
    broken: jsync.Connection,
    nc: jsync.Connection,
    stream: jsync.Stream,
) -> None:
    lose_acks(proxy)
    batch = broken.jetstream().atomic_batch(timeout=0.7)
    for n in range(4):
        batch.add(f"{stream.name}.same", b"%d" % n)
    with pytest.raises(errors.AmbiguousCommitError):
        batch.commit()
    proxy.rewrite(None)
    for n in range(9):
        nc.jetstream().publish(f"{stream.name}.same", b"other %d" % n)
    ack = batch.resolve(timeout=LONG)
    assert ack is not None
    assert (ack.seq, ack.count) == (4, 4)


@pytest.mark.parametrize("removal", ["purge", "delete"])
def test_nothing_found_proves_nothing_where_messages_were_removed(
    proxy: FaultProxy,
    broken: jsync.Connection,
    nc: jsync.Connection,
    stream: jsync.Stream,
    removal: str,
) -> None:
    lose_acks(proxy)
    batch = broken.jetstream().atomic_batch(timeout=0.7)
    batch.add(f"{stream.name}.1")
    with pytest.raises(errors.AmbiguousCommitError):
        batch.commit(f"{stream.name}.2")
    proxy.rewrite(None)
    nc.jetstream().publish(f"{stream.name}.2")
    api = nc.jetstream()._api
    if removal == "purge":
        api.request(f"STREAM.PURGE.{stream.name}", {"seq": 3})
    else:
        for sequence in (1, 2):
            api.request(f"STREAM.MSG.DELETE.{stream.name}", {"seq": sequence})
    with pytest.raises(errors.AmbiguousCommitError, match="removed") as caught:
        batch.resolve(timeout=LONG)
    assert batch.state is BatchState.UNCLEAR
    with pytest.raises(errors.AmbiguousCommitError, match="removed"):
        caught.value.resolve(timeout=LONG)


def test_a_deleted_stream_leaves_a_commit_in_doubt(
    proxy: FaultProxy, broken: jsync.Connection, nc: jsync.Connection, unique: str
) -> None:
    nc.jetstream().create_stream(name=unique, subjects=[unique], allow_atomic=True)
    lose_acks(proxy)
    batch = broken.jetstream().atomic_batch(timeout=0.7)
    batch.add(unique)
    with pytest.raises(errors.AmbiguousCommitError):
        batch.commit(unique)
    proxy.rewrite(None)
    nc.jetstream().delete_stream(unique)
    with pytest.raises(errors.AmbiguousCommitError, match="no stream"):
        batch.resolve(timeout=LONG)


# Connections that break -----------------------------------------------------------------


def test_an_unsent_commit_is_known_to_be_unstored(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    batch = broken.jetstream().atomic_batch(timeout=LONG)
    batch.add(f"{stream.name}.1")
    batch.add(f"{stream.name}.2")
    proxy.cut_after(20, to="server")
    with pytest.raises(errors.AmbiguousCommitError) as caught:
        batch.commit()
    assert isinstance(caught.value.__cause__, errors.ConnectionLostError)
    assert repr(batch).endswith("unclear, 2 messages, 2 sent>")
    assert batch.resolve(timeout=LONG) is None
    assert batch.state is BatchState.FAILED
    assert contents(stream) == []


def test_resolve_can_be_repeated_with_too_many_batches(
    nc: jsync.Connection,
    proxy: FaultProxy,
    broken: jsync.Connection,
    stream: jsync.Stream,
) -> None:
    subject = f"{stream.name}.a"
    js = broken.jetstream()
    js.publish_batch([(subject, b"")])  # from now on, jsync knows the stream
    # The answer to the first message is lost too. It would tell that the server has it.
    proxy.rewrite(lambda data, to: b"" if to == "client" else data)
    with pytest.raises(errors.AmbiguousCommitError) as unclear:
        js.publish_batch([(subject, b"")] * 2, timeout=0.3)
    proxy.rewrite(None)
    cut_and_reconnect(proxy, broken)
    others = [nc.jetstream().atomic_batch() for _ in range(50)]
    for other in others:
        other.add(subject, ack=True)
    with pytest.raises(errors.TimeoutError):
        unclear.value.resolve(timeout=0.3)
    for other in others:
        other.discard()
    assert unclear.value.resolve(timeout=LONG) is not None


def begun(broken: jsync.Connection, stream: jsync.Stream) -> jsync.AtomicBatch:
    """A batch whose first messages are sent."""
    batch = broken.jetstream().atomic_batch()
    for n in range(3):
        batch.add(f"{stream.name}.{n}")
    return batch


def test_a_batch_is_lost_with_its_unacknowledged_messages(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    batch = begun(broken, stream)
    proxy.cut()
    wait_for(lambda: broken.stats().reconnects == 1)
    with pytest.raises(errors.AtomicBatchLostError) as caught:
        batch.add(f"{stream.name}.3")
    assert isinstance(caught.value, errors.ConnectionLostError)
    assert batch.state is BatchState.FAILED
    with pytest.raises(errors.AtomicBatchClosedError):
        batch.commit()
    assert contents(stream) == []


def test_a_lost_connection_loses_its_batch_at_once(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    batch = begun(broken, stream)
    proxy.refuse()
    proxy.cut()
    wait_for(lambda: not broken.is_connected)
    with pytest.raises(errors.AtomicBatchLostError):
        batch.add(f"{stream.name}.3")
    assert batch.state is BatchState.FAILED
    proxy.accept()


def test_a_thread_waiting_for_buffer_room_writes_alone(
    proxy: FaultProxy, stream: jsync.Stream
) -> None:
    subject = f"{stream.name}.large"

    def add_until_blocked() -> None:
        for _ in range(200):
            batch.add(subject, bytes(100_000))

    with connect(
        proxy.url, Events(), write_buffer_size=500_000, write_timeout=LONG
    ) as nc:
        batch = nc.jetstream().atomic_batch()
        for _ in range(2):
            batch.add(subject)
        proxy.deaf("client")
        adding = Thread(add_until_blocked)
        adding.wait_until_blocked()
        with pytest.raises(errors.ConcurrentUseError):
            batch.add(subject)
        proxy.hear("client")
        adding.result()
        assert len(batch) == 202
        batch.discard()


def test_a_fully_acknowledged_batch_continues_after_a_reconnect(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    with broken.jetstream().atomic_batch(timeout=LONG) as batch:
        for n in range(6):
            batch.add(f"{stream.name}.{n}", ack=n % 2 == 1)
            if n % 2 == 1:
                cut_and_reconnect(proxy, broken)
    assert batch.pub_ack is not None
    assert batch.pub_ack.count == 6
    assert [subject for subject, _ in contents(stream)] == list("012345")


def test_a_batch_begins_when_the_connection_is_made(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    proxy.refuse()
    proxy.cut()
    wait_for(lambda: not broken.is_connected)
    batch = broken.jetstream().atomic_batch(timeout=LONG)
    batch.add(f"{stream.name}.1")
    late = broken.jetstream().atomic_batch(timeout=0.1)
    late.add(f"{stream.name}.1")
    with pytest.raises(errors.TimeoutError):
        late.commit()
    assert late.state is BatchState.FAILED
    accepting = threading.Timer(0.2, proxy.accept)
    accepting.start()
    assert batch.commit().count == 1
    accepting.join()


def cut_and_reconnect(proxy: FaultProxy, broken: jsync.Connection) -> None:
    before = proxy.connections
    proxy.cut()
    wait_for(lambda: proxy.connections > before and broken.is_connected)


def cut_everywhere(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream, step: int
) -> Ledger:
    """Cut the connection after more and more bytes, in both directions."""
    js = broken.jetstream()
    ledger = Ledger(f"{stream.name}.1")
    ledger.publish(js)  # from now on, jsync knows the stream
    kinds: list[dict[str, bool]] = [{}, {"ack_first": True}, {"ack_first": False}]
    sides: list[Side] = ["server", "client"]
    for kind in kinds:
        for side in sides:
            before = proxy.bytes_to[side]
            assert ledger.publish(js, **kind) == "stored"
            size = proxy.bytes_to[side] - before
            for at in range(1, size + 2, step):
                proxy.cut_after(at, to=side)
                ledger.publish(js, **kind)
                # the batch may have needed fewer bytes
                proxy.cut_after(1 << 40, to=side)
                cut_and_reconnect(proxy, broken)
    return ledger


def test_cuts_in_the_middle_leave_all_or_nothing(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    ledger = cut_everywhere(proxy, broken, stream, 41)
    ledger.check(stream)
    assert not ledger.reasons
    assert ledger.verdicts["stored"] > 6
    assert ledger.verdicts["nothing"] > 6


@pytest.mark.fault
def test_cuts_at_any_byte_leave_all_or_nothing(
    proxy: FaultProxy, broken: jsync.Connection, stream: jsync.Stream
) -> None:
    ledger = cut_everywhere(proxy, broken, stream, 3)
    ledger.check(stream)
    assert not ledger.reasons


# Servers that end -----------------------------------------------------------------------


def kill_in_the_middle(
    own_server: StartServer, kills: int, enough: Callable[[Ledger], bool]
) -> Ledger:
    """Publish batches while the server is killed, at least `kills` times, until `enough`."""
    server = own_server()
    ledger = Ledger("kill")
    rng = seeded()
    killing_ended = threading.Event()
    with connect(server.url, Events(), connect_timeout=2) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="KILL", subjects=["kill"], allow_atomic=True)

        def kill() -> None:
            try:
                for number in range(20 * kills):
                    if number >= kills and enough(ledger):
                        break
                    wait_for(lambda n=number: ledger.verdicts["stored"] >= 2 * n + 2)  # type: ignore[misc]
                    time.sleep(rng.uniform(0, 0.25))
                    server.kill()
                    time.sleep(rng.uniform(0, 0.1))
                    server.start(60)
            finally:
                killing_ended.set()

        killing = Thread(kill)
        while not killing_ended.is_set():
            kind = rng.choice([{}, {}, {"ack_first": True}, {"ack_first": False}])
            ledger.publish(js, rng.choice([1, 2, 30, 200]), timeout=5, **kind)
        killing.result()
        wait_for(lambda: nc.is_connected)
        assert ledger.publish(js, timeout=LONG) == "stored"
        ledger.check(stream)
    return ledger


def test_a_killed_server_leaves_all_or_nothing(
    own_server: StartServer,
) -> None:
    ledger = kill_in_the_middle(own_server, 2, lambda ledger: len(ledger) > 3)
    assert ledger.verdicts["stored"] > 3


@pytest.mark.fault
def test_a_repeatedly_killed_server_leaves_all_or_nothing(
    own_server: StartServer,
) -> None:
    # The number of kills during an uncommitted batch depends on the machine.
    ledger = kill_in_the_middle(
        own_server, 40, lambda ledger: ledger.verdicts["nothing"] > 10
    )
    assert ledger.verdicts["nothing"] > 10
    assert not ledger.reasons


def test_a_restarted_server_has_forgotten_an_open_batch(
    own_server: StartServer,
) -> None:
    server = own_server()
    with connect(server.url, Events()) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s"], allow_atomic=True)
        batch = js.atomic_batch(timeout=LONG)
        batch.add("s", ack=True)
        server.restart()
        wait_for(lambda: nc.stats().reconnects == 1)
        with pytest.raises(errors.AtomicPublishIncompleteBatchError):
            batch.commit("s")
        assert batch.state is BatchState.FAILED
        assert stream.info().state.messages == 0
