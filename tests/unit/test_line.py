"""Tests of the turns of a line whose bytes another part encodes, such as a compressed WebSocket."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, cast

from jsync import errors
from jsync._fast import JetStreamMailbox, Line, Outbox, Waker

if TYPE_CHECKING:
    from jsync._fast import JetStreamMsg

SID = 1
ACK = b"$JS.ACK.S.C.1.7.7.1700000000000000000.0"


def test_an_ack_behind_a_full_socket_keeps_no_core_busy() -> None:
    near, far = socket.socketpair()
    waker = Waker()
    with near, far:
        near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                near.send(bytes(1 << 16))
        outbox = Outbox(waker.write_fd)
        line = Line(outbox, waker.read_fd)
        mailbox = JetStreamMailbox(outbox, SID)
        line.subscribe(SID, mailbox)
        line.open(near.fileno(), direct=False)
        outbox.open(near.fileno(), b"", direct=False)
        line.decrypted(b"MSG a %d %b 1\r\nx\r\n" % (SID, ACK))
        cast(
            "JetStreamMsg", mailbox.take_rest()[0]
        ).ack()  # waits for company, then for the socket
        before = time.thread_time()
        assert line.run(time.monotonic() + 0.5, writable=True) == []
        assert time.thread_time() - before < 0.25
        line.finish()
        outbox.close(errors.ConnectionClosedError("closed"))
    waker.close()
