"""The threads that call the callbacks of a connection's subscriptions, watches and consumers.

`PoolGrowth` decides how many there are, and the `ReadyQueue` of the extension which
mailbox is next.
"""

from __future__ import annotations

import threading
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from .._fast import PoolThread, ReadyQueue, ends_by, forks
from ..errors import CallbackPoolExhaustedError, Error
from .callbacks import as_callback_error
from .pool_growth import PoolGrowth
from .sync import ForkSafeRLock

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._fast import Mailbox, WriteBuffer
    from .callbacks import ThreadFactory

IDLE_SECONDS = 10.0
"""Seconds without work after which a thread leaves."""


class PoolTask(Protocol):
    """Handles the messages of a mailbox on the pool."""

    @property
    def label(self) -> str:
        """The subscription, for errors."""

    def run(self) -> None:
        """Handle messages that are there, in a turn of limited length."""

    def end(self, error: BaseException | None) -> None:
        """End, after the last message or because `run` raised `error`. Must not raise."""


class CallbackPool:
    """Calls callbacks on up to `max_threads` threads, started when needed.

    Messages of a mailbox are handled one after the other, in order.
    """

    def __init__(
        self,
        name: str,
        write_buffer: WriteBuffer,
        thread_factory: ThreadFactory,
        max_threads: int,
        *,
        later: Callable[[float, Callable[[], object]], object],
        soon: Callable[[Callable[[], object]], object],
        retry: Callable[[Callable[[], object]], object],
        report: Callable[[Exception], object],
    ) -> None:
        """Pass calls of the I/O thread.

        `later` makes a call after some seconds, `soon` as soon as possible, and `retry`
        when threads may be available again. `report` gets errors.
        """
        self._name = name
        self._thread_factory = thread_factory
        self._later = later
        self._soon = soon
        self._retry = retry
        self._report = report
        # Re-entrant: a signal handler or a finaliser may close a mailbox at any time.
        self._lock = ForkSafeRLock()
        self._growth = PoolGrowth(max_threads)
        self._shortage = False
        """True if the last start of a thread has failed."""
        self._closed = False
        self._forks = forks()
        self.queue = ReadyQueue(write_buffer, self._starved)

    @property
    def threads(self) -> int:
        """The number of threads now."""
        return len(self._growth.threads)

    def add(self, mailbox: Mailbox, task: PoolTask) -> None:
        """Hand the messages of `mailbox` to `task` from now on."""
        mailbox.pool(self.queue, task)

    def end_idle(self, mailbox: Mailbox) -> None:
        """End the task of a closed mailbox now, on the calling thread.

        Does nothing if a call is in progress or still follows. All threads may be busy for
        long, and then none would end a task that has nothing left to do.
        """
        if forks() == self._forks:  # a forked child ends no task of its parent
            mailbox.end_idle()

    def close(self) -> None:
        """Have the threads leave after the waiting messages. Does not wait."""
        self._closed = self._growth.hurries = True
        self._grow()
        self.queue.end()

    # Threads that are started ---------------------------------------------------------

    def _grow_soon(self) -> None:
        if self._closed:
            self._grow()
        else:
            self._soon(self._grow)

    # The queue does not call it again, so Ctrl-C must not keep the pool from growing.
    _starved = ends_by(_grow_soon)(_grow_soon)

    def _grow(self) -> None:
        """Start a thread or report, if that is due, and check again later."""
        with self._lock:
            waiting, since, taken = self.queue.state()
            decision = self._growth.decide(monotonic(), waiting, since, taken)
        if decision.reports:
            self._report_exhaustion(waiting, monotonic() - since)
        if decision.starts is not None and not self._start(decision.starts):
            return
        if decision.again is None:
            if not self.queue.calm():
                self._starved()
        elif not self._closed:  # otherwise there may be no I/O thread any more
            self._later(decision.again, self._grow)

    def _start(self, number: int) -> bool:
        """Start a thread that is counted already. If that fails, it is retried later."""
        name = f"{self._name}-pool-{number}"
        try:
            self._thread_factory.start(name, partial(self._work, number))
        except BaseException as error:
            with self._lock:
                self._growth.ended(number)
            if not isinstance(error, RuntimeError):
                self._starved()  # Ctrl-C, after which the thread may still run
                raise
            # The system has no more threads, or the interpreter is exiting.
            first, self._shortage = not self._shortage, True
            if first:
                self._report(as_callback_error(f"starting {name}", error))
            if threading.main_thread().is_alive():
                self._retry(self._grow)
            else:
                self._end_all()
            return False
        self._shortage = False
        return True

    def _end_all(self) -> None:
        """End all waiting tasks, because no thread will start."""
        while (mailbox := self.queue.take()) is not None:
            self._end(mailbox, None)

    def _report_exhaustion(self, waiting: int, seconds: float) -> None:
        first = self.queue.first()
        # Another thread may take the mailbox now, and end its task.
        task: PoolTask | None = None if first is None else first.task
        label = "a subscription" if task is None else task.label
        bound = self._growth.max_threads
        self._report(
            CallbackPoolExhaustedError(
                f"all {bound} threads of the callback pool are busy, and {label} has "
                f"waited for {seconds:.1f} s, as one of {waiting}: raise callback_threads of "
                "jsync.connect, or give slow callbacks threads by workers",
                threads=bound,
                waiting=waiting,
            )
        )

    # On each thread -------------------------------------------------------------------

    def _work(self, number: int) -> None:
        with self._lock:
            self._growth.started(number)
        thread = PoolThread(self.queue, threading.current_thread())
        mailbox: Mailbox | None = None
        try:
            while (mailbox := thread.next(IDLE_SECONDS, mailbox)) is not None:
                self._run(mailbox)
        except Error:
            pass  # in a forked child, which has its own connections
        finally:
            with self._lock:
                self._growth.ended(number)
            if self._closed:
                self._grow()
            elif not self.queue.calm():
                # One came while this thread was leaving, and counted as a busy one.
                self._soon(self._grow)

    def _run(self, mailbox: Mailbox) -> None:
        task: PoolTask | None = mailbox.task  # None after `end_idle`
        if self._closed:
            self._grow()  # no I/O thread starts the thread for the next one
        try:
            if task is not None:
                task.run()
                if mailbox.end_turn():
                    return
        except BaseException as error:  # noqa: BLE001 (user code, or a fork)
            if forks() == self._forks:  # a forked child ends no task of its parent
                self._end(mailbox, error)
        else:
            self._end(mailbox, None)

    def _end(self, mailbox: Mailbox, error: BaseException | None) -> None:
        task: PoolTask | None = mailbox.claim_task()
        if task is not None:
            try:
                task.end(error)
            except BaseException as raised:  # noqa: BLE001 (the other tasks go on)
                self._report(as_callback_error(f"the end of {task.label}", raised))
        mailbox.leave_pool()

    def __repr__(self) -> str:
        return f"<CallbackPool of {self._name}, {self._growth!r}, {self.queue!r}>"
