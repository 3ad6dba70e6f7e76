"""Tests of atomic batches on servers that differ in them or do not support them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import BatchState, errors
from jsync.jetstream.atomic.engine import has_batch_fix
from jsync.server import LocalServer

from ..support.proxy import FaultProxy
from ..support.stream_verifier import contents
from .leaf import leaf_before
from .lines import binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.models.server_version import ServerVersion

    from ..support.proxy import Side


@pytest.fixture
def stream(js: jsync.JetStream, line: ServerVersion, unique: str) -> jsync.Stream:
    """A stream that accepts atomic batches, if the server supports them."""
    atomic = {"allow_atomic": True} if line >= (2, 12) else {}
    return js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", **atomic
    )


def test_the_blocks_end_commits_wherever_batches_are_supported(
    js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    batch = js.atomic_batch()
    batch.add(f"{stream.name}.1", b"one")
    if line < (2, 12):
        with pytest.raises(errors.AtomicBatchUnsupportedError) as caught:
            batch.add(f"{stream.name}.2", b"two")
        assert caught.value.stored is None
        with pytest.raises(errors.AtomicBatchUnsupportedError):
            js.atomic_batch().commit(f"{stream.name}.1")
        assert contents(stream) == []
        return
    with batch:
        batch.add(f"{stream.name}.2", b"two")
    assert contents(stream) == [("1", b"one"), ("2", b"two")]


def test_commits_without_a_message_came_later_than_batches(
    js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    if line < (2, 12):
        return
    batch = js.atomic_batch()
    batch.add(f"{stream.name}.1", b"one", ack=True)
    if line < (2, 14):
        with pytest.raises(errors.AtomicPublishInvalidBatchCommitError):
            batch.commit()
        assert batch.state is BatchState.FAILED
        assert contents(stream) == []
        return
    assert batch.commit().count == 1
    assert contents(stream) == [("1", b"one")]


def test_every_line_reports_the_limit_of_open_batches(
    js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    if line < (2, 12):
        return
    batches = [js.atomic_batch() for _ in range(51)]
    for batch in batches[:50]:
        batch.add(f"{stream.name}.1", ack=True)
    with pytest.raises(
        errors.AtomicPublishTooManyInflightError
        if line >= (2, 14)
        else errors.AtomicPublishIncompleteBatchError
    ):
        batches[50].add(f"{stream.name}.1", ack=True)
    for batch in batches[:50]:
        batch.discard()
    assert js.publish_batch([(f"{stream.name}.1", b"")] * 3).count == 3


def test_resolve_finds_the_result_of_a_commit(
    server: LocalServer, js: jsync.JetStream, line: ServerVersion, stream: jsync.Stream
) -> None:
    if line < (2, 12):
        return
    rows = [(f"{stream.name}.{n}", b"%d" % n) for n in range(5)]

    def drop(data: bytes, to: Side) -> bytes:
        return b"" if to == "client" and b'"batch":' in data else data

    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        jsync.connect(proxy.url, reconnect_wait=0.02) as nc,
    ):
        through = nc.jetstream()
        through.publish_batch(rows)
        proxy.rewrite(drop)
        with pytest.raises(errors.AmbiguousCommitError) as committed:
            through.publish_batch(rows, timeout=0.3)
        proxy.rewrite(None)
        ack = committed.value.resolve()
        assert (ack.seq, ack.count) == (10, 5)
        batch = through.atomic_batch()
        batch.add(f"{stream.name}.1", ack=True)
        proxy.cut_after(20, to="server")
        with pytest.raises(errors.AmbiguousCommitError):
            batch.commit(f"{stream.name}.2")
        assert batch.resolve() is None
    assert len(contents(stream)) == 10


@pytest.mark.parametrize("name", ["2.12", "2.14.0", "2.14", "2.15"])
def test_counters_and_schedules_are_refused_where_wrongly_stored(
    name: str,
) -> None:
    with LocalServer(binary=binary_of(name)) as server, jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(
            name="C", subjects=["c.>"], allow_atomic=True, allow_msg_counter=True
        )
        if not has_batch_fix(nc.server_info.version):
            for ack_first in (True, False):
                batch = js.atomic_batch(ack_first=ack_first)
                with pytest.raises(errors.UnsupportedFeatureError, match=r"2\.14\.3"):
                    batch.add("c.1", incr=1)
                with pytest.raises(errors.UnsupportedFeatureError, match=r"2\.14\.3"):
                    batch.add("c.1", schedule="@at x", schedule_target="c.2")
                assert len(batch) == 0
            assert contents(stream) == []
            return
        with js.atomic_batch() as batch:
            batch.add("c.1", incr=1)
            batch.add("c.1", incr=2)
        assert js.publish("c.1", incr=3).value == 6


# Old servers with a new leaf node -------------------------------------------------------


@pytest.fixture(scope="module", params=["2.10", "2.11"])
def old_behind_new(request: pytest.FixtureRequest) -> Iterator[jsync.JetStream]:
    with leaf_before("2.15", request.param) as js:
        yield js


@pytest.mark.parametrize("count", [1, 3])
def test_old_servers_storing_the_first_message_are_recognised(
    old_behind_new: jsync.JetStream, unique: str, count: int
) -> None:
    js = old_behind_new
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    batch = js.atomic_batch()
    with pytest.raises(errors.AtomicBatchUnsupportedError) as caught:
        fill(batch, unique, count)
    ack = caught.value.stored
    assert isinstance(ack, jsync.PubAck)
    assert (ack.stream, ack.seq, ack.batch) == (unique, 1, None)
    assert batch.state is BatchState.FAILED
    assert contents(stream) == [("0", b"")]


def fill(batch: jsync.AtomicBatch, stream: str, count: int) -> None:
    with batch:
        for number in range(count):
            batch.add(f"{stream}.{number}")


def test_an_old_server_is_sent_no_whole_batch(
    old_behind_new: jsync.JetStream, unique: str
) -> None:
    js = old_behind_new
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"])
    for publish in (
        lambda: js.publish_batch([(f"{unique}.1", b"")] * 3),
        lambda: fill(js.atomic_batch(ack_first=False), unique, 3),
    ):
        with pytest.raises(errors.AtomicBatchUnsupportedError) as caught:
            publish()
        assert caught.value.stored is None
    assert contents(stream) == []


def test_new_servers_beyond_an_old_leaf_accept_batches(unique: str) -> None:
    with leaf_before("2.10", "2.15") as js:
        stream = js.create_stream(
            name=unique, subjects=[f"{unique}.>"], allow_atomic=True
        )
        fill(js.atomic_batch(), unique, 3)
        assert js.publish_batch([(f"{unique}.1", b"")] * 3).count == 3
        assert len(contents(stream)) == 6
