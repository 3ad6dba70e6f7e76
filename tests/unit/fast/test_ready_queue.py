"""Tests of the queue of a callback pool, and of its threads."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from jsync._fast import IOLoop, Mailbox, PoolThread, ReadyQueue, WriteBuffer

if TYPE_CHECKING:
    from jsync._fast import Msg

ROUNDS = int(os.environ.get("JSYNC_MEETINGS", "2000"))
LONG = 300.0


def unexpected(msg: Msg, error: BaseException) -> None:
    raise AssertionError(f"{msg} raised") from error


class Station:
    """An I/O loop that the test feeds, and the queue of its mailboxes."""

    def __init__(self) -> None:
        self.write_buffer = WriteBuffer(limit=1 << 28, hold_limit=1 << 28)
        self.io_loop = IOLoop(self.write_buffer, -1)
        self.starved = 0
        self.queue = ReadyQueue(self.write_buffer, self._starve)

    def _starve(self) -> None:
        self.starved += 1

    def mailbox(self, sid: int, task: object = None) -> Mailbox:
        mailbox = Mailbox(self.write_buffer, sid)
        self.io_loop.subscribe(sid, mailbox)
        mailbox.pool(self.queue, sid if task is None else task)
        return mailbox

    def message(self, sid: int, value: int) -> None:
        data = b"%d" % value
        events = self.io_loop.decrypted(
            b"MSG a %d %d\r\n%b\r\n" % (sid, len(data), data)
        )
        for _, call in events:
            call()

    def thread(self) -> PoolThread:
        return PoolThread(self.queue, threading.current_thread())


@pytest.fixture
def station() -> Station:
    return Station()


def test_mailboxes_come_in_the_order_of_messages(station: Station) -> None:
    mailboxes = [station.mailbox(sid) for sid in range(1, 40)]
    assert repr(station.queue) == "<ReadyQueue, 0 mailboxes>"
    for sid in (3, 1, 3, 2, *range(4, 40)):
        station.message(sid, 0)
    assert station.queue.first() is mailboxes[2]
    assert station.queue.state()[0] == 39
    thread = station.thread()
    taken = [thread.next(LONG) for _ in range(39)]
    assert [m and m.sid for m in taken] == [3, 1, 2, *range(4, 40)]
    assert taken[0] is not None
    assert len(taken[0]) == 2
    assert station.queue.state() == (0, 0.0, 39)
    assert thread.next(0.0) is None


def test_a_mailbox_returns_while_it_has_messages(station: Station) -> None:
    mailbox = station.mailbox(1)
    station.message(1, 0)
    thread, me = station.thread(), threading.current_thread()
    assert thread.next(LONG) is mailbox
    assert (mailbox.runner is me, mailbox.task) == (True, 1)
    station.message(1, 1)
    assert station.queue.state()[0] == 0  # a thread has it
    assert mailbox.end_turn()
    assert repr(mailbox.runner) == "None"
    assert thread.next(LONG) is mailbox
    got: list[bytes] = []
    mailbox.hand_over_some(lambda msg: got.append(msg.data), unexpected)
    assert got == [b"0", b"1"]
    assert mailbox.end_turn()
    assert thread.next(0.0) is None
    mailbox.close()
    assert thread.next(LONG) is mailbox
    assert not mailbox.end_turn()
    assert mailbox.claim_task() == 1
    assert mailbox.claim_task() is None
    mailbox.leave_pool()
    assert mailbox.task is None
    mailbox.close()
    assert station.queue.state()[0] == 0


class Ending:
    """The task of a mailbox, which counts how often it is ended."""

    def __init__(self) -> None:
        self.ends = 0
        self.error: BaseException | None = None

    def end(self, error: BaseException | None) -> None:
        assert error is None
        self.ends += 1
        if self.error is not None:
            raise self.error


def test_only_idle_mailboxes_end_without_a_thread(station: Station) -> None:
    task = Ending()
    mailbox = station.mailbox(1, task)
    thread = station.thread()
    mailbox.end_idle()
    assert task.ends == 0  # messages may come
    station.message(1, 0)
    mailbox.close()
    mailbox.end_idle()
    assert task.ends == 0  # a message waits
    assert thread.next(LONG) is mailbox
    mailbox.take_rest()
    mailbox.end_idle()
    assert task.ends == 0  # a thread has it
    station.message(1, 0)
    other, done = station.mailbox(2, Ending()), Ending()
    other.close()
    third = station.mailbox(3, done)
    third.close()
    third.end_idle()
    third.end_idle()
    assert done.ends == 1
    assert thread.next(LONG) is other
    assert thread.next(LONG) is third  # it was in the queue
    assert third.task is None
    third.leave_pool()
    third.close()
    assert thread.next(0.0) is None


def test_an_interrupted_end_is_left_to_the_pool(station: Station) -> None:
    task = Ending()
    mailbox = station.mailbox(1, task)
    mailbox.close()
    thread = station.thread()
    task.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        mailbox.end_idle()
    assert mailbox.task is task
    assert thread.next(LONG) is mailbox
    assert thread.next(0.0) is None
    assert not mailbox.end_turn()
    assert mailbox.claim_task() is task
    mailbox.leave_pool()


def test_a_roused_mailbox_gets_one_turn(station: Station) -> None:
    mailbox = station.mailbox(1)
    thread = station.thread()
    for _ in range(2):
        mailbox.request_turn()
        mailbox.request_turn()
        assert thread.next(LONG) is mailbox
        assert mailbox.end_turn()
        assert thread.next(0.0) is None


def test_a_mailbox_roused_during_its_turn_returns(station: Station) -> None:
    mailbox, other = station.mailbox(1), station.mailbox(2)
    station.message(1, 0)
    thread = station.thread()
    assert thread.next(LONG) is mailbox
    mailbox.request_turn()
    station.message(2, 0)
    mailbox.hand_over_some(lambda _: None, unexpected)
    assert mailbox.end_turn()
    assert thread.next(LONG) is other
    other.hand_over_some(lambda _: None, unexpected)
    assert other.end_turn()
    assert thread.next(LONG) is mailbox
    assert mailbox.end_turn()
    assert thread.next(0.0) is None


def test_an_ended_mailbox_is_not_roused(station: Station) -> None:
    mailbox = station.mailbox(1)
    mailbox.request_turn()
    mailbox.close()
    thread = station.thread()
    assert thread.next(LONG) is mailbox
    mailbox.request_turn()
    assert not mailbox.end_turn()
    mailbox.request_turn()
    mailbox.claim_task()
    mailbox.leave_pool()
    mailbox.request_turn()
    assert station.queue.state()[0] == 0
    alone = Mailbox(station.write_buffer, 9)
    alone.request_turn()  # it has no pool


def test_a_turn_is_short_while_others_wait(station: Station) -> None:
    first, second = station.mailbox(1), station.mailbox(2)
    for value in range(200):
        station.message(1, value)
    thread = station.thread()
    assert thread.next(LONG) is first
    got: list[int] = []

    def handle(msg: Msg) -> None:
        got.append(int(msg.data))
        if len(got) == 10:
            station.message(2, 0)

    first.hand_over_some(handle, unexpected)
    assert 10 <= len(got) <= 64
    assert first.end_turn()
    assert thread.next(LONG) is second
    second.hand_over_some(lambda _: None, unexpected)
    assert second.end_turn()
    assert thread.next(LONG) is first
    first.hand_over_some(handle, unexpected)
    assert got == list(range(200))


def test_exceptions_of_a_handler_end_no_turn(station: Station) -> None:
    mailbox = station.mailbox(1)
    for value in range(3):
        station.message(1, value)
    raised: list[tuple[bytes, str]] = []

    def handle(msg: Msg) -> object:
        raise KeyboardInterrupt(f"out of {int(msg.data)}")

    assert station.thread().next(LONG) is mailbox
    mailbox.hand_over_some(handle, lambda msg, e: raised.append((msg.data, str(e))))
    assert raised == [(b"%d" % n, f"out of {n}") for n in range(3)]


def test_a_starved_queue_tells_once_until_calm(station: Station) -> None:
    for sid in range(1, 4):
        station.mailbox(sid)
        station.message(sid, 0)
    assert station.starved == 1
    assert not station.queue.calm()
    thread = station.thread()
    for _ in range(3):
        thread.next(LONG)
    assert station.queue.calm()
    station.mailbox(4).close()
    assert station.starved == 2


def test_a_message_before_the_pool_counts_too(station: Station) -> None:
    mailbox = Mailbox(station.write_buffer, 1)
    station.io_loop.subscribe(1, mailbox)
    station.message(1, 0)
    assert station.starved == 0
    mailbox.pool(station.queue, "task")
    assert station.starved == 1
    assert station.queue.take() is mailbox
    assert station.queue.take() is None


def test_idle_threads_wake_one_after_the_other(station: Station) -> None:
    """A thread that takes a mailbox and leaves another one wakes the next thread."""
    both = threading.Barrier(3)
    taken: list[Mailbox | None] = []

    def work() -> None:
        thread = station.thread()
        taken.append(thread.next(LONG))
        both.wait(LONG)  # neither goes on before both have one
        assert thread.next(LONG) is None

    for sid in (1, 2):
        station.mailbox(sid)
    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    for sid in (1, 2):
        station.message(sid, 0)
    both.wait(LONG)
    assert sorted(m.sid for m in taken if m) == [1, 2]
    station.queue.end()
    for each in threads:
        each.join(LONG)
        assert not each.is_alive()


def test_mailboxes_are_read_by_one_thread_each(station: Station) -> None:
    number = 10
    mailboxes = {sid: station.mailbox(sid) for sid in range(1, number + 1)}
    got: dict[int, list[int]] = {sid: [] for sid in mailboxes}
    busy = {sid: threading.Lock() for sid in mailboxes}
    wrong: list[BaseException] = []

    def keep(values: list[int], msg: Msg) -> None:
        values.append(int(msg.data))

    def work() -> None:
        thread = station.thread()
        mailbox: Mailbox | None = None
        try:
            while (mailbox := thread.next(LONG, mailbox)) is not None:
                sid = mailbox.task
                assert busy[sid].acquire(blocking=False)
                values = got[sid]
                mailbox.hand_over_some(partial(keep, values), unexpected)
                busy[sid].release()
                if not mailbox.end_turn():
                    mailbox.claim_task()
                    mailbox.leave_pool()
        except BaseException as error:  # noqa: BLE001 - raised below
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for value in range(ROUNDS):
        for sid in mailboxes:
            station.message(sid, value)
    for mailbox in mailboxes.values():
        mailbox.close()
    station.queue.end()
    for each in threads:
        each.join(LONG)
        assert not each.is_alive(), "a thread hangs"
    for error in wrong:
        raise error
    assert all(values == list(range(ROUNDS)) for values in got.values())
    assert all(mailbox.task is None for mailbox in mailboxes.values())
