"""How long a lost connection, or a stream without a leader, is waited for."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from ..errors import (
    ConnectionClosedError,
    ConnectionError as BrokenError,
    ConnectionLostError,
    Error,
    JetStreamUnavailableError,
    NoServersError,
    NoStreamResponseError,
    TimeoutError as LateError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

RETRY_SECONDS: Final = 30.0
"""The default of `nats.retryTimeout`: a restart or an election is over by then."""
PAUSE: Final = 0.1

AWAY: Final = (
    ConnectionLostError,
    JetStreamUnavailableError,
    LateError,
    NoServersError,
    NoStreamResponseError,
)
"""Nobody answers for the moment. A wrong password or certificate is not among them, nor is
a closed connection, which never comes back by itself."""


def is_away(error: Exception) -> bool:
    """Whether the servers cannot answer for the moment.

    A subclass of `ConnectionError` names a reason. Without one, nothing listens there.
    """
    return isinstance(error, AWAY) or type(error) is BrokenError


def patiently(ask: Callable[[], T], seconds: float = RETRY_SECONDS) -> T:
    """Return the result of `ask`, called again while nobody can answer. Blocks.

    Args:
        ask: A call that may be made twice. If the connection is closed, `ask` has one
            chance to make another one.
        seconds: After so many the last error is raised.
    """
    until = monotonic() + seconds
    closed = False
    while True:
        try:
            return ask()
        except ConnectionClosedError:
            if closed or monotonic() >= until:
                raise
            closed = True
        except Error as error:
            if not is_away(error) or monotonic() >= until:
                raise
            closed = False
            sleep(PAUSE)
