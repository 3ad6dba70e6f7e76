"""Tests that the memory of a reader does not grow."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from ....support.connection_faults import resident_bytes
from ....support.servers import wait_for
from ....support.threads import LONG
from .support import (
    both_faces,
    fill,
    take,
)

if TYPE_CHECKING:
    import jsync


pytestmark = pytest.mark.server


@both_faces
@pytest.mark.parametrize(
    "rounds", [5, pytest.param(100, marks=pytest.mark.fault)], ids=["few", "many"]
)
def test_memory_stays_flat(
    nc: jsync.Connection, stream: jsync.Stream, rounds: int, face: str
) -> None:
    count = 50_000
    fill(nc, stream, count)

    def read_all(number: int) -> None:
        consumer = stream.create_consumer(
            name=f"{face}{number}", ack_policy="none", mem_storage=True
        )
        if face == "messages":
            assert sum(1 for _ in consumer.messages(stop_after=count)) == count
        else:
            with consumer.consume(bool, stop_after=count) as consuming:
                assert consuming.wait(LONG)
        consumer.delete()

    for number in range(3):
        read_all(number)
    gc.collect()
    before = resident_bytes()
    for number in range(3, 3 + rounds):
        read_all(number)
    gc.collect()
    assert resident_bytes() - before < 5 << 20


def test_an_idle_reader_holds_only_what_it_requested(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 500)
    with worker.messages(max_messages=40) as messages:
        wait_for(lambda: messages.pending == 40)
        for _ in range(10):
            nc.flush()
            assert messages.pending == 40
            take(messages, 20)
            wait_for(lambda: messages.pending == 40)


def test_a_consumer_never_buffers_more_than_max_bytes(
    nc: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> None:
    fill(nc, stream, 500)
    with worker.messages(max_bytes=5000) as messages:
        mailbox = messages._pull.mailbox
        most = 0
        for _ in range(400):
            nc.flush()
            most = max(most, mailbox.bytes)
            take(messages, 1)
        assert 2500 < most <= 5000
