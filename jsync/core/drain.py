"""Objects that a drain of the connection drains too, and the three steps of a drain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING

from ..errors import DrainTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Drainable(ABC):
    """An object that a drain of the connection drains too, such as a `Subscription`.

    The session refers to it weakly, so that a forgotten object is collected.
    """

    @abstractmethod
    def _stop_delivery(self) -> None:
        """Stop the server from sending, as the first step. May block for a second or two."""

    def _end_reader(self) -> None:  # noqa: B027 - some have no backlog
        """End the reader after its buffered messages, once all messages have arrived."""

    @abstractmethod
    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the callback has handled the buffered messages, as the last step.

        Raises `DrainTimeoutError` at the deadline.
        """


def drain_all(
    parts: Sequence[Drainable],
    ping: Callable[[float], object],
    deadline: float,
    timeout: float,
) -> None:
    """Drain all `parts` together. Raises the first `DrainTimeoutError` at the end."""
    for part in parts:
        # A part that waits for the server may take a second.
        if monotonic() >= deadline:
            break
        part._stop_delivery()
    ping(deadline)
    for part in parts:
        part._end_reader()
    late: DrainTimeoutError | None = None
    for part in parts:
        try:
            part._wait_finished(deadline, timeout)
        except DrainTimeoutError as error:
            late = late or error  # the other parts are still finished
    if late is not None:
        raise late
