"""Tests of two threads on one ingest or one atomic batch, where one thread abandons it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jsync import errors
from jsync.jetstream.atomic import engine as atomic_batch
from jsync.jetstream.atomic.engine import BatchState
from jsync.jetstream.ingest import engine as fast_ingest
from jsync.jetstream.ingest.engine import IngestState

from ....support.threads import Interrupting, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync import AtomicBatch, FastIngest, JetStream

pytestmark = pytest.mark.server

STRESS_SECONDS = 3.0


@pytest.fixture
def subject(js: JetStream, unique: str) -> Iterator[str]:
    js.create_stream(
        name=unique, subjects=[f"{unique}.>"], allow_batched=True, allow_atomic=True
    )
    yield f"{unique}.a"
    with contextlib.suppress(errors.APIError):
        js.delete_stream(unique)


def held(js: JetStream, subject: str) -> int:
    return js.stream(subject.removesuffix(".a")).info().state.messages


def test_an_ingest_abandoned_while_reading_answers_stays_abandoned(
    js: JetStream, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Interrupting(fast_ingest.TRANSITIONS, IngestState.STARTING)
    monkeypatch.setattr(fast_ingest, "TRANSITIONS", table)
    ingest = js.fast_ingest()
    table.call = ingest.abandon
    with contextlib.suppress(errors.IngestClosedError):
        ingest.add(subject, b"0")
    assert table.thread is not None
    table.thread.result()
    with pytest.raises(errors.IngestClosedError):
        ingest.add(subject, b"1")
    assert ingest._engine.state is IngestState.FAILED
    with pytest.raises(errors.IngestClosedError):
        ingest.close()


def test_a_batch_is_committed_or_discarded_never_both(
    js: JetStream, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Interrupting(atomic_batch.TRANSITIONS, BatchState.OPEN)
    monkeypatch.setattr(atomic_batch, "TRANSITIONS", table)
    batch = js.atomic_batch()
    batch.add(subject, b"0")
    batch.add(subject, b"1")
    after: list[BatchState] = []

    def discard() -> None:
        batch.discard()
        after.append(batch.state)

    table.call = discard
    ack = batch.commit()
    assert table.thread is not None
    table.thread.result()
    assert (ack.count, held(js, subject)) == (2, 2)
    assert after[0] in (BatchState.COMMITTING, BatchState.COMMITTED)
    assert batch.state is BatchState.COMMITTED


def test_discarding_during_the_first_message_frees_the_place(
    js: JetStream, subject: str
) -> None:
    for _ in range(60):  # a stream has room for 50
        batch = js.atomic_batch()
        batch.add(subject, b"0")
        discarding = Thread(batch.discard)
        with contextlib.suppress(errors.AtomicBatchClosedError, errors.APIError):
            batch.add(subject, b"1")
        discarding.result()
        assert batch.state is not BatchState.OPEN
    assert js.publish_batch([(subject, b"2"), (subject, b"3")]).count == 2
    assert held(js, subject) == 2


def test_a_discarded_batch_rejects_an_added_message(
    js: JetStream, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = js.atomic_batch()
    batch.add(subject, b"0")
    send = batch._driver.send

    def send_and_discard(*arguments: Any) -> None:
        send(*arguments)
        Thread(batch.discard).result()

    monkeypatch.setattr(batch._driver, "send", send_and_discard)
    with pytest.raises(errors.AtomicBatchClosedError, match="discarded"):
        batch.add(subject, b"1")
    assert batch.state is BatchState.DISCARDED


def against(
    work: Callable[[], object], other: Callable[[], object], delay: int
) -> None:
    """Run both calls at the same time, with a short delay for the other one."""
    together = threading.Barrier(2)

    def run() -> None:
        together.wait()
        work()

    thread = Thread(run)
    together.wait()
    for _ in range(delay):
        pass
    other()
    thread.result()


@pytest.mark.usefixtures("hasty")
def test_adding_while_abandoning_brings_no_ingest_back(
    js: JetStream, subject: str
) -> None:
    until = time.monotonic() + STRESS_SECONDS
    turn = 0
    while time.monotonic() < until or turn <= 10:
        turn += 1
        against_abandon(js.fast_ingest(flow=2), subject, turn)
    assert turn > 10


def against_abandon(ingest: FastIngest, subject: str, turn: int) -> None:
    def add_and_close() -> None:
        with contextlib.suppress(errors.IngestClosedError):
            for number in range(turn % 12):
                ingest.add(subject, b"%d" % number)
            ingest.close()

    ends: list[IngestState] = []

    def abandon() -> None:
        ingest.abandon()
        ends.append(ingest._engine.state)

    against(add_and_close, abandon, turn % 50)
    assert ends == [ingest._engine.state]
    assert ends[0] in (IngestState.FAILED, IngestState.ENDED)


@pytest.mark.usefixtures("hasty")
def test_committing_while_discarding_stores_no_discarded_message(
    js: JetStream, subject: str
) -> None:
    until = time.monotonic() + STRESS_SECONDS
    turn = wanted = 0
    while time.monotonic() < until:
        turn += 1
        batch = js.atomic_batch()
        batch.add(subject, b"0")
        batch.add(subject, b"1")
        against(lambda: commit(batch), batch.discard, turn % 50)  # noqa: B023 - it ends first
        assert batch.state in (BatchState.COMMITTED, BatchState.DISCARDED)
        wanted += 2 * (batch.state is BatchState.COMMITTED)
    assert held(js, subject) == wanted


def commit(batch: AtomicBatch) -> None:
    with contextlib.suppress(errors.AtomicBatchClosedError):
        batch.commit()
