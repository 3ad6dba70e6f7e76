"""Query the leader of a stream for its end, from a thread that may block or the I/O thread."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from ... import errors
from ...errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    JetStreamUnavailableError,
)
from ..api import CallbackRequest, answered
from ..steps import send_next
from .engine import end_steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..api import API
    from ..steps import Made, ReplyOrError, Steps
    from .engine import PendingMessages, StreamEnd

RETRY_SECONDS: Final = 0.25
"""The pause in seconds before the next request, while there is no leader."""
MIN_ATTEMPT: Final = 1.0
"""The least seconds to wait for one answer."""


def stream_end(api: API, stream: str, deadline: float) -> StreamEnd:
    """Request the end of a stream until the leader answers. Blocks.

    Raises `TimeoutError` or `JetStreamUnavailableError` at the deadline. Errors that waiting
    does not mend, such as `StreamNotFoundError`, are raised immediately.
    """
    return until_answered(
        api,
        lambda: end_steps(stream),
        deadline,
        answer_timeout=_answer_timeout(deadline),
    )


def stream_pending(
    api: API, steps: Callable[[], Steps[PendingMessages]], deadline: float
) -> PendingMessages:
    """Ask the leader for the pending messages until it answers. Blocks, as `stream_end`.

    `steps` begins the request, see `pending_steps`. Raises the errors that `stream_end` raises.
    """
    return until_answered(
        api, steps, deadline, answer_timeout=_answer_timeout(deadline)
    )


def _answer_timeout(deadline: float) -> float:
    """Return the seconds to wait for one answer.

    They are only a part of the time left, because a new leader does not get a request that was
    sent to the old one.
    """
    return max(MIN_ATTEMPT, (deadline - monotonic()) / 2)


def until_answered(
    api: API,
    ask: Callable[[], Steps[Made]],
    deadline: float,
    *,
    answer_timeout: float = inf,
) -> Made:
    """Repeat a request while there is no leader, or no answer within `answer_timeout` seconds.

    Raises `TimeoutError` or `JetStreamUnavailableError` at the deadline.
    """
    while True:
        try:
            return answered(api, ask(), min(deadline, monotonic() + answer_timeout))
        except (JetStreamUnavailableError, errors.TimeoutError) as error:
            late, left = isinstance(error, errors.TimeoutError), deadline - monotonic()
            if left <= RETRY_SECONDS or (late and answer_timeout == inf):
                raise
        if not late:
            api.session.sleep(RETRY_SECONDS)


def follow(
    api: API, steps: Steps[Made], then: Callable[[Made | Error], object]
) -> None:
    """Send each request of the steps, and call `then` on the I/O thread with the outcome.

    If the connection breaks or closes, `then` is not called, as with an `CallbackRequest`.
    """

    def answered(answer: ReplyOrError | None) -> None:
        try:
            ask = send_next(steps, answer)
        except StopIteration as done:
            then(done.value)
            return
        except Error as error:
            then(error)
            return
        try:
            CallbackRequest(api, ask.subject, ask.payload, answered)
        except (ConnectionLostError, ConnectionClosedError):
            pass  # the caller learns of it from the connection
        except Error as error:
            then(error)

    answered(None)
