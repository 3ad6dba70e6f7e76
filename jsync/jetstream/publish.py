"""Publishing into streams, one message at a time, with the server's acknowledgement."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ..core.deadline import deadline_after
from ..core.requests import ask
from ..errors import NoRespondersError, NoStreamResponseError
from ..models import decode_pub_ack
from .api import api_error

if TYPE_CHECKING:
    from ..core.connection import Connection
    from ..core.requests import Data
    from ..headers import HeadersLike
    from ..models import PubAck

RETRIES = 2
RETRY_SECONDS = 0.25


def publish(
    connection: Connection,
    subject: str,
    data: Data,
    headers: HeadersLike | None,
    timeout: float,
) -> PubAck:
    """Publish and block until the stream has stored the message.

    While no stream answers, as during a leader's election, it is tried twice again: it
    was not stored then, so nothing is doubled (ADR-22).
    """
    deadline = deadline_after(timeout)
    session, left = connection.session, timeout
    for attempt in range(RETRIES + 1):
        try:
            msg = ask(session, subject, data, left, deadline, headers)
        except NoRespondersError as error:
            left = deadline - monotonic() - RETRY_SECONDS
            if attempt == RETRIES or left <= 0:
                raise no_stream(subject) from error
            session.sleep(RETRY_SECONDS)
        else:
            return read_ack(msg.data)
    raise AssertionError


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
