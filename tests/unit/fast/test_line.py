"""Tests of the I/O loop of a socket whose bytes another part encodes, such as a compressed WebSocket."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, cast

from jsync import errors
from jsync._fast import IOLoop, JetStreamMailbox, Waker, WriteBuffer

if TYPE_CHECKING:
    from jsync._fast import JetStreamMsg

SID = 1
ACK = b"$JS.ACK.S.C.1.7.7.1700000000000000000.0"


def test_an_ack_behind_a_full_socket_never_spins() -> None:
    near, far = socket.socketpair()
    waker = Waker()
    with near, far:
        near.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                near.send(bytes(1 << 16))
        write_buffer = WriteBuffer(waker.write_fd)
        io_loop = IOLoop(write_buffer, waker.read_fd)
        mailbox = JetStreamMailbox(write_buffer, SID)
        io_loop.subscribe(SID, mailbox)
        io_loop.open(near.fileno(), direct=False)
        write_buffer.open(near.fileno(), b"", direct=False)
        io_loop.decrypted(b"MSG a %d %b 1\r\nx\r\n" % (SID, ACK))
        cast(
            "JetStreamMsg", mailbox.take_rest()[0]
        ).ack()  # waits for company, then for the socket
        before = time.thread_time()
        assert io_loop.run_once(time.monotonic() + 0.5, writable=True) == []
        assert time.thread_time() - before < 0.25
        io_loop.finish()
        write_buffer.close(errors.ConnectionClosedError("closed"))
    waker.close()
