"""Pull requests, the meaning of their statuses, and their accounting (ADR-37).

Pure: no socket, thread or clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from ...errors import (
    ConfigError,
    ConsumerDeletedError,
    JetStreamError,
    NoRespondersError,
    PullError,
)
from ...validation import check_count, check_seconds, format_seconds
from .congestion import CongestionWindow

if TYPE_CHECKING:
    from ...validation import Seconds

NANOSECONDS: Final = 1_000_000_000
MIN_GRACE: Final = 0.25
"""The minimum seconds that a client waits longer, so that the server ends the pull first."""
MAX_GRACE: Final = 1.0
"""The maximum, which also holds for consumers without acks, whose late messages are lost."""
GRACE_ROUND_TRIPS: Final = 4
"""The round trips of the connection that a client waits, within these limits."""
LARGE_BATCH: Final = 1_000_000
"""The batch of a pull by bytes: an empty one would mean a single message (ADR-37)."""


class PullRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The payload of `CONSUMER.MSG.NEXT`. Durations are nanoseconds, and 0 means none."""

    batch: int = 0
    max_bytes: int = 0
    expires: int = 0
    idle_heartbeat: int = 0
    no_wait: bool = False
    group: str = ""
    id: str = ""
    """The id of the group's pinned client."""
    min_pending: int = 0
    min_ack_pending: int = 0
    priority: int = 0

    def with_expiry(self, seconds: float) -> PullRequest:
        """Return this request with an earlier end, without heartbeats if it is too short."""
        expires = round(seconds * NANOSECONDS)
        if expires >= self.expires:
            return self
        heartbeat = self.idle_heartbeat if self.idle_heartbeat * 2 <= expires else 0
        return msgspec.structs.replace(self, expires=expires, idle_heartbeat=heartbeat)

    def remaining(self, messages: int, size: int) -> PullRequest | None:
        """Return a request for the rest after these messages and bytes, or None."""
        if self.max_bytes:
            capacity = self.max_bytes - size
            return (
                msgspec.structs.replace(self, max_bytes=capacity)
                if capacity > 0
                else None
            )
        batch = self.batch - messages
        return msgspec.structs.replace(self, batch=batch) if batch > 0 else None


encode_request: Final = msgspec.json.Encoder().encode
"""Encode a `PullRequest`."""

PROBE: Final = PullRequest(batch=1, max_bytes=1, no_wait=True)
"""Checks whether a server still has messages to send for earlier pulls.

No message is small enough for this pull. A server processes the pulls of a consumer in
order and its replies leave in that order, so the reply to the probe arrives after
everything that was sent for earlier pulls.
"""


def has_more_pending(status: int, text: str) -> bool:
    """Return whether the reply to a `PROBE` says that messages wait for any pull."""
    return text.lower().startswith(
        "requests pending" if status == 408 else "message size exceeds"
    )


MAX_EXPIRY: Final = 24 * 3600.0
HEARTBEATS_MISSED: Final = 2
"""Silent intervals after which heartbeats are late (ADR-37)."""


def idle_seconds(idle_timeout: Seconds | None) -> float | None:
    """Check the longest wait for a message. Raises `ConfigError` if it is out of range."""
    if idle_timeout is None:
        return None
    idle = check_seconds(idle_timeout, "idle_timeout")
    if not 0 < idle <= MAX_EXPIRY:
        raise ConfigError(
            f"idle_timeout has to be above 0 seconds and at most {MAX_EXPIRY:.0f}, "
            f"not {idle_timeout!r}"
        )
    return idle


def grace_after(round_trip: float) -> float:
    """Return the seconds to wait for the server's end of a pull after its expiry.

    Args:
        round_trip: The seconds that the first PING of the connection took.
    """
    return min(MAX_GRACE, max(MIN_GRACE, GRACE_ROUND_TRIPS * round_trip))


