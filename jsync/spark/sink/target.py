"""Checks of the stream that is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError
from ..buckets import bucket_prefix
from ..retry import RETRY_SECONDS
from .entries import subjects_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...models import StreamConfig
    from .columns import ColumnPlan
    from .options import SinkSettings

DEFAULT_API: Final = "$JS.API"
MIN_WINDOW: Final = 4.0


@dataclass(frozen=True)
class SinkTarget:
    """The facts about a stream that a task needs to write into it."""

    stream: str
    window: float
    """Seconds for which the stream remembers ids."""
    ingest: bool
    """True if rows are published by a fast ingest."""
    subjects: str | None
    """A regular expression of the subjects that the stream takes. None: not known."""
    exactly_once: bool = True
    retry_seconds: float = RETRY_SECONDS
    """The option `nats.retryTimeout`."""
    prefix: str = ""
    """The subjects to publish to, up to the key. Empty: no bucket."""

    @property
    def ack_timeout(self) -> float:
        """Seconds that a message may wait for its ack, while it is sent again.

        With exactly-once, the stream must remember the id for much longer.
        """
        if self.exactly_once and self.window:
            return min(self.retry_seconds, self.window / 6)
        return self.retry_seconds

    @property
    def replay_seconds(self) -> float:
        """Seconds for which a batch may be sent again, since its ids are still remembered."""
        return self.window - 2 * self.ack_timeout


def target_of(
    settings: SinkSettings, plan: ColumnPlan, config: StreamConfig
) -> SinkTarget:
    """Check the stream's configuration. Raises `ConfigError` if it forbids the write."""
    name = config.name or ""
    if config.mirror is not None:
        raise ConfigError(f"stream {name} is a mirror: only its origin can be written")
    if config.sealed:
        raise ConfigError(f"stream {name} is sealed: nothing can be written")
    if plan.has("ttl") and not config.allow_msg_ttl:
        raise ConfigError(
            f"stream {name} has no allow_msg_ttl: set it, or drop the column ttl"
        )
    prefix = ""
    if settings.bucket is not None:
        prefix = bucket_prefix(config)
        if settings.connection.api != DEFAULT_API:
            prefix = f"{settings.connection.api}.{prefix}"
    window = config.duplicate_window or 0.0
    if settings.exactly_once:
        _check_window(settings, name, window)
    subjects = (
        subjects_of(prefix) if prefix else subjects_pattern(config.subjects or ())
    )
    if settings.subject is not None and not re.fullmatch(subjects, settings.subject):
        raise ConfigError(
            f"stream {name} does not take {settings.subject!r}, but "
            f"{', '.join(config.subjects or ()) or 'nothing'}"
        )
    return SinkTarget(
        name,
        window,
        _ingest(settings, plan, config),
        subjects,
        settings.exactly_once,
        settings.connection.retry_timeout,
        prefix,
    )


def _check_window(settings: SinkSettings, name: str, window: float) -> None:
    restart_time = settings.max_restart_time
    if restart_time is not None and window < restart_time:
        raise ConfigError(
            f"stream {name} remembers ids for {window:g} s, less than maxRestartTime="
            f"{restart_time:g}: set its duplicate_window to {restart_time:g} s or more"
        )
    if window < MIN_WINDOW:
        raise ConfigError(
            f"stream {name} remembers ids for {window:g} s only: set its duplicate_window "
            "above the time that a restart may take, such as the default of 2 minutes"
        )


def _ingest(settings: SinkSettings, plan: ColumnPlan, config: StreamConfig) -> bool:
    if settings.publisher == "async":
        return False
    if settings.bucket is not None:
        return False
    able = bool(config.allow_batched)  # older servers omit the field
    if settings.publisher == "ingest":
        if not able:
            raise ConfigError(
                f"publisher=ingest needs allow_batched on stream {config.name}, and "
                "nats-server 2.14 or later: set it, or give publisher=async"
            )
        return True
    # With a publisher, the acks distinguish duplicates and rejections for each row.
    return (
        able
        and not settings.exactly_once
        and settings.dead_letters is None
        and not plan.expectations
        and not plan.has("msg_id")
    )


def subjects_pattern(subjects: Iterable[str]) -> str:
    """Return a regular expression, of Python and of RE2, for subjects that these match."""
    return f"^(?:{'|'.join(_pattern(subject) for subject in subjects)})$"


def _pattern(subject: str) -> str:
    tokens = []
    for part in subject.split("."):
        if part == ">":
            tokens.append(r"[^.\s]+(?:\.[^.\s]+)*")
        elif part == "*":
            tokens.append(r"[^.\s]+")
        else:
            tokens.append(re.escape(part))
    return r"\.".join(tokens)
