"""The options of a message, and the headers that carry them. Pure.

All ways to publish into a stream take these options by the same names. If one cannot carry
an option, the error says why.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ...errors import ConfigError
from ...headers import Headers
from ...models.codec import did_you_mean
from ...models.name import check_filter, check_literal
from ...models.publish import PublishOptions
from ..features import NO_FEATURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...headers import HeadersLike
    from ...models.server_version import ServerVersion
    from ..features import Features


_MIN_TTL: Final = timedelta(seconds=1)
_MAX_DURATION: Final = timedelta(microseconds=((1 << 63) - 1) // 1000)
"""The longest time that Go counts in nanoseconds."""


def publish_headers(
    subject: str,
    data: object,
    options: PublishOptions,
    unsupported: Mapping[str, str] | None = None,
) -> HeadersLike | None:
    """Return the given headers of a message, together with the headers of its options.

    `unsupported` has the options that this way of publishing cannot carry, and why.

    Raises:
        ConfigError: An option has a value that is not allowed, or is in `unsupported`.
        TypeError: A name is not an option.
    """
    added: dict[str, str] = {}
    for name, value in options.items():
        if name not in _KNOWN:
            near = did_you_mean(str(name), _KNOWN)
            raise TypeError(f"{name!r} is not an option of a message{near}")
        if value is None or name == "headers":
            continue
        if unsupported and name in unsupported:
            raise ConfigError(f"{name}: {unsupported[name]}")
        header, write = _HEADERS[name]
        written = write(name, value)
        if written is not None:
            added[header] = written
    if added:
        _check_together(subject, data, options)
    own = options.get("headers")
    if not own:
        return added or None
    if type(own) is not dict and type(own) is not Headers:
        own = Headers(own)
    for name in own:
        check_header(name)
    if not added:
        return own
    if isinstance(own, Headers):
        return {**{name: own.get_all(name) for name in own}, **added}
    return {**own, **added}


def check_header(name: str) -> None:
    """Raise `ConfigError` for a header that only an option or a batch may set."""
    if name in _OPTIONS:
        raise ConfigError(f"headers: use {_OPTIONS[name]}= instead of {name}")
    if str(name).startswith("Nats-Batch-"):
        raise ConfigError(f"headers: use js.atomic_batch() instead of {name}")


def required_features(options: PublishOptions) -> Features:
    """Return the options that are newer than nats-server 2.10, with the version of each.

    An older server ignores such an option, but stores the message.
    """
    if _SINCE.keys().isdisjoint(options):
        return NO_FEATURES
    newer = {
        name: _SINCE[name]
        for name, value in options.items()
        if name in _SINCE and value is not None
    }
    schedule = options.get("schedule")
    if isinstance(schedule, timedelta) or (
        isinstance(schedule, str) and not schedule.startswith("@at ")
    ):
        newer["schedule that repeats"] = _CRON_SINCE
    return newer


def _check_together(subject: str, data: Any, options: PublishOptions) -> None:
    """Raise `ConfigError` for options that exclude each other, or need another one.

    The value of each option has been checked before.
    """
    if options.get("incr") is not None and data:
        raise ConfigError("incr: a counter message has no payload: leave out the data")
    if (
        options.get("expected_last_subject") is not None
        and options.get("expected_last_subject_sequence") is None
    ):
        raise ConfigError("expected_last_subject needs expected_last_subject_sequence")
    schedule, target = options.get("schedule"), options.get("schedule_target")
    if schedule is None:
        for name, value in options.items():
            if name.startswith("schedule_") and value is not None:
                raise ConfigError(f"{name} needs a schedule")
        return
    if target is None:
        raise ConfigError("schedule needs a schedule_target to publish to")
    source = options.get("schedule_source")
    if target == subject:
        raise ConfigError(
            "schedule_target cannot be the subject of the schedule itself"
        )
    if source in (subject, target):
        raise ConfigError(
            "schedule_source has to differ from the subject and from schedule_target"
        )
    if options.get("schedule_time_zone") is not None and (
        not isinstance(schedule, str) or schedule.startswith(("@at ", "@every "))
    ):
        raise ConfigError("schedule_time_zone is for cron patterns only")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name}: a str, not {type(value).__name__}")
    if not value or value != value.strip():
        raise ConfigError(f"{name}: empty, or with blanks around it: {value!r}")
    if any(character < " " or character == "\x7f" for character in value):
        raise ConfigError(f"{name}: {value!r} has a control character")
    return str(value)


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: an int, not {type(value).__name__}")
    return value


def _sequence(name: str, value: Any) -> str:
    if not 0 <= _integer(name, value) < 1 << 64:
        raise ConfigError(f"{name}: {value} is not a sequence")
    return str(value)


def _increment(name: str, value: Any) -> str:
    return f"{_integer(name, value):+d}"


def _literal(name: str, value: Any) -> str:
    check_literal(_text(name, value), name)
    return str(value)


def _filter(name: str, value: Any) -> str:
    check_filter(_text(name, value), name)
    return str(value)


def _ttl(name: str, value: Any) -> str:
    if value == "never":
        return "never"
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 1 <= value <= _MAX_DURATION.total_seconds()
        or value != int(value)
    ):
        raise ConfigError(
            f'{name}: whole seconds from 1, or "never"; it cannot be {value!r}'
        )
    return f"{int(value)}s"


def _schedule(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ConfigError(f"{name}: a datetime with a time zone; {value} has none")
        return f"@at {value.astimezone(UTC).isoformat().replace('+00:00', 'Z')}"
    if isinstance(value, timedelta):
        if not _MIN_TTL <= value <= _MAX_DURATION:
            raise ConfigError(
                f"{name}: an interval is at least a second, at most 292 years, not {value}"
            )
        whole, rest = divmod(value, timedelta(seconds=1))
        return f"@every {whole}s" + (f"{rest.microseconds}us" if rest else "")
    if not isinstance(value, str):
        raise ConfigError(
            f"{name}: a datetime to publish once, a timedelta to publish at an interval, "
            f"or a pattern; not {type(value).__name__}"
        )
    return _text(name, value)


def _rollup(name: str, value: Any) -> str | None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: True or False, not {value!r}")
    return "sub" if value else None


_HEADERS: Final[dict[str, tuple[str, Callable[[str, Any], str | None]]]] = {
    "msg_id": ("Nats-Msg-Id", _text),
    "expected_stream": ("Nats-Expected-Stream", _text),
    "expected_last_sequence": ("Nats-Expected-Last-Sequence", _sequence),
    "expected_last_subject_sequence": (
        "Nats-Expected-Last-Subject-Sequence",
        _sequence,
    ),
    "expected_last_subject": ("Nats-Expected-Last-Subject-Sequence-Subject", _filter),
    "expected_last_msg_id": ("Nats-Expected-Last-Msg-Id", _text),
    "ttl": ("Nats-TTL", _ttl),
    "schedule": ("Nats-Schedule", _schedule),
    "schedule_target": ("Nats-Schedule-Target", _literal),
    "schedule_source": ("Nats-Schedule-Source", _literal),
    "schedule_ttl": ("Nats-Schedule-TTL", _ttl),
    "schedule_time_zone": ("Nats-Schedule-Time-Zone", _text),
    "schedule_rollup": ("Nats-Schedule-Rollup", _rollup),
    "incr": ("Nats-Incr", _increment),
}
_KNOWN: Final = frozenset(PublishOptions.__annotations__)
_OPTIONS: Final = {header: option for option, (header, _) in _HEADERS.items()}
_SINCE: Final[dict[str, ServerVersion]] = {
    "expected_last_subject": (2, 11),
    "ttl": (2, 11),
    "schedule": (2, 12),
    "schedule_source": (2, 14),
    "schedule_time_zone": (2, 14),
    "schedule_rollup": (2, 14),
    "incr": (2, 12),
}
_CRON_SINCE: Final[ServerVersion] = (2, 14)