def fetch_request(
    max_messages: int | None,
    max_bytes: int | None,
    timeout: Seconds,
    idle_heartbeat: Seconds | None,
    *,
    no_wait: bool = False,
) -> PullRequest:
    """Build the pull request of one fetch. Raises `ConfigError` for invalid options.

    By default there are heartbeats every 5 s if the timeout is 10 s or longer, although
    the ADR requires them only above 30 s.
    """
    if max_messages is None and max_bytes is None:
        raise ConfigError("fetch needs max_messages or max_bytes")
    if max_messages is not None and max_bytes is not None:
        raise ConfigError("max_messages and max_bytes exclude each other: give one")
    if max_messages is not None:
        max_messages = check_count(max_messages, "max_messages", 1)
    if max_bytes is not None:
        max_bytes = check_count(max_bytes, "max_bytes", 1)
    timeout = check_seconds(timeout, "timeout")
    if not no_wait and not 0 < timeout <= MAX_EXPIRY:
        raise ConfigError(
            f"timeout has to be above 0 seconds and at most {MAX_EXPIRY:.0f}, not "
            f"{timeout!r}"
        )
    if idle_heartbeat is None:
        idle_heartbeat = 5.0 if timeout >= 10 and not no_wait else 0.0
    else:
        idle_heartbeat = check_seconds(idle_heartbeat, "idle_heartbeat")
    if not 0 <= idle_heartbeat * 2 <= timeout:
        raise ConfigError(
            f"idle_heartbeat has to be at most half of the timeout of {format_seconds(timeout)}, "
            f"not {idle_heartbeat!r}"
        )
    return PullRequest(
        batch=max_messages or LARGE_BATCH,
        max_bytes=max_bytes or 0,
        expires=0 if no_wait else round(timeout * NANOSECONDS),
        idle_heartbeat=round(idle_heartbeat * NANOSECONDS),
        no_wait=no_wait,
    )


class StatusKind(Enum):
    """The effect of a status on the pull that it answers."""

    ALIVE = "it goes on"
    ENDED = "it has ended as it should"
    INTERRUPTED = "it has ended early, and another may be sent"
    UNPINNED = "another client is pinned, or none: it has ended, its pin id is void"
    FAILED = "it was refused, or cannot go on"


@dataclass(frozen=True, slots=True)
class StatusResult:
    """The interpretation of a status."""

    kind: StatusKind
    error: JetStreamError | NoRespondersError | None = None


_ALIVE: Final = StatusResult(StatusKind.ALIVE)
_ENDED: Final = StatusResult(StatusKind.ENDED)

# The beginnings of 409 texts, in lower case because servers differ in their capitals.
_CONFLICTS: Final[tuple[tuple[str, StatusKind], ...]] = (
    ("message size exceeds maxbytes", StatusKind.ENDED),
    ("batch completed", StatusKind.ENDED),
    ("leadership change", StatusKind.INTERRUPTED),
    ("server shutdown", StatusKind.INTERRUPTED),
    ("consumer deleted", StatusKind.FAILED),
    ("consumer is push based", StatusKind.FAILED),
    ("exceeded max", StatusKind.FAILED),
)

_MAX_BATCH: Final = "exceeded maxrequestbatch"
_MAX_EXPIRES: Final = "exceeded maxrequestexpires"
_MAX_BYTES: Final = "exceeded maxrequestmaxbytes"
_ADVICE: Final = (
    (
        _MAX_BATCH,
        ": request fewer messages with max_messages, or raise max_batch of the consumer",
    ),
    (
        _MAX_EXPIRES,
        ": give a shorter timeout or expires, or raise max_expires of the consumer",
    ),
    (
        _MAX_BYTES,
        ": request fewer bytes with max_bytes, or raise max_bytes of the consumer",
    ),
    (
        "exceeded maxwaiting",
        ": read with fewer pulls at the same time, or raise max_waiting of the consumer",
    ),
)
_DURATION: Final = re.compile(r"([\d.]+)(h|m(?!s)|s|ms|µs|us|ns)")
_UNIT_SECONDS: Final = {
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "µs": 1e-6,
    "us": 1e-6,
    "ns": 1e-9,
}


