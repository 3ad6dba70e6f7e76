"""The reader of a mailbox that calls a callback: the callback pool, or separate threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from .._fast import Mailbox
    from .session import Session


class CallbackReader:
    """Calls a callback with each message of a mailbox, to the end of the mailbox.

    Without `workers`, the callback pool of the connection makes the calls, one after the
    other. With them, as many threads do, which read this mailbox alone.
    """

    def __init__(
        self,
        session: Session,
        mailbox: Mailbox,
        name: str,
        workers: int | None,
        *,
        label: str,
        callback: Callable[[Any], object],
        raised: Callable[[Any, BaseException], object],
        failed: Callable[[BaseException], object],
        ended: Callable[[], object],
    ) -> None:
        """`raised` gets the exceptions of the callback.

        `failed` gets an error that keeps a thread from reading on. `ended` is called once,
        after the last call of the callback.
        """
        self.label = label
        self._session = session
        self._mailbox = mailbox
        self._name = f"{session.name}-{name}"
        self._callback = callback
        self._raised = raised
        self._failed = failed
        self._ended = ended
        self._pooled = workers is None
        self._workers = self._to_start = workers or 0
        # Each thread takes a number when it ends. Whichever takes 0 is the last one.
        self._ends = list(range(self._workers))
        self._own: set[threading.Thread] = set()

    @property
    def threads(self) -> Collection[threading.Thread]:
        """The threads that may be in the callback now."""
        if not self._pooled:
            return self._own
        runner = self._mailbox.runner
        return () if runner is None else (runner,)

    def start(self) -> None:
        """Start to read. Raises `RuntimeError` if the system has no more threads."""
        if self._pooled:
            self._session.callback_pool.add(self._mailbox, self)
            return
        while self._to_start:
            number = self._workers - self._to_start + 1
            self._session.thread_factory.start(f"{self._name}-{number}", self._work)
            self._to_start -= 1

    def start_or_retry(self, report: Callable[[Exception], object]) -> None:
        """Start to read, and retry while the system has no more threads. Does not raise."""
        if not self._session.start_or_retry(self._name, self.start, report):
            self._ended()

    def end_idle(self) -> None:
        """End now if no call is in progress and none follows, also beside a busy pool."""
        if self._pooled:
            self._session.callback_pool.end_idle(self._mailbox)

    # On the pool ----------------------------------------------------------------------

    def run(self) -> None:
        """Call the callback with messages that are there."""
        self._mailbox.hand_over_some(self._callback, self._raised)

    def end(self, error: BaseException | None) -> None:
        """End, after the last message or because `run` raised `error`."""
        if error is not None:
            self._failed(error)
        self._ended()

    # On separate threads --------------------------------------------------------------

    def _work(self) -> None:
        self._own.add(threading.current_thread())
        try:
            self._mailbox.hand_over(self._callback, self._raised)
        except Error as error:
            self._failed(error)
        finally:
            if self._ends.pop() == 0:
                self._ended()

    def __repr__(self) -> str:
        return f"<CallbackReader of {self.label}>"
