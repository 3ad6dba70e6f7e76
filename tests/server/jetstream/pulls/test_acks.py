"""Tests of acks on the wire, and of the metadata in both forms of ack subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync

from ....support.servers import wait_for
from ....support.threads import SOON
from .support import fill, settled

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ....conftest import StartServer
    from ....support.proxy import FaultProxy, Side

pytestmark = [pytest.mark.server, pytest.mark.quick]


def test_the_acks_of_a_batch_leave_together(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
    proxy: FaultProxy,
) -> None:
    fill(nc, stream, 500)
    acks: list[int] = []

    def look(chunk: bytes, to: Side) -> bytes:
        if to == "server" and (count := chunk.count(b"+ACK")):
            acks.append(count)
        return chunk

    proxy.rewrite(look)
    msgs = list(far_worker.fetch(500, timeout=SOON))
    for msg in msgs:
        msg.ack()
    wait_for(lambda: settled(worker))
    assert sum(acks) == 500
    # With one write for each ack there would be 500.
    assert len(acks) < 100


@pytest.mark.parametrize("flag", ["false", "true"])
def test_newer_ack_subjects_are_understood_and_acked_to(
    own_server: StartServer, flag: str
) -> None:
    server: LocalServer = own_server(
        config=f"feature_flags {{ js_ack_fc_v2: {flag} }}\njetstream {{ domain: hub }}"
    )
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["S.>"])
        worker = stream.create_consumer(durable_name="worker")
        fill(nc, stream, 4)
        first, second, third, fourth = worker.fetch(4, timeout=SOON)
        reply = first.reply or ""
        assert len(reply.split(".")) == (9 if flag == "false" else 11)
        metadata = second.metadata
        assert (metadata.stream, metadata.consumer) == ("S", "worker")
        assert (metadata.stream_sequence, metadata.consumer_sequence) == (2, 2)
        assert (metadata.num_delivered, metadata.num_pending) == (1, 2)
        assert metadata.domain == (None if flag == "false" else "hub")
        first.ack()
        second.ack_sync()
        third.term()
        fourth.nak()
        again = worker.next(SOON)
        assert again.metadata.num_delivered == 2
        again.in_progress()
        again.ack()
        wait_for(lambda: settled(worker))


def test_an_ack_leaves_while_its_thread_is_busy(
    nc: jsync.Connection,
    stream: jsync.Stream,
    worker: jsync.Consumer,
    far_worker: jsync.Consumer,
) -> None:
    with far_worker.messages() as messages:
        for _ in range(3):
            fill(nc, stream, 1)
            messages.next(SOON).ack()
            # Ask on another connection, so that nothing moves on the connection of the ack.
            wait_for(lambda: settled(worker))


@pytest.mark.parametrize(
    ("max_ack_pending", "may_wait"), [(-1, True), (20, True), (19, False)]
)
def test_acks_wait_unless_the_server_needs_them(
    stream: jsync.Stream, max_ack_pending: int, may_wait: bool
) -> None:
    consumer = stream.create_consumer(max_ack_pending=max_ack_pending)
    with consumer.messages(max_messages=10) as messages:
        assert messages._pull.mailbox.holds_acks is may_wait
    with consumer.fetch(10, timeout=0.1) as batch:
        assert batch._pull.inbox.mailbox.holds_acks is may_wait