def _limit_of(text: str) -> float:
    """Return the limit that a status names, in seconds if it is a duration. 0: none."""
    value = text.rpartition(" of ")[2]
    if value.isascii() and value.isdigit():
        return int(value)
    parts = _DURATION.findall(value)
    if "".join(number + unit for number, unit in parts) != value:
        return 0
    try:
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    except ValueError:
        return 0


def classify_status(status: int, text: str) -> StatusResult:
    """Interpret the status of a pull (ADR-37, status handling)."""
    words = text.lower()
    if status == 100:
        return _ALIVE
    if status in (404, 408):
        return _ENDED
    if status == 409:
        meaning = next(
            (m for start, m in _CONFLICTS if words.startswith(start)), StatusKind.FAILED
        )
        if meaning is StatusKind.ENDED:
            return _ENDED
        if words.startswith("consumer deleted"):
            return StatusResult(meaning, ConsumerDeletedError(text))
        if words.startswith("consumer is push based"):
            advice = f"{text}: get it with push_consumer, not consumer, to read it"
            return StatusResult(meaning, ConsumerDeletedError(advice))
        advice = next((a for start, a in _ADVICE if words.startswith(start)), "")
        return StatusResult(meaning, PullError(text + advice, status=status))
    if status == 423:
        return StatusResult(StatusKind.UNPINNED, PullError(text, status=status))
    if status == 503:
        return StatusResult(
            StatusKind.FAILED,
            NoRespondersError("no such consumer, or JetStream is off"),
        )
    return StatusResult(
        StatusKind.FAILED, PullError(f"{status} {text}".strip(), status=status)
    )


# Continuous pulls ---------------------------------------------------------------------

