"""Messages made by hand, to call your own handlers in tests without a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ._fast import Ack as Ack, JetStreamMsg
from .errors import ConfigError
from .models import check_name
from .validation import MAX_SEQUENCE, check_count

if TYPE_CHECKING:
    from .headers import HeadersLike

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def message(
    subject: str,
    data: bytes = b"",
    *,
    headers: HeadersLike | None = None,
    stream: str = "TEST",
    consumer: str = "test",
    num_delivered: int = 1,
    stream_sequence: int = 1,
    consumer_sequence: int = 1,
    timestamp: datetime | None = None,
    num_pending: int = 0,
    domain: str | None = None,
) -> JetStreamMsg:
    """Make a message as a consumer would deliver it.

    Acknowledging the message sends nothing: `JetStreamMsg.acks` lists what was done. A
    second terminal ack does nothing, as with a message from a server.

    Args:
        subject: The subject of the message.
        data: The payload.
        headers: The headers.
        stream: `metadata.stream`.
        consumer: `metadata.consumer`.
        num_delivered: How often the message was delivered, this time included.
        stream_sequence: The sequence of the message in the stream.
        consumer_sequence: The sequence of this delivery.
        timestamp: When the stream stored the message, an aware datetime. Default: now.
        num_pending: Messages that are still to be delivered after this one.
        domain: `metadata.domain`.

    Raises:
        ConfigError: The metadata cannot be that of a message.
        InvalidSubjectError: Nothing can be published to the subject.
    """
    check_name(stream, "stream")
    check_name(consumer, "consumer")
    if domain is not None:
        check_name(domain, "domain")
    try:
        stored = (timestamp or datetime.now(UTC)) - _EPOCH
    except TypeError as error:
        raise ConfigError(
            f"timestamp has to be a datetime with a time zone, not {timestamp!r}"
        ) from error
    nanoseconds = stored // timedelta(microseconds=1) * 1000
    if not 0 <= nanoseconds <= MAX_SEQUENCE:
        raise ConfigError(f"timestamp has to be from 1970 to 2554, not {timestamp}")
    numbers = (
        check_count(num_delivered, "num_delivered", 1, MAX_SEQUENCE),
        check_count(stream_sequence, "stream_sequence", 1, MAX_SEQUENCE),
        check_count(consumer_sequence, "consumer_sequence", 1, MAX_SEQUENCE),
        nanoseconds,
        check_count(num_pending, "num_pending", 0, MAX_SEQUENCE),
    )
    # The second form of an ack subject (ADR-15) has a domain, an account and a last token.
    where = ("$JS.ACK", domain or "_", "ACCOUNT", stream, consumer)
    reply = ".".join([*where, *map(str, numbers), "token"])
    return JetStreamMsg(subject, data, reply=reply, headers=headers)
