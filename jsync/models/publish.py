"""The options of a message besides its payload, shared by all ways to publish."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from ..headers import HeadersLike

TTL: TypeAlias = float | Literal["never"]
"""A time to live: whole seconds, or `"never"`."""
Schedule: TypeAlias = datetime | timedelta | str
"""A schedule: a time, an interval, or a pattern of the server."""


class PublishOptions(TypedDict, total=False):
    """The options of a message. None is the same as leaving the option out.

    Example:
        ```python
        options: jsync.PublishOptions = {"msg_id": "order-1", "headers": {"Source": "web"}}
        js.publish("orders.new", b"{}", **options)
        ```
    """

    headers: HeadersLike | None
    """Your own headers. Headers that have an option of their own are rejected here."""

    msg_id: str | None
    """The id of the message. Within its `duplicate_window` the stream drops a second message
    with the same id, and the ack says so."""

    expected_stream: str | None
    """Reject the message (`StreamMismatchError`) if another stream stores it."""
    expected_last_sequence: int | None
    """Reject the message (`WrongLastSequenceError`) unless the last message of the stream
    has this sequence."""
    expected_last_subject_sequence: int | None
    """Reject the message (`WrongLastSequenceError`) unless the last message of the subject
    has this sequence. 0: unless the subject has no message."""
    expected_last_subject: str | None
    """The subject of `expected_last_subject_sequence`, wildcards allowed. Default: the
    subject of the message. Since nats-server 2.11."""
    expected_last_msg_id: str | None
    """Reject the message (`WrongLastMsgIDError`) unless the last message has this
    id."""

    ttl: TTL | None
    """Whole seconds, from 1, until the message expires. With `"never"` the stream's
    `max_age` does not apply. The stream needs `allow_msg_ttl`. Since nats-server 2.11.
    (ADR-43)"""

    schedule: Schedule | None
    """Store the message, and have the server publish it to `schedule_target` later.

    An aware `datetime` publishes once. A `timedelta`, from one second, publishes
    repeatedly. A str is a pattern: six fields of cron, seconds first, or `@hourly`,
    `@daily`, `@weekly`, `@monthly`, `@yearly`, `@every 90s`. Another message on the
    subject replaces the schedule. The stream needs `allow_msg_schedules`. Since
    nats-server 2.12, `timedelta` and str since 2.14. (ADR-51)"""
    schedule_target: str | None
    """The subject to publish to: another subject of the same stream."""
    schedule_source: str | None
    """Publish the payload of the last message of this subject, if there is one. Since
    nats-server 2.14."""
    schedule_ttl: TTL | None
    """The `ttl` of the published messages."""
    schedule_time_zone: str | None
    """The time zone of a cron pattern, such as `Europe/Prague`. Default: UTC. Since
    nats-server 2.14."""
    schedule_rollup: bool | None
    """Let each published message replace all earlier ones on `schedule_target`. Since
    nats-server 2.14."""

    incr: int | None
    """Add this number to the counter of the subject. The ack has the new value. The message
    has no payload, and the stream needs `allow_msg_counter`. Since nats-server 2.12.
    (ADR-49)"""
