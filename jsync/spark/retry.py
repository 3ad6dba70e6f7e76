"""Retries while a connection is lost, or while a stream has no leader."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from .. import errors
from ..errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    JetStreamUnavailableError,
    NoServersError,
    NoStreamResponseError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

RETRY_SECONDS: Final = 30.0
"""The default of `nats.retryTimeout`, enough for a restart or an election."""
RETRY_INTERVAL: Final = 0.1

UNAVAILABLE: Final = (
    ConnectionLostError,
    JetStreamUnavailableError,
    errors.TimeoutError,
    NoServersError,
    NoStreamResponseError,
)
"""Errors of servers that cannot answer for the moment. A wrong password or certificate is
not among them, nor is a closed connection, which never reconnects."""


def is_unavailable(error: Exception) -> bool:
    """Return whether an error means that the servers cannot answer for the moment.

    A plain `ConnectionError` is such an error, because nothing listens at the address. Its
    subclasses name other reasons.
    """
    return isinstance(error, UNAVAILABLE) or type(error) is errors.ConnectionError


def retry_until_available(ask: Callable[[], T], seconds: float = RETRY_SECONDS) -> T:
    """Return the result of `ask`, and retry while the servers cannot answer. Blocks.

    Args:
        ask: A call that may be repeated. If the connection is closed, `ask` has one chance
            to open another one.
        seconds: The time after which the last error is raised.
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
            if not is_unavailable(error) or monotonic() >= until:
                raise
            closed = False
            sleep(RETRY_INTERVAL)
