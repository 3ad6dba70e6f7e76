"""How one consumer of an ordered consumer follows another (ADR-37), without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    PermissionsError,
)
from ...models import ConsumerInfo, StreamInfo
from ..inquiry import Inquiry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from ...core.timers import Timer
    from ..inquiry import Answer
    from .place import Place


class Succession:
    """Makes the next consumer at its `place`, on the I/O thread.

    `on_made` is called with it, and `on_end` with the error after which there will be
    none; what is tried again is told to `report`. The cursor is moved with `lock` held,
    and not at all once it is `stopped`.
    """

    def __init__(
        self,
        place: Place,
        lock: AbstractContextManager[object],
        *,
        stopped: Callable[[], bool],
        on_made: Callable[[ConsumerInfo], object],
        on_end: Callable[[Exception], object],
        report: Callable[[Exception], object],
    ) -> None:
        self._place = place
        self._lock = lock
        self._on_made, self._on_end, self._report = on_made, on_end, report
        self._inquiry: Inquiry | None = None
        self._creating = ""  # the consumer whose creation is being asked for
        self._timer: Timer | None = None
        self._stopped = stopped

    def begin(self, pause: float = 0.0) -> None:
        """Make one after so many seconds, in place of the one that was there."""
        self.after(pause, self._look_at_stream)

    def cancel(self) -> None:
        """Make none; one that is made all the same is deleted."""
        name, self._creating = self._creating, ""
        if self._inquiry is not None and name:
            # A server may do the deletion that was sent behind it before the creation.
            place = self._place
            self._inquiry.answer_to(lambda _: place.delete(name))
        elif self._inquiry is not None:
            self._inquiry.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def let_go(self) -> None:
        """Forget whom this is for, who refers to this."""
        self._on_made = self._on_end = self._report = _ignore
        self._stopped = _always

    def ask(
        self,
        subject: str,
        payload: Mapping[str, Any] | None,
        then: Callable[[Answer], object],
    ) -> None:
        """Ask the API; only the last question is answered."""
        try:
            self._inquiry = Inquiry(self._place.api, subject, payload, then)
        except (ConnectionLostError, ConnectionClosedError):
            pass  # the reconnect begins anew, or the close ends it
        except Error as error:
            self._failed(error)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Make a call then, unless it is cancelled; only the last one is."""
        if seconds > 0:
            session = self._place.api.session
            self._timer = session.call_later(seconds, call)
        else:
            call()

    def _look_at_stream(self) -> None:
        with self._lock:
            if self._stopped():
                return
            self._place.retire()
        self.ask(f"STREAM.INFO.{self._place.stream}", None, self._on_stream)

    def _on_stream(self, answer: Answer) -> None:
        # Who may not look at the stream may still read it.
        if not isinstance(answer, PermissionsError):
            try:
                with self._lock:
                    if self._stopped():
                        return
                    self._place.cursor.seen(StreamInfo.from_wire(reply_of(answer)))
            except Error as error:
                self._failed(error)
                return
        with self._lock:
            if self._stopped():
                return
            subject, payload, _ = self._place.creation()
        self._creating = payload["config"]["name"]
        self.ask(subject, payload, self._on_created)

    def _on_created(self, answer: Answer) -> None:
        self._creating = ""
        try:
            info = ConsumerInfo.from_wire(reply_of(answer))
        except Error as error:
            self._failed(error)
            return
        with self._lock:
            if self._stopped():
                self._place.delete(info.name)
                return
            self._place.cursor.began(info)
        self._on_made(info)

    def _failed(self, error: Error) -> None:
        if self._stopped():
            return
        try:
            pause = self._place.cursor.failed(error)
        except Error as final:
            self._on_end(final)
            return
        self._report(error)
        self.begin(pause)

    def __repr__(self) -> str:
        state = "stopped" if self._stopped() else self._creating or "at rest"
        return f"<Succession in {self._place.stream}, {state}>"


def reply_of(answer: Answer) -> dict[str, Any]:
    """The reply, or raise the error that came in its place."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ignore(_: object) -> None:
    pass


def _always() -> bool:
    return True
