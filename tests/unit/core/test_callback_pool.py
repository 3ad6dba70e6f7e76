"""Tests of the callback pool at moments between its steps, without a connection."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from jsync._fast import IOLoop, Mailbox, WriteBuffer
from jsync.core import callback_pool
from jsync.core.callback_pool import CallbackPool
from jsync.core.callbacks import ThreadFactory

from ...support.threads import LONG, wait_until_blocked

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from jsync._fast import Msg


class Reader:
    """Sets `came` at the first message of its mailbox."""

    label = "'a'"

    def __init__(self, mailbox: Mailbox) -> None:
        self.came = threading.Event()
        self.may_end = threading.Event()
        self._mailbox = mailbox

    def run(self) -> None:
        self._mailbox.hand_over_some(self._handle, self._raised)

    def _handle(self, msg: Msg) -> None:
        self.came.set()
        assert self.may_end.wait(LONG)

    def _raised(self, msg: Msg, error: BaseException) -> None:
        raise AssertionError(f"{msg} raised") from error

    def end(self, error: BaseException | None) -> None:
        assert error is None


def test_a_message_for_a_leaving_thread_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thread that leaves counts until then, and may be the last of a full pool."""
    monkeypatch.setattr(callback_pool, "IDLE_SECONDS", 0.0)
    write_buffer = WriteBuffer(limit=1 << 20, hold_limit=1 << 20)
    io_loop = IOLoop(write_buffer, -1)
    due: list[Callable[[], object]] = []
    another = threading.Event()

    def soon(call: Callable[[], object]) -> None:
        due.append(call)
        another.set()

    def report(error: Exception) -> None:
        raise AssertionError("an error was reported") from error

    def later(seconds: float, call: Callable[[], object]) -> None:
        """Never call: a second is too late."""

    pool = CallbackPool(
        "test",
        write_buffer,
        ThreadFactory(),
        1,
        later=later,
        soon=soon,
        retry=soon,
        report=report,
    )
    mailboxes = [Mailbox(write_buffer, sid) for sid in (1, 2)]
    first, second = readers = [Reader(mailbox) for mailbox in mailboxes]
    for sid, mailbox in enumerate(mailboxes, 1):
        io_loop.subscribe(sid, mailbox)
        pool.add(mailbox, readers[sid - 1])

    def deliver(sid: int) -> None:
        for _, call in io_loop.decrypted(b"MSG a %d 1\r\na\r\n" % sid):
            call()
        while due:
            due.pop()()

    deliver(1)
    assert first.came.wait(LONG)
    with pool._lock:
        first.may_end.set()
        (thread,) = (t for t in threading.enumerate() if t.name == "test-pool-1")
        wait_until_blocked(thread)  # it leaves, and looks at the queue no more
        deliver(2)
        assert pool.threads == 1
        another.clear()
    assert another.wait(LONG)
    while due:
        due.pop()()
    assert second.came.wait(LONG)
    second.may_end.set()
    pool.close()
