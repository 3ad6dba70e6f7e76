"""Publishing into streams, one message at a time, with the server's acknowledgement."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ...core.requests import request_until
from ...errors import (
    APIError,
    JetStreamError,
    NoRespondersError,
    NoStreamResponseError,
    TooManyRequestsError,
)
from ...models import decode_pub_ack
from ...validation import format_seconds
from ..replies import api_error
from .backoff import backoff_delay

if TYPE_CHECKING:
    from ...core.requests import Data
    from ...core.session import Session
    from ...headers import HeadersLike
    from ...models import PubAck

RETRIES = 2
RETRY_SECONDS = 0.25
RETRY_FOR_EVER = -1
"""The value of `retry_attempts` for retries until the timeout."""


def publish(
    session: Session,
    subject: str,
    data: Data,
    headers: HeadersLike | None,
    timeout: float,
    retry_attempts: int = RETRIES,
    retry_wait: float = RETRY_SECONDS,
) -> PubAck:
    """Publish a message, and block for up to `timeout` seconds until it is stored.

    A message is sent again only if it is certain that it was not stored: no stream answers,
    for example during a leader election (ADR-22), or the server is too busy. The numbers
    are checked by the caller.
    """
    deadline = monotonic() + timeout
    left = timeout
    retries = rejections = 0
    others: list[bytes] = []
    while True:
        error: JetStreamError
        try:
            msg = request_until(session, subject, data, left, deadline, headers, others)
            return read_ack(msg.data)
        except NoRespondersError as no_responders:
            error, error.__cause__ = no_stream(subject), no_responders
            if retries == retry_attempts:
                raise error from no_responders
            retries += 1
            wait = retry_wait
        except errors.TimeoutError:
            if left == timeout and not others:
                raise
            # The last attempt may have had only a part of the time.
            raise no_ack(subject, timeout, others) from None
        except TooManyRequestsError as busy:
            error = busy
            wait = backoff_delay(rejections)
            rejections += 1
        except APIError:
            raise
        except JetStreamError as unreadable:
            raise errors.TimeoutError(
                f"{unreadable}: the message to {subject!r} may have been stored"
            ) from unreadable
        left = deadline - monotonic() - wait
        if left <= 0:
            raise error
        session.sleep(wait)


def read_ack(data: bytes) -> PubAck:
    """Return the PubAck in a reply. Raises its error if the reply has one."""
    reply = decode_pub_ack(data)
    if isinstance(reply, dict):
        raise api_error(reply)
    return reply


def no_ack(subject: str, timeout: float, others: list[bytes]) -> errors.TimeoutError:
    """Return the error of a message that may have been stored.

    `others` has the replies of responders that are no streams.
    """
    return errors.TimeoutError(
        f"no ack for the message to {subject!r} within {format_seconds(timeout)}: it may have been "
        f"stored{another_answered(others)}"
    )


def another_answered(others: list[bytes]) -> str:
    """Return an addition to an error text if a responder answered that is no stream."""
    return f"; another responder answered {others[0][:100]!r}" if others else ""


def no_stream(subject: str) -> NoStreamResponseError:
    return NoStreamResponseError(
        f"no stream takes {subject!r}: none has that subject, its stream has no leader "
        "now, or JetStream is off"
    )