DEFAULT_MESSAGES: Final = 500
UNLIMITED: Final = 1 << 62
INITIAL_BACKOFF: Final = 0.25
MAX_BACKOFF: Final = 10.0
MAX_SMALL_PULLS: Final = 8
"""The most pulls in flight if the consumer allows only small ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeLimits:
    """The amounts and thresholds of `messages` and `consume`, from `consume_limits`."""

    max_messages: int
    max_bytes: int
    """0 when messages are counted."""
    threshold_messages: int
    threshold_bytes: int
    expires: float
    idle_heartbeat: float
    stop_after: int
    """The number of messages after which to stop. 0 means never."""


def consume_limits(
    *,
    max_messages: int | None = None,
    max_bytes: int | None = None,
    threshold_messages: int | None = None,
    threshold_bytes: int | None = None,
    expires: Seconds = 30.0,
    idle_heartbeat: Seconds | None = None,
    stop_after: int | None = None,
) -> ConsumeLimits:
    """Apply the defaults of ADR-37. Raises `ConfigError` if a constraint is violated."""
    if max_messages is not None and max_bytes is not None:
        raise ConfigError("max_messages and max_bytes exclude each other: give one")
    if max_messages is not None:
        max_messages = check_count(max_messages, "max_messages", 1)
    if max_bytes is not None:
        max_bytes = check_count(max_bytes, "max_bytes", 1)
    if stop_after is not None:
        stop_after = check_count(stop_after, "stop_after", 1)
    if threshold_messages is not None:
        threshold_messages = check_count(threshold_messages, "threshold_messages", 0)
    if threshold_bytes is not None:
        threshold_bytes = check_count(threshold_bytes, "threshold_bytes", 0)
    if max_bytes is not None and threshold_messages is not None:
        raise ConfigError("with max_bytes the threshold is threshold_bytes")
    if max_bytes is None and threshold_bytes is not None:
        raise ConfigError("threshold_bytes needs max_bytes")
    expires = check_seconds(expires, "expires")
    if not 1 <= expires <= MAX_EXPIRY:
        raise ConfigError(
            f"expires has to be from 1 second to {MAX_EXPIRY:.0f}, not {expires!r}"
        )
    if idle_heartbeat is None:
        idle_heartbeat = min(expires / 2, 30.0)
    else:
        idle_heartbeat = check_seconds(idle_heartbeat, "idle_heartbeat")
    if not 0.5 <= idle_heartbeat <= min(30.0, expires / 2):
        raise ConfigError(
            "idle_heartbeat has to be from 0.5 s to 30 s and at most half of expires, "
            f"not {idle_heartbeat!r}"
        )
    messages = max_messages or (LARGE_BATCH if max_bytes else DEFAULT_MESSAGES)
    size = max_bytes or 0
    for name, value, limit in (
        ("threshold_messages", threshold_messages, messages),
        ("threshold_bytes", threshold_bytes, size),
    ):
        if value is not None and value > limit:
            raise ConfigError(f"{name} has to be at most {limit}, not {value!r}")
    return ConsumeLimits(
        max_messages=messages,
        max_bytes=size,
        threshold_messages=(
            messages // 2 if threshold_messages is None else threshold_messages
        ),
        threshold_bytes=size // 2 if threshold_bytes is None else threshold_bytes,
        expires=expires,
        idle_heartbeat=idle_heartbeat,
        stop_after=stop_after or 0,
    )


@dataclass(frozen=True, slots=True)
class StatusAction:
    """The reaction to a status: an error to report, the end, or a pause."""

    report: Exception | None = None
    """An error to report to the user while the pull continues."""
    end: Exception | None = None
    """The error that ends the pull."""
    retry_in: float = 0.0
    """Seconds to wait before the next pull, so that nothing spins."""
    adapted: bool = False
    """True if the next pulls keep the limit that this one exceeded."""


class PullEngine:
    """The accounting of a continuous pull (ADR-37, `Consume` specification).

    Pending is what has been requested and not been handed to the user yet. When it falls
    to a threshold, another pull requests the difference. With `max_bytes` only bytes are
    counted, because a pull that was filled to its last byte ends without a status that
    would report how many of its messages were left.
    """

    def __init__(
        self, limits: ConsumeLimits, *, limits_first_pull: bool = False
    ) -> None:
        """With `limits_first_pull`, that pull has a limit of bytes, too.

        Before a message has arrived, we do not know how large 500 of them are. ADR-37 wants
        no such limit for `Consume`.
        """
        self.limits = limits
        self.by_bytes = limits.max_bytes > 0
        self.pending_messages = 0
        self.pending_bytes = 0
        self._handed_over = 0
        self._full = False  # the next message does not fit beside the buffered ones
        self._oversized = False  # the next message is larger than `max_bytes`
        self._unpinned = False
        self._max_batch = UNLIMITED
        self._window = CongestionWindow()
        self._first_bytes = self._window.size if limits_first_pull else 0
        self._retry = 0.0

    def is_open(self, messages: int, size: int) -> bool:
        """Return whether more is pending than buffered, so that a pull is unanswered."""
        if self.by_bytes:
            return self.pending_bytes > size
        return self.pending_messages > messages

    def next_request(self, messages: int = 0, size: int = 0) -> PullRequest | None:
        """Return the pull that is due and count it as pending, or None if none is due.

        `messages` and `size` are the number and the bytes of the buffered messages.
        """
        limits = self.limits
        if self._full:
            return None
        if self.by_bytes and limits.stop_after and self.is_open(messages, size):
            return None  # we do not know how many messages an open pull brings
        if self.by_bytes:
            due = self.pending_bytes <= limits.threshold_bytes
            batch, capacity = LARGE_BATCH, limits.max_bytes - self.pending_bytes
            expected = messages
        else:
            limit, threshold = self._message_limits()
            due = self.pending_messages <= threshold
            batch, capacity = limit - self.pending_messages, self._first_bytes
            expected = self.pending_messages
        if limits.stop_after:
            batch = min(batch, limits.stop_after - self._handed_over - expected)
        batch = min(batch, self._max_batch)
        if not due or batch < 1 or (self.by_bytes and capacity < 1):
            return None
        if self.by_bytes:
            self.pending_bytes += capacity
        else:
            self.pending_messages += batch
            self._first_bytes = 0
        if self._oversized:
            batch, capacity = 1, 0
        return PullRequest(
            batch=batch,
            max_bytes=capacity,
            expires=round(limits.expires * NANOSECONDS),
            idle_heartbeat=round(limits.idle_heartbeat * NANOSECONDS),
        )

    def credit(self) -> tuple[int, int]:
        """Return the messages and bytes that may be read before another pull is due."""
        limits = self.limits
        if self._full:
            return 1, UNLIMITED
        if self.by_bytes:
            return UNLIMITED, max(1, self.pending_bytes - limits.threshold_bytes)
        return max(1, self.pending_messages - self._message_limits()[1]), UNLIMITED

    def _message_limits(self) -> tuple[int, int]:
        """Return how many messages may be pending, and the threshold of the next pull."""
        limits = self.limits
        limit = self._window.limit(limits.max_messages)
        if limit == limits.max_messages:
            return limit, limits.threshold_messages
        return limit, min(limits.threshold_messages, limit // 2)

    def on_delivered(self, messages: int, size: int) -> None:
        """Count messages, at least one, that were handed to the user."""
        self._window.on_delivered(messages, size)
        self._retry = 0.0
        self._full = self._oversized = self._unpinned = False
        self._handed_over += messages
        if self.by_bytes:
            self.pending_bytes = max(0, self.pending_bytes - size)
        else:
            self.pending_messages = max(0, self.pending_messages - messages)

    def on_skipped(self, messages: int, size: int) -> None:
        """Count messages that arrived but are not handed to the user."""
        self.pending_messages = max(0, self.pending_messages - messages)
        self.pending_bytes = max(0, self.pending_bytes - size)

    def on_lost(self, messages: int, size: int) -> None:
        """Request fewer messages from now on if the connection was lost during a pull.

        `messages` and `size` are the number and the bytes of the buffered messages.
        """
        if not self.by_bytes and self.is_open(messages, size):
            self._window.on_lost(self.pending_messages - messages)

    def reset(self, messages: int, size: int) -> None:
        """Count only the buffer as pending, because no pull is open any more.

        Used after a reconnect, when heartbeats are missing, and when a pull ended without
        reporting how much of it was left.
        """
        self._full = self._oversized = False
        if self.by_bytes:
            self.pending_bytes = size
        else:
            self.pending_messages = messages

    def on_status(
        self,
        status: int,
        text: str,
        *,
        left: tuple[int, int] | None,
        buffered: tuple[int, int],
    ) -> StatusAction:
        """Account for a status. `left` is the part of its pull that was not delivered."""
        result = classify_status(status, text)
        if result.kind is StatusKind.ALIVE:
            return StatusAction()
        if left is None or self._oversized:
            self.reset(*buffered)
        elif self.by_bytes:
            self.pending_bytes = max(buffered[1], self.pending_bytes - left[1])
        else:
            self.pending_messages = max(buffered[0], self.pending_messages - left[0])
        if isinstance(result.error, ConsumerDeletedError):
            return StatusAction(end=result.error)
        error = result.error
        if self._adapt(text, buffered[0]):
            return StatusAction(report=error, adapted=True)
        alone = not buffered[0] and not self.is_open(*buffered)
        if alone:
            self._full = False
        if result.kind is StatusKind.ENDED:
            too_large = text.lower().startswith("message size exceeds")
            if not (too_large and self.by_bytes):
                return StatusAction()
            whole = left is not None and left[1] >= self.limits.max_bytes
            if not alone:
                # The next message does not fit beside the buffered and requested bytes.
                # A smaller request would be refused immediately, again and again.
                self._full = True
            # No larger request is possible, so pull this message alone, by its number.
            self._oversized = alone and whole
            return StatusAction()
        if result.kind is StatusKind.UNPINNED and not self._unpinned:
            # Without the id the next pull waits its turn. Pause only if the server
            # repeats this reply.
            self._unpinned = True
            return StatusAction(report=error)
        if result.kind is StatusKind.INTERRUPTED:
            self._retry = INITIAL_BACKOFF  # a leader has answered
        else:
            # A pause longer than the heartbeat alarm would look like a stall.
            longest = min(MAX_BACKOFF, 2 * self.limits.idle_heartbeat)
            self._retry = min(max(INITIAL_BACKOFF, self._retry * 2), longest)
        return StatusAction(report=error, retry_in=self._retry)

    def _adapt(self, text: str, buffered: int) -> bool:
        """Request less from now on if a pull exceeded a limit. Return whether it did.

        The limits are set for the consumer, or for all consumers of the server.
        """
        words, limits = text.lower(), self.limits
        limit = _limit_of(text) if words.startswith("exceeded max") else 0
        count = int(limit)
        if words.startswith(_MAX_BATCH) and 0 < count < self._max_batch:
            self._max_batch = count
            messages = min(limits.max_messages, MAX_SMALL_PULLS * count)
            if self.by_bytes:
                # Count messages, because a pull for bytes could now end in silence after
                # its last message.
                messages = min(messages, DEFAULT_MESSAGES)
                self.by_bytes = self._full = self._oversized = False
                self.pending_messages = buffered
            self.limits = replace(
                limits,
                max_messages=messages,
                threshold_messages=min(limits.threshold_messages, messages - 1),
            )
            return True
        if words.startswith(_MAX_BYTES) and 0 < count < limits.max_bytes:
            threshold = min(limits.threshold_bytes, count // 2)
            self.limits = replace(limits, max_bytes=count, threshold_bytes=threshold)
            return True
        if words.startswith(_MAX_EXPIRES) and 0 < limit < limits.expires:
            heartbeat = min(limits.idle_heartbeat, limit / 2)
            self.limits = replace(limits, expires=limit, idle_heartbeat=heartbeat)
            return True
        return False

    def __repr__(self) -> str:
        return (
            f"<PullEngine {self.pending_messages} messages, {self.pending_bytes} bytes "
            "pending>"
        )


class HeartbeatMonitor:
    """Detects late heartbeats (ADR-37, idle heartbeats). The caller passes the time.

    Silence counts from the last message, status or heartbeat, and not while disconnected.
    """

    def __init__(
        self, interval: float, now: float, timeout: float | None = None
    ) -> None:
        self.timeout = timeout or HEARTBEATS_MISSED * interval
        """Seconds of silence until the alarm."""
        self._interval = interval
        self._since = now
        self._paused = False

    def pause(self) -> None:
        """Stop counting silence, because nothing can arrive while disconnected."""
        self._paused = True

    def resume(self, now: float) -> None:
        """Count silence from `now`, after a reconnect."""
        self._paused = False
        self._since = now

    def next_check_in(self, arrived: float, now: float) -> float:
        """Return the seconds until the next check. The last arrival was at `arrived`."""
        alarm = max(arrived, self._since) + self.timeout - now
        # Check shortly after the alarm, but at least once per interval, because perhaps no
        # pull is open now.
        return max(0.01, min(alarm + 0.01, self._interval))

    def is_late(self, arrived: float, now: float) -> bool:
        """Return whether the silence is too long. If so, count it from `now` again."""
        if self._paused or now - max(arrived, self._since) < self.timeout:
            return False
        self._since = now
        return True

    def __repr__(self) -> str:
        state = " paused" if self._paused else ""
        return f"<HeartbeatMonitor{state}, alarm after {self.timeout:g} s>"
