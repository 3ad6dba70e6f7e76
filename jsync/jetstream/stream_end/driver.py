"""Ask the leader of a stream for its end: from a thread that may wait, or on the I/O thread."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from ...errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    JetStreamUnavailableError,
    TimeoutError as LateError,
)
from ..api import Inquiry, answered
from ..steps import advance
from .engine import ask_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..api import API
    from ..steps import Answer, Made, Steps
    from .engine import Rest, StreamEnd

RETRY_SECONDS: Final = 0.25
"""The pause before the next question, while there is no leader."""
MIN_ATTEMPT: Final = 1.0
"""Seconds that an answer may take, at least."""


def stream_end(api: API, stream: str, deadline: float) -> StreamEnd:
    """Ask for the end of a stream until the leader answers; blocks.

    Raises `TimeoutError` at the deadline, `StreamNotFoundError`, and what else ends it.
    """
    return until_answered(
        api, lambda: ask_end(stream), deadline, patience=_patience(deadline)
    )


def stream_rest(api: API, steps: Callable[[], Steps[Rest]], deadline: float) -> Rest:
    """Ask for the rest of a stream until the leader answers; blocks, as `stream_end`.

    `steps` begins the question, see `ask_rest`.
    """
    return until_answered(api, steps, deadline, patience=_patience(deadline))


def _patience(deadline: float) -> float:
    """How long one answer may take: a new leader does not hear what the old one was asked."""
    return max(MIN_ATTEMPT, (deadline - monotonic()) / 2)


def until_answered(
    api: API, ask: Callable[[], Steps[Made]], deadline: float, *, patience: float = inf
) -> Made:
    """Ask again while there is no leader, or none answers within `patience` seconds.

    Raises `TimeoutError` at the deadline.
    """
    while True:
        try:
            return answered(api, ask(), min(deadline, monotonic() + patience))
        except (JetStreamUnavailableError, LateError) as error:
            late, left = isinstance(error, LateError), deadline - monotonic()
            if left <= RETRY_SECONDS or (late and patience == inf):
                raise
        if not late:
            api.session.sleep(RETRY_SECONDS)


def follow(
    api: API, steps: Steps[Made], then: Callable[[Made | Error], object]
) -> None:
    """Send each request of the steps, and call `then` on the I/O thread with the outcome.

    Not at all when the connection breaks or closes, as an `Inquiry`.
    """

    def answered(answer: Answer | None) -> None:
        try:
            ask = advance(steps, answer)
        except StopIteration as done:
            then(done.value)
            return
        except Error as error:
            then(error)
            return
        try:
            Inquiry(api, ask.subject, ask.payload, answered)
        except (ConnectionLostError, ConnectionClosedError):
            pass  # whoever asks hears of it
        except Error as error:
            then(error)

    answered(None)
