"""Publishing into streams, one message at a time, with the server's acknowledgement."""

from __future__ import annotations

import random
from time import monotonic
from typing import TYPE_CHECKING

from ..core.deadline import deadline_after
from ..core.requests import ask
from ..errors import (
    ConfigError,
    JetStreamError,
    NoRespondersError,
    NoStreamResponseError,
    TooManyRequestsError,
)
from ..models import decode_pub_ack
from .api import api_error

if TYPE_CHECKING:
    from ..core.connection import Connection
    from ..core.requests import Data
    from ..headers import HeadersLike
    from ..models import PubAck

RETRIES = 2
RETRY_SECONDS = 0.25
LONGEST = 1e9
_FIRST_BACKOFF = 0.05
_LONGEST_BACKOFF = 1.0


def publish(
    connection: Connection,
    subject: str,
    data: Data,
    headers: HeadersLike | None,
    timeout: float,
    retry_attempts: int,
    retry_wait: float,
) -> PubAck:
    """Publish and block until the stream has stored the message.

    It is sent again only after an answer that says that it was not stored: no stream
    answers, as during a leader's election (ADR-22), or the server is too busy.
    """
    deadline = deadline_after(timeout)
    check_retries(retry_attempts, retry_wait)
    session, left = connection.session, timeout
    retries = refusals = 0
    while True:
        error: JetStreamError
        try:
            return read_ack(ask(session, subject, data, left, deadline, headers).data)
        except NoRespondersError as nobody:
            error, error.__cause__ = no_stream(subject), nobody
            if retries == retry_attempts:
                raise error from nobody
            retries += 1
            wait = retry_wait
        except TooManyRequestsError as busy:
            error = busy
            wait = backoff(refusals)
            refusals += 1
        left = deadline - monotonic() - wait
        if left <= 0:
            raise error
        session.sleep(wait)


def backoff(refusals: int) -> float:
    """Seconds until the next try after so many; publishers do not try all at once."""
    longest = min(_FIRST_BACKOFF * (1 << min(refusals, 10)), _LONGEST_BACKOFF)
    return longest * random.uniform(0.5, 1.0)


def check_retries(attempts: object, wait: object) -> None:
    """Raise `ConfigError` for options of the retries that cannot be."""
    if isinstance(attempts, bool) or not isinstance(attempts, int) or attempts < -1:
        raise ConfigError(
            f"retry_attempts is no number of retries: {attempts!r}; give an int from 0 "
            "on, or -1 to retry until the timeout"
        )
    check_seconds("retry_wait", wait)


def check_seconds(name: str, value: object) -> None:
    """Raise `ConfigError` for what is no number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} has to be a number of seconds, not {value!r}")
    if not 0 < value <= LONGEST:
        raise ConfigError(f"{name} has to be above 0 and at most {LONGEST:g} seconds")


def read_ack(data: bytes) -> PubAck:
    """The PubAck in a reply, or its error raised."""
    reply = decode_pub_ack(data)
    if isinstance(reply, dict):
        raise api_error(reply)
    return reply


def no_stream(subject: str) -> NoStreamResponseError:
    return NoStreamResponseError(
        f"no stream takes {subject!r}: none has that subject, or JetStream is off"
    )
