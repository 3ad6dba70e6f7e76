"""A schedule in the form in which its stream stores it (ADR-51). Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...headers import Headers

if TYPE_CHECKING:
    from ...models import StoredMessage

SCHEDULE: Final = "Nats-Schedule"
_OWN: Final = frozenset(
    (
        *(SCHEDULE, "Nats-Schedule-Target", "Nats-Schedule-Source"),
        *("Nats-Schedule-TTL", "Nats-Schedule-Time-Zone", "Nats-Schedule-Rollup"),
        *("Nats-TTL", "Nats-Rollup", "Nats-Expected-Stream"),
    )
)
_AT: Final = "@at "


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of a stream. `Schedules` returns it.

    Example:
        ```python
        js.create_stream(
            name="JOBS", subjects=["at.>", "jobs.>"], allow_msg_schedules=True, allow_msg_ttl=True
        )
        schedules = js.schedules("JOBS")
        schedules.put("at.report", b"{}", schedule="@every 1h", target="jobs.report")
        print(schedules.get("at.report").target)
        ```
    """

    subject: str
    """The subject that holds the schedule."""
    pattern: str
    """When to publish, in the words of the server: `@at ...`, `@every ...`, or cron."""
    target: str
    """The subject to publish to."""
    data: bytes = b""
    """The payload to publish, unless there is a source."""
    headers: Headers | None = None
    """Your own headers, which are published as well."""
    source: str | None = None
    """The subject whose last payload is published."""
    time_zone: str | None = None
    """The time zone of a cron pattern. None: UTC."""
    ttl: str | None = None
    """The time to live of the schedule itself, in the format of the server, such as `60s`."""
    target_ttl: str | None = None
    """The time to live of published messages, such as `60s`."""
    rollup: bool = False
    """True if each published message replaces the earlier ones."""
    sequence: int
    """The sequence of the schedule in the stream."""
    created: datetime
    """When the schedule was stored."""

    @property
    def at(self) -> datetime | None:
        """The time of a schedule that publishes once. None for others.

        None also for a time that Python cannot express, after the year 9999 in UTC.
        """
        if not self.pattern.startswith(_AT):
            return None
        try:
            return datetime.fromisoformat(self.pattern[len(_AT) :]).astimezone(UTC)
        except (ValueError, OverflowError):
            return None

    @property
    def repeats(self) -> bool:
        """True if the schedule publishes more than once."""
        return not self.pattern.startswith(_AT)


def read_schedule(message: StoredMessage) -> Schedule | None:
    """Read the schedule in a message. None if the message has none."""
    headers: Any = message.headers or {}
    pattern, target = headers.get(SCHEDULE), headers.get("Nats-Schedule-Target")
    if not pattern or not target:
        return None
    own = {
        name: message.headers.get_all(name)
        for name in message.headers or ()
        if message.headers is not None and name not in _OWN
    }
    return Schedule(
        subject=message.subject,
        pattern=pattern,
        target=target,
        data=message.data,
        headers=Headers(own) if own else None,
        source=headers.get("Nats-Schedule-Source"),
        time_zone=headers.get("Nats-Schedule-Time-Zone"),
        ttl=headers.get("Nats-TTL"),
        target_ttl=headers.get("Nats-Schedule-TTL"),
        rollup=headers.get("Nats-Schedule-Rollup") == "sub",
        sequence=message.sequence,
        created=message.timestamp,
    )


def error_hint(
    err_code: int,
    schedule: object,
    target: str,
    source: str | None,
    time_zone: str | None,
) -> str:
    """Return the rejected value and the remedy, which the error of the server leaves out."""
    match err_code:
        case 10189:
            return (
                f": {schedule}; write six fields of cron, seconds first, or a pattern "
                "such as @daily or @every 90s"
            )
        case 10190:
            return f": {target}; choose another subject of the same stream"
        case 10203:
            return f": {source}; choose a subject of the same stream, not the target"
        case 10223:
            return (
                f": {time_zone}; choose a name such as Europe/Prague, and see that the "
                "machine of the server has time zones (tzdata)"
            )
    return ""
