"""Tests of atomic batches on a real server: it stores all messages, or none."""

from __future__ import annotations

import contextlib
import pickle
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import BatchState, errors

from ....support.connections import connection_of
from ....support.processes import run_child
from ....support.stream_verifier import contents, stored
from ....support.threads import LONG, SOON, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

    from ....support.certificates import Certificates

pytestmark = pytest.mark.server


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=unique,
        subjects=[f"{unique}.>"],
        allow_atomic=True,
        allow_msg_ttl=True,
        storage="memory",
    )
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


def fill(
    batch: jsync.AtomicBatch,
    *subjects: str,
    then: Callable[[], object] | None = None,
    **options: Any,
) -> None:
    """Publish a batch in one block, with options for the first message.

    Calls `then` before its end.
    """
    with batch:
        for subject in subjects:
            batch.add(subject, b"", **options)
            options = {}
        if then is not None:
            then()


# Committing -----------------------------------------------------------------------------


@pytest.mark.parametrize("ack_first", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_leaving_the_block_commits_all_messages_in_sequence(
    js: jsync.JetStream, stream: jsync.Stream, count: int, ack_first: bool
) -> None:
    js.publish(f"{stream.name}.before")
    with js.atomic_batch(ack_first=ack_first) as batch:
        for number in range(count):
            batch.add(f"{stream.name}.{number}", b"%d" % number)
            assert stream.info().state.messages == 1
    ack = batch.pub_ack
    assert ack is not None
    assert (ack.stream, ack.batch, ack.count) == (stream.name, batch.id, count)
    assert ack.seq == 1 + count
    assert batch.state is BatchState.COMMITTED
    assert contents(stream)[1:] == [(str(n), b"%d" % n) for n in range(count)]
    assert len(batch) == count


def test_a_commit_can_bring_the_last_message(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.atomic_batch() as batch:
        batch.add(f"{stream.name}.1", b"one")
        batch.add(f"{stream.name}.2", b"two")
        ack = batch.commit(f"{stream.name}.3", b"three", msg_id="3")
    assert (ack.seq, ack.count) == (3, 3)
    assert batch.pub_ack is ack
    assert [data for _, data in contents(stream)] == [b"one", b"two", b"three"]


def test_a_batch_can_be_its_last_message_alone(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    assert js.atomic_batch().commit(f"{stream.name}.1", b"one").count == 1
    assert contents(stream) == [("1", b"one")]


def test_leaving_the_block_commits_acknowledged_messages_too(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.atomic_batch() as batch:
        batch.add(f"{stream.name}.1", b"one", ack=True)
        batch.add(f"{stream.name}.2", b"two")
        batch.add(f"{stream.name}.3", b"three", ack=True)
        assert "3 messages, 3 sent" in repr(batch)
    assert batch.pub_ack is not None
    assert (batch.pub_ack.seq, batch.pub_ack.count) == (3, 3)
    assert [data for _, data in contents(stream)] == [b"one", b"two", b"three"]


def test_messages_keep_their_options(js: jsync.JetStream, stream: jsync.Stream) -> None:
    with js.atomic_batch() as batch:
        batch.add(
            f"{stream.name}.1",
            b"one",
            headers={"Own": "header"},
            msg_id="1",
            expected_stream=stream.name,
            expected_last_sequence=0,
            ttl=60,
        )
        batch.add(f"{stream.name}.2", b"two", expected_last_subject_sequence=0)
    first = stored(stream)[0].headers
    assert first is not None
    assert (first["Own"], first["Nats-Msg-Id"], first["Nats-TTL"]) == (
        "header",
        "1",
        "60s",
    )
    assert first["Nats-Batch-Id"] == batch.id


def test_a_batch_takes_at_most_a_thousand_messages(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.atomic_batch() as batch:
        for number in range(1000):
            batch.add(f"{stream.name}.1", b"%d" % number)
        with pytest.raises(errors.ConfigError, match="at most 1000"):
            batch.add(f"{stream.name}.1", b"1000")
    assert batch.pub_ack is not None
    assert batch.pub_ack.count == 1000
    assert [data for _, data in contents(stream)] == [b"%d" % n for n in range(1000)]


def test_the_server_refuses_one_more_without_our_guard(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    rows = [(f"{stream.name}.1", b"")] * 1001
    with pytest.raises(errors.AtomicPublishTooLargeBatchError):
        js.publish_batch(rows, max_messages=None)
    assert contents(stream) == []


def test_large_messages_are_a_batch_as_well(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    rows = [(f"{stream.name}.{n}", bytes([n]) * 900_000) for n in range(20)]
    assert js.publish_batch(rows, timeout=LONG).count == 20
    assert [data for _, data in contents(stream)] == [data for _, data in rows]


def test_a_batch_passes_tls(
    tls_server: LocalServer, certificates: Certificates, unique: str
) -> None:
    with jsync.connect(tls_server.url, tls_ca=certificates.ca.cert) as nc:
        js = nc.jetstream()
        stream = js.create_stream(
            name=unique, subjects=[f"{unique}.>"], allow_atomic=True, storage="memory"
        )
        rows = [(f"{unique}.{n}", bytes([n]) * 40_000) for n in range(100)]
        assert js.publish_batch(rows, timeout=LONG).count == 100
        fill(js.atomic_batch(timeout=LONG), *[f"{unique}.more"] * 5)
        assert [data for _, data in contents(stream)[:100]] == [d for _, d in rows]
        stream.delete()


# publish_batch --------------------------------------------------------------------------


def test_messages_are_published_at_once(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    rows = ((f"{stream.name}.{n}", b"%d" % n) for n in range(300))
    ack = js.publish_batch(rows)
    assert (ack.seq, ack.count) == (300, 300)
    assert contents(stream) == [(str(n), b"%d" % n) for n in range(300)]


def test_messages_published_at_once_may_have_options(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish_batch(
        [
            (f"{stream.name}.1", b"one", {"expected_last_sequence": 0}),
            (f"{stream.name}.2", bytearray(b"two"), {"msg_id": "2"}),
        ]
    )
    with pytest.raises(errors.AtomicPublishDuplicateMessageError):
        js.publish_batch(
            [(f"{stream.name}.3", b""), (f"{stream.name}.2", b"", {"msg_id": "2"})]
        )
    assert [data for _, data in contents(stream)] == [b"one", b"two"]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        ["a.b"],
        [("a.b",)],
        [("a.b", b"", {}, 1)],
        [("a.b", b"", {"msg_id": "1"}), ("a.b", b"", {"msg_id": "1"})],
        [("a.b", b""), ("a.b", b"", {"expected_last_sequence": 1})],
        [("a.b", b"", {"expected_last_msg_id": "1"})],
        [("a.b", b"", {"headers": {"Nats-Batch-Sequence": "1"}})],
    ],
)
def test_an_impossible_batch_is_rejected_before_sending(
    nc: jsync.Connection, rows: list[Any]
) -> None:
    before = nc.stats().out_messages
    with pytest.raises(errors.ConfigError):
        nc.jetstream().publish_batch(rows)
    assert nc.stats().out_messages == before


def test_a_known_stream_takes_batches_in_one_exchange(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.publish_batch([(f"{stream.name}.1", b"")])
    before = nc.stats().out_messages
    js.publish_batch([(f"{stream.name}.{n}", b"") for n in range(10)])
    assert nc.stats().out_messages == before + 10


def test_a_failing_iterable_publishes_nothing(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    def rows() -> Iterator[tuple[str, bytes]]:
        yield f"{stream.name}.1", b""
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        js.publish_batch(rows())
    assert contents(stream) == []


# Discarded batches ----------------------------------------------------------------------


def test_an_exception_in_the_block_stores_nothing(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    def fail() -> None:
        raise KeyError("mine")

    batch = js.atomic_batch()
    with pytest.raises(KeyError, match="mine"):
        fill(batch, *(f"{stream.name}.{n}" for n in range(5)), then=fail)
    assert batch.state is BatchState.DISCARDED
    assert contents(stream) == []


def test_a_discarded_batch_cannot_be_used_again(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.atomic_batch() as batch:
        batch.add(f"{stream.name}.1")
        batch.add(f"{stream.name}.2")
        batch.discard()
        batch.discard()
        for call in (lambda: batch.add(f"{stream.name}.3"), batch.commit):
            with pytest.raises(errors.AtomicBatchClosedError, match="discarded"):
                call()
    assert batch.pub_ack is None
    assert contents(stream) == []


def test_discarded_batches_leave_their_places_to_others(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    for _ in range(120):
        batch = js.atomic_batch()
        batch.add(f"{stream.name}.1")
        batch.add(f"{stream.name}.2")
        batch.discard()
    assert js.publish_batch([(f"{stream.name}.1", b"")] * 2).count == 2


def test_an_empty_batch_sends_nothing(
    nc: jsync.Connection, js: jsync.JetStream
) -> None:
    before = nc.stats().out_messages
    with js.atomic_batch() as batch:
        pass
    assert batch.pub_ack is None
    assert len(batch) == 0
    with pytest.raises(errors.AtomicBatchClosedError, match="discarded"):
        batch.add("late", b"")
    with pytest.raises(errors.ConfigError, match="empty"):
        js.atomic_batch().commit()
    assert nc.stats().out_messages == before


def test_calls_after_a_commit_are_rejected(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    batch = js.atomic_batch()
    batch.commit(f"{stream.name}.1")
    with pytest.raises(errors.AtomicBatchClosedError, match="committed"):
        batch.add(f"{stream.name}.2")
    with pytest.raises(errors.AtomicBatchClosedError, match="committed"):
        batch.commit()
    batch.discard()
    assert batch.state is BatchState.COMMITTED
    assert batch.resolve() is batch.pub_ack


def test_a_last_message_needs_a_subject(js: jsync.JetStream) -> None:
    batch = js.atomic_batch()
    with pytest.raises(errors.ConfigError, match="needs a subject"):
        batch.commit(data=b"data")
    with pytest.raises(errors.ConfigError, match="commit it first"):
        batch.resolve()


def test_a_rejected_message_leaves_the_batch_unchanged(
    js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with js.atomic_batch() as batch:
        batch.add(f"{stream.name}.1", msg_id="1")
        with pytest.raises(errors.ConfigError, match="twice"):
            batch.add(f"{stream.name}.2", msg_id="1")
        with pytest.raises(errors.MaxPayloadError):
            batch.add(f"{stream.name}.2", bytes(1 << 20))
        batch.add(f"{stream.name}.3")
    assert [subject for subject, _ in contents(stream)] == ["1", "3"]


# Threads and processes ------------------------------------------------------------------


def test_a_second_thread_inside_gets_an_error(js: jsync.JetStream, unique: str) -> None:
    js.create_stream(
        name=unique, subjects=[unique], allow_atomic=True, no_ack=True, storage="memory"
    )
    batch = js.atomic_batch(timeout=LONG)
    adding = Thread(batch.add, unique, b"")
    adding.result()
    adding = Thread(batch.add, unique, b"")
    adding.wait_until_blocked()
    for call in (lambda: batch.add(unique), batch.commit, batch.resolve):
        with pytest.raises(errors.ConcurrentUseError):
            call()
    batch.discard()
    connection_of(js).close()
    assert isinstance(adding.error(), errors.ConnectionClosedError)
    assert batch.state is BatchState.DISCARDED


@pytest.mark.parametrize("inside", ["add", "commit"])
def test_close_ends_a_call_that_waits(
    server: LocalServer, unique: str, inside: str
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(
            name=unique, subjects=[unique], allow_atomic=True, no_ack=True
        )
        batch = js.atomic_batch(timeout=LONG)
        batch.add(unique, b"")
        call = Thread(batch.add if inside == "add" else batch.commit, unique, b"")
        call.wait_until_blocked()
        nc.close()
        assert isinstance(call.error(), errors.ConnectionClosedError)
        assert batch.state is BatchState.FAILED
    with jsync.connect(server.url) as nc:
        nc.jetstream().delete_stream(stream.name)


def test_close_while_the_commit_waits_leaves_it_unclear(
    server: LocalServer, unique: str
) -> None:
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name=unique, subjects=[unique], allow_atomic=True, no_ack=True)
        batch = js.atomic_batch(timeout=LONG)
        call = Thread(batch.commit, unique, b"")
        call.wait_until_blocked()
        nc.close()
        error = call.error()
        assert isinstance(error, errors.AmbiguousCommitError)
        assert isinstance(error.__cause__, errors.ConnectionClosedError)
        assert batch.state is BatchState.UNCLEAR
        with pytest.raises(errors.ConnectionClosedError):
            error.resolve()
    with jsync.connect(server.url) as nc:
        nc.jetstream().delete_stream(unique)


def test_a_forked_child_cannot_touch_its_parents_batch(
    server: LocalServer,
) -> None:
    run_child(
        """
        import os, sys, jsync
        with jsync.connect(sys.argv[1]) as nc:
            js = nc.jetstream()
            js.create_stream(name="FORK", subjects=["fork"], allow_atomic=True,
                             storage="memory")
            with js.atomic_batch() as batch:
                batch.add("fork", b"1")
                batch.add("fork", b"2")
                pid = os.fork()
                if pid == 0:
                    refused = 0
                    for call in (lambda: batch.add("fork"), batch.commit, batch.discard):
                        try:
                            call()
                        except jsync.errors.ForkedProcessError:
                            refused += 1
                    try:
                        with batch:
                            raise KeyError
                    except KeyError:
                        refused += 1
                    os._exit(refused)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
            assert batch.pub_ack.count == 2
            js.delete_stream("FORK")
        """,
        server.url,
    )


def test_ctrl_c_before_an_ack_ends_the_batch(
    server: LocalServer,
) -> None:
    run_child(
        """
        import os, signal, sys, threading, time, jsync
        with jsync.connect(sys.argv[1]) as nc:
            js = nc.jetstream()
            stream = js.create_stream(name="CTRL", subjects=["ctrl"], allow_atomic=True,
                                      no_ack=True, storage="memory")
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                with js.atomic_batch(timeout=30) as batch:
                    batch.add("ctrl", b"1")
                    batch.add("ctrl", b"2")
            except KeyboardInterrupt:
                assert batch.state.value == "failed", batch
            else:
                raise AssertionError
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                with js.atomic_batch(timeout=30) as batch:
                    batch.add("ctrl", b"1")
            except KeyboardInterrupt:
                assert batch.state.value == "unclear", batch
            else:
                raise AssertionError
            ack = batch.resolve()
            assert (ack.seq, ack.count) == (1, 1), ack
            assert stream.info().state.messages == 1
            js.delete_stream("CTRL")
        """,
        server.url,
    )


def test_an_unclear_commit_survives_pickling_without_its_batch() -> None:
    error = errors.AmbiguousCommitError(
        "unclear", batch="id", resolver=lambda timeout: None
    )
    assert error.resolve() is None
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.batch) == ("unclear", "id")
    with pytest.raises(errors.ConfigError, match="copied"):
        again.resolve()


# Advisories -----------------------------------------------------------------------------


def test_advisories_tell_of_batches_that_were_given_up(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with (
        js.batch_advisories(stream.name) as advisories,
        js.batch_advisories() as all_of,
    ):
        nc.flush()
        batch = js.atomic_batch()
        batch.add(f"{stream.name}.1", ack=True)
        batch.discard()
        advisory = advisories.next(timeout=SOON)
        assert (advisory.stream, advisory.batch, advisory.reason) == (
            stream.name,
            batch.id,
            "incomplete",
        )
        assert advisory.type == "io.nats.jetstream.advisory.v1.stream_batch_abandoned"
        assert advisory.timestamp is not None
        assert advisory.id
        assert batch.id == all_of.next(timeout=SOON).batch
        with pytest.raises(errors.TimeoutError):
            advisories.next(timeout=0.05)
        assert f"{stream.name!r} active, 0 pending" in repr(advisories)
    with pytest.raises(errors.SubscriptionClosedError):
        advisories.next()
    assert list(advisories) == []


def test_advisories_of_other_streams_are_left_out(
    nc: jsync.Connection, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    with (
        js.batch_advisories(f"{stream.name}-other") as others,
        js.batch_advisories(stream.name) as advisories,
    ):
        nc.flush()
        with pytest.raises(errors.AtomicPublishTooLargeBatchError):
            js.publish_batch([(f"{stream.name}.1", b"")] * 1001, max_messages=None)
        assert next(iter(advisories)).reason == "large"
        with pytest.raises(errors.TimeoutError):
            others.next(timeout=0.05)
    with pytest.raises(errors.ConfigError):
        js.batch_advisories("a.b")
