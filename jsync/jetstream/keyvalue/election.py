"""Leader election, one leader among many candidates. `KeyValue.elect` returns it."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from ...core.callbacks import as_callback_error
from ...core.resources import NotCopyable, StopOnExit
from ...core.sync import ForkSafeRLock, Latch
from ...errors import ConnectionClosedError, Error, JetStreamError
from ...validation import check_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.session import Session
    from ...errors import LockLostError
    from ...validation import Seconds
    from .lock import Lock

ERROR_BACKOFF = 1.0
"""Seconds until a candidate that met an error tries again."""


class Election(StopOnExit, NotCopyable):
    """A candidate that leads whenever it has the lock of the election.

    A thread of its own waits for the lock. A leader that loses it is a candidate again.
    Leaving the `with` block gives the leadership up, and the candidacy. So does a drain of
    the connection, once the callbacks and handlers of the connection have returned.

    Example:
        ```python
        kv = js.create_key_value(bucket="locks", limit_marker_ttl=60)
        with kv.elect("scheduler", ttl=30) as election:
            if election.is_leader:
                print("this process leads")
        ```
    """

    def __init__(
        self,
        session: Session,
        make: Callable[[Callable[[LockLostError], object]], Lock],
        on_elected: Callable[[int], object] | None,
        on_lost: Callable[[], object] | None,
    ) -> None:
        self._session = session
        self._on_elected, self._on_lost = on_elected, on_lost
        self._lock = make(self._step_down)
        # Guards the two below. Re-entrant, because a signal handler may call `stop` while
        # this thread holds it.
        self._term_lock = ForkSafeRLock()
        self._term: Latch | None = None
        self._stopped = False
        self._finished = Latch(session.write_buffer)
        # The error that ended the last wait for the lock, if any.
        self._failure: Error | None = None
        # The thread of the election, and that of the lock once it has reported a loss.
        self._thread: threading.Thread | None = None
        self._lock_thread: threading.Thread | None = None
        # Acquire here, so that a permanent error is raised to the caller.
        won = self._lock.acquire(0)
        try:
            # The work of the leader must end first, so stop only after the other parts.
            session.add_drain_callback(self, self._stop_before)
            name = f"{session.name}-election"
            session.thread_factory.start(name, lambda: self._run(won))
        except BaseException:
            # No thread could be started, or Ctrl-C came, perhaps after it had begun.
            self._end_nowait()
            session.remove_drain_callback(self)
            self._lock.release()
            raise

    @property
    def is_leader(self) -> bool:
        """True while this candidate leads, by the clock of this machine. See `Lock`."""
        return self._lock.held

    @property
    def token(self) -> int:
        """The revision of this leadership. Each later leader has a higher one.

        Raises:
            LockLostError: The leadership was lost.
            LockNotHeldError: This candidate does not lead.
            ForkedProcessError: This is a child of the process that leads.
        """
        return self._lock.token

    def stop(self, timeout: Seconds = 30.0) -> None:
        """Give up the leadership and the candidacy. A second call does nothing.

        The callbacks themselves may call `stop`, which then does not wait for them.

        Args:
            timeout: Seconds to wait at most until a callback has returned.

        Raises:
            ConfigError: `timeout` is not a number of seconds. The candidacy continues.
        """
        timeout = check_seconds(timeout, "timeout")
        self._end_nowait()
        if not self._is_current:
            self._finished.wait(timeout)

    def _end_nowait(self) -> None:
        """Have the thread give up the leadership and end. Does not wait for it."""
        with self._term_lock:
            self._stopped = True
            term = self._term
        self._lock.cancel()
        if term is not None:
            term.set()

    @property
    def _is_current(self) -> bool:
        """True if the caller is a callback of this election."""
        return threading.current_thread() in (self._thread, self._lock_thread)

    def _stop_before(self, deadline: float) -> None:
        """Stop at the end of a drain, because a callback could not release the lock later."""
        self.stop(max(0.0, deadline - monotonic()))
        if self._is_current:
            self._lock.release()

    def _run(self, won: bool) -> None:
        self._thread = threading.current_thread()
        try:
            while not self._stopped:
                if won or self._try_acquire():
                    self._run_leader()
                won = False
        except ConnectionClosedError:
            pass  # the caller of close knows
        finally:
            self._session.remove_drain_callback(self)
            self._lock.release()
            self._finished.set()

    def _try_acquire(self) -> bool:
        try:
            won = self._lock.acquire()
            self._failure = None
            return won
        except ConnectionClosedError:
            raise
        except Error as error:
            if type(error) is not type(self._failure):
                self._session.callbacks.report(error)
            self._failure = error
            Latch(self._session.write_buffer).wait(ERROR_BACKOFF)
            return False

    def _run_leader(self) -> None:
        term = Latch(self._session.write_buffer)
        with self._term_lock:
            self._term = term
            if self._stopped:
                term.set()
        if self._on_elected is not None:
            try:
                self._on_elected(self._lock.token)
            except JetStreamError:
                pass  # the lock is already lost, and `on_lost` follows
            except BaseException as error:  # noqa: BLE001 - user code
                self._session.callbacks.report(as_callback_error("on_elected", error))
        if self._lock.held:
            term.wait(None)
        self._end(term)
        self._lock.release()

    def _step_down(self, error: LockLostError) -> None:
        """End the term, on the thread of the lock, which notices a loss in time."""
        self._lock_thread = threading.current_thread()
        if not self._session.closed_by_user:
            self._session.callbacks.report(error)
        term = self._term
        if term is not None:
            self._end(term)

    def _end(self, term: Latch) -> None:
        """End a term, and call `on_lost` if that was not done before."""
        with self._term_lock:
            ended = self._term is not term
            self._term = None
        term.set()
        if ended or self._on_lost is None:
            return
        try:
            self._on_lost()
        except BaseException as error:  # noqa: BLE001 - user code
            self._session.callbacks.report(as_callback_error("on_lost", error))

    def __repr__(self) -> str:
        return f"<Election {'led by this' if self.is_leader else 'candidate'}>"
