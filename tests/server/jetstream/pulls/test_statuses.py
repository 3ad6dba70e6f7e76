"""Tests of statuses, which the proxy sends in place of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync import errors
from jsync.jetstream.pulls.pull import Pull

from ....support.servers import RawClient, wait_for
from ....support.threads import LONG, SOON, Recorder, Thread
from .support import (
    Handler,
    Pulls,
    at_work,
    both_faces,
    fill,
    numbers,
)

if TYPE_CHECKING:
    import jsync
    from jsync.server import LocalServer

    from ....support.proxy import FaultProxy

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def _no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the retry of pulls without responders, which `test_fetch` tests."""
    monkeypatch.setattr(Pull, "retries", 0)


LEFT = ("Nats-Pending-Messages: 10", "Nats-Pending-Bytes: 0")


@both_faces
@pytest.mark.parametrize(
    ("status", "headers", "kind"),
    [
        ("408 Interest Expired", LEFT, None),
        ("408 Request Timeout", LEFT, None),
        ("404 No Messages", (), None),
        ("409 Batch Completed", LEFT, None),
        ("100 Idle Heartbeat", (), None),
        ("409 Leadership Change", (), errors.PullError),
        ("409 Server Shutdown", LEFT, errors.PullError),
        ("409 Something New", (), errors.PullError),
        ("409 Exceeded MaxWaiting", (), errors.PullError),
        ("400 Bad Request - Something", (), errors.PullError),
        ("412 Required Api Level", (), errors.PullError),
        ("408 Requests Pending", (), None),
        ("423 Nats-Wrong-Pin-Id", LEFT, errors.PullError),
        ("423 Nats-Pin-Id mismatch", (), errors.PullError),
        ("499 Something New", (), errors.PullError),
        ("499 Something New", LEFT, errors.PullError),
        ("503", (), errors.NoRespondersError),
    ],
    ids=str,
)
def test_a_status_ends_nothing_and_loses_nothing(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    face: str,
    status: str,
    headers: tuple[str, ...],
    kind: type[Exception] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fill(nc, stream, 3)
    told, handler = Recorder(), Handler()
    with at_work(face, far_worker, handler, max_messages=10, on_error=told):
        wait_for(lambda: handler.numbers == [0, 1, 2])
        before = pulls.count
        pulls.answer(status, *headers)
        if kind is not None:
            error = told.get()
            assert type(error) is kind
            if kind is errors.PullError:
                assert status.partition(" ")[2] in str(error)
        if not status.startswith("100"):
            wait_for(lambda: pulls.count > before)
        fill(nc, stream, 100)
        wait_for(lambda: len(handler.numbers) == 103)
    assert handler.numbers == list(range(103))
    assert pulls.count < 100
    assert told.waiting == 0
    # Warnings are also logged. Statuses that are ignored are not logged.
    logged = [r for r in caplog.records if r.name == "jsync.consume"]
    assert len(logged) == (kind is not None)
    for record in logged:
        assert record.levelname == "WARNING"
        assert f"{stream.name}.worker: {kind and kind.__name__}" in record.getMessage()


@pytest.mark.parametrize("text", ["Consumer is push based", "consumer deleted"])
def test_a_terminal_status_ends_it(
    far_worker: jsync.Consumer, pulls: Pulls, text: str
) -> None:
    messages = far_worker.messages()
    pulls.answer(f"409 {text}")
    with pytest.raises(errors.ConsumerDeletedError, match=text):
        next(iter(messages))
    consuming = far_worker.consume(print)
    wait_for(lambda: pulls.count == 2)
    pulls.answer(f"409 {text}")
    with pytest.raises(errors.ConsumerDeletedError, match=text):
        consuming.wait(SOON)


def test_many_rejections_in_a_row_do_not_spin(
    far_worker: jsync.Consumer, pulls: Pulls
) -> None:
    told = Recorder()
    with far_worker.messages(max_messages=10, on_error=told):
        for _ in range(20):
            pulls.answer("499 Something New")
            assert isinstance(told.get(), errors.PullError)
        # The pauses double: six take eight seconds.
        assert pulls.count <= 6


@both_faces
@pytest.mark.parametrize("status", ["409 Consumer Deleted", "100", "404 No Messages"])
def test_a_stored_message_resembling_a_status_is_delivered(
    server: LocalServer,
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    face: str,
    status: str,
) -> None:
    block = f"NATS/1.0 {status}\r\n\r\n".encode()
    with RawClient(server.url) as forger:
        forger.connect(headers=True)
        size = len(block)
        head = f"HPUB {stream.name}.a {size} {size}\r\n".encode()
        forger.send((head + block + b"\r\n") * 3 + b"PING\r\n")
        while forger.read_line() != "PONG":
            pass
    got: list[int] = []

    def handle(msg: jsync.JetStreamMsg) -> None:
        got.append(msg.metadata.stream_sequence)
        msg.ack()

    told = Recorder()
    with at_work(face, worker, handler=handle, max_messages=1, on_error=told):
        wait_for(lambda: got == [1, 2, 3])
    assert told.waiting == 0
    again = stream.create_consumer(name="again")
    assert [msg.metadata.stream_sequence for msg in again.fetch(3)] == [1, 2, 3]


# One pull at a time -------------------------------------------------------------------

ENDS = [
    ("404 No Messages", ()),
    ("408 Request Timeout", LEFT),
    ("408 Requests Pending", ()),
    ("408 Interest Expired", LEFT),
    ("409 Batch Completed", LEFT),
]
INTERRUPTIONS = [
    ("409 Leadership Change", ()),
    ("409 Server Shutdown", LEFT),
    ("423 Nats-Wrong-Pin-Id", LEFT),
    ("423 Nats-Pin-Id mismatch", ()),
]
FAILURES: list[tuple[str, type[Exception]]] = [
    ("400 Bad Request - Something", errors.PullError),
    ("409 Consumer Deleted", errors.ConsumerDeletedError),
    ("409 Consumer is push based", errors.ConsumerDeletedError),
    ("409 Exceeded MaxRequestBatch of 10", errors.PullError),
    ("409 Exceeded MaxRequestExpires of 1s", errors.PullError),
    ("409 Exceeded MaxRequestMaxBytes of 100", errors.PullError),
    ("409 Exceeded MaxWaiting", errors.PullError),
    ("409 Something New", errors.PullError),
    ("412 Required Api Level", errors.PullError),
    ("499 Something New", errors.PullError),
    ("503", errors.NoRespondersError),
]


def fetched(
    consumer: jsync.Consumer, pulls: Pulls, status: str, *headers: str, found: int
) -> Thread[tuple[list[int], jsync.Batch]]:
    """Fetch, and inject `status` after `found` messages."""
    batch = consumer.fetch(10, timeout=LONG)

    def read() -> tuple[list[int], jsync.Batch]:
        return numbers(batch), batch

    wait_for(lambda: len(batch._pull.inbox.mailbox) == found)
    pulls.answer(status, *headers)
    return Thread(read)


@pytest.mark.parametrize("found", [0, 3])
@pytest.mark.parametrize(("status", "headers"), ENDS, ids=str)
def test_an_end_status_ends_a_fetch_without_error(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    status: str,
    headers: tuple[str, ...],
    found: int,
) -> None:
    fill(nc, stream, found)
    got, batch = fetched(far_worker, pulls, status, *headers, found=found).result()
    assert got == list(range(found))
    assert batch.error is None
    assert pulls.count == 1


@pytest.mark.parametrize("found", [0, 3])
@pytest.mark.parametrize(("status", "headers"), INTERRUPTIONS, ids=str)
def test_an_interruption_ends_a_fetch_with_its_reason(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    status: str,
    headers: tuple[str, ...],
    found: int,
) -> None:
    fill(nc, stream, found)
    got, batch = fetched(far_worker, pulls, status, *headers, found=found).result()
    assert got == list(range(found))
    assert isinstance(batch.error, errors.PullError)
    assert status.partition(" ")[2] in str(batch.error)
    assert pulls.count == 1


@pytest.mark.parametrize("found", [0, 3])
@pytest.mark.parametrize(("status", "kind"), FAILURES, ids=str)
def test_a_fetch_raises_failures_after_the_received_messages(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    pulls: Pulls,
    status: str,
    kind: type[Exception],
    found: int,
) -> None:
    fill(nc, stream, found)
    batch = far_worker.fetch(10, timeout=LONG)
    wait_for(lambda: len(batch._pull.inbox.mailbox) == found)
    pulls.answer(status)
    iterator = iter(batch)
    assert [int(next(iterator).data) for _ in range(found)] == list(range(found))
    with pytest.raises(kind) as raised:
        next(iterator)
    assert type(raised.value) is kind
    assert type(batch.error) is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, errors.TimeoutError) for status, _ in ENDS),
        *((status, errors.PullError) for status, _ in INTERRUPTIONS),
        *FAILURES,
    ],
    ids=str,
)
def test_next_raises_for_each_status_that_ends_it(
    far_worker: jsync.Consumer, pulls: Pulls, status: str, kind: type[Exception]
) -> None:
    call = Thread(far_worker.next, LONG)
    pulls.answer(status)
    assert type(call.error()) is kind
    # A heartbeat does not end a pull, and the next call works.
    call = Thread(far_worker.next, LONG)
    wait_for(lambda: pulls.count == 2)
    pulls.answer("100 Idle Heartbeat")
    call.wait_until_blocked()
    pulls.answer("409 Consumer Deleted")
    assert isinstance(call.error(), errors.ConsumerDeletedError)


@pytest.mark.parametrize(
    ("status", "kind"),
    [*((status, None) for status, _ in ENDS), *FAILURES],
    ids=str,
)
def test_fetch_nowait_ends_with_each_status(
    nc: jsync.Connection,
    stream: jsync.Stream,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
    pulls: Pulls,
    status: str,
    kind: type[Exception] | None,
) -> None:
    # The proxy does not read from the server, which would reply first.
    proxy.deaf("server")
    batch = far_worker.fetch_nowait(10)
    pulls.answer(status)
    if kind is None:
        assert list(batch) == []
        assert batch.error is None
    else:
        with pytest.raises(kind):
            list(batch)
    proxy.hear()
