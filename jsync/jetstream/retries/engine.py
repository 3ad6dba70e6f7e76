"""When to retry a failed message, and the headers of dead letters. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from ..._fast import check_publish_subject
from ...errors import ConfigError, InvalidSubjectError
from ...headers import Headers
from ...hints import explain_arguments
from ...terminal import printable
from ...validation import MAX_SEQUENCE, Seconds, check_count, check_seconds

if TYPE_CHECKING:
    from types import TracebackType

    from ...headers import HeadersLike
    from ...models import ConsumerConfig

MAX_DELAY: Final = 1_000_000_000
"""Seconds. Servers can count this time in nanoseconds."""

ACK_WAIT: Final = 30.0
"""Seconds: the server's default if a consumer has no `ack_wait`."""
_SHARE: Final = 3

Failures: TypeAlias = tuple[type[BaseException], ...]

PREFIX: Final = "Dead-Letter-"
"""The headers of a dead letter that say why it is one."""
ORIGINAL: Final = f"{PREFIX}Original-"
"""The prefix for headers of the message that the server would obey, such as `Nats-TTL`."""
_ORDERS: Final = "nats-"
_OWN_FILES: Final = (str(Path(__file__).parents[2]), "jsync/_fast")
"""The beginnings of the names of jsync's files in tracebacks, including the extension."""
_MAX_TEXT: Final = 1000
_ESCAPES: Final = (("\\", "\\\\"), ("\r", "\\r"), ("\n", "\\n"), ("\t", "\\t"))


@explain_arguments
@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """When a message whose handler raised is delivered again, and where it ends.

    The server waits for the next attempt and counts the attempts, so both survive a restart
    of your program and are shared by all workers of the consumer. Every delivery counts as
    an attempt.

    Args:
        delays: Seconds before the second attempt, the third, and so on. The last delay
            stands for all later attempts.
        attempts: The number of failures that end the message. None: it never ends.
        factor: Multiply the last delay by this number for each attempt beyond `delays`.
        max_delay: The longest delay in seconds that `factor` leads to.
        jitter: Shorten each delay by a random part of it, at most this one, from 0 to 1.
        retry_on: The exceptions that are worth another attempt. All others end the message
            immediately.
        give_up_on: The exceptions that end the message immediately, although they are among
            `retry_on`.
        dead_letter: The subject that a message is published to at its end. A stream has to
            take the subject. None: the message is only terminated.
        deliveries: Beyond this number of deliveries a message ends without a call of the
            handler. This ends messages that kill the process. Default: twice `attempts`.
        traceback_size: Bytes of the traceback that a dead letter carries. The end of the
            traceback is kept.

    Raises:
        ConfigError: An argument is out of its range.

    Example:
        ```python
        retry = jsync.Retry(delays=[1, 5, 30], attempts=5, dead_letter="dead.orders")
        print([retry.delay(attempt) for attempt in (1, 2, 3)])
        ```
    """

    delays: Sequence[Seconds] = (1.0, 5.0, 30.0)
    attempts: int | None = 5
    factor: float = 1.0
    max_delay: Seconds = 3600.0
    jitter: float = 0.0
    retry_on: type[BaseException] | Failures = (BaseException,)
    give_up_on: type[BaseException] | Failures = ()
    dead_letter: str | None = None
    deliveries: int | None = None
    traceback_size: int = 4096

    def __post_init__(self) -> None:
        delays: object = self.delays
        if isinstance(delays, str) or not isinstance(delays, Sequence) or not delays:
            raise ConfigError(
                f"delays: {delays!r}; give the seconds before each attempt in a list"
            )
        self._set("delays", tuple(_delay(delay, "delays") for delay in delays))
        self._set("max_delay", _delay(self.max_delay, "max_delay"))
        factor, jitter = (
            check_seconds(self.factor, "factor"),
            check_seconds(self.jitter, "jitter"),
        )
        if not 1 <= factor <= 1000:
            raise ConfigError(f"factor has to be from 1 to 1000, not {self.factor!r}")
        if not 0 <= jitter <= 1:
            raise ConfigError(f"jitter has to be from 0 to 1, not {self.jitter!r}")
        self._set("retry_on", _kinds(self.retry_on, "retry_on"))
        self._set("give_up_on", _kinds(self.give_up_on, "give_up_on"))
        if self.attempts is not None:
            check_count(self.attempts, "attempts", 1)
        if self.deliveries is not None:
            attempts = self.attempts or 1
            if check_count(self.deliveries, "deliveries", 1) < attempts:
                raise ConfigError(
                    f"deliveries has to be at least attempts={attempts}, not "
                    f"{self.deliveries}"
                )
        check_count(self.traceback_size, "traceback_size", 0, 1 << 20)
        if self.dead_letter is not None:
            try:
                check_publish_subject(self.dead_letter)
            except InvalidSubjectError as error:
                raise ConfigError(f"dead_letter: {error}") from error

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def delay_after(
        self, attempt: int, error: BaseException, chance: float = 0.0
    ) -> float | None:
        """Return the seconds until the next attempt, or None if this was the last one.

        Args:
            attempt: The number of the attempt that failed: 1 is the first.
            error: The exception that the handler raised.
            chance: A random number from 0 to 1, for `jitter`.

        Returns:
            The seconds, or None.
        """
        if self.attempts is not None and attempt >= self.attempts:
            return None
        assert isinstance(self.give_up_on, tuple)
        if isinstance(error, self.give_up_on) or not isinstance(error, self.retry_on):
            return None
        return self.delay(attempt) * (1 - self.jitter * chance)

    def delay(self, attempt: int) -> float:
        """Return the seconds after an attempt, before `jitter` shortens them.

        Args:
            attempt: The number of the attempt that failed: 1 is the first.

        Returns:
            The seconds.
        """
        last = float(self.delays[-1])  # type: ignore[arg-type]
        if attempt <= len(self.delays):
            return float(self.delays[attempt - 1])  # type: ignore[arg-type]
        try:
            grown = last * float(self.factor) ** (attempt - len(self.delays))
        except OverflowError:
            grown = float(MAX_DELAY)
        return max(last, min(grown, float(self.max_delay)))  # type: ignore[arg-type]

    def max_deliver(self, config: ConsumerConfig | None) -> int:
        """Return the number of deliveries beyond which the handler is not called.

        Args:
            config: The configuration of the consumer. None: unknown.

        Returns:
            The number of deliveries.

        Raises:
            ConfigError: The consumer does not fit this policy.
        """
        deliveries = self.deliveries or (
            MAX_SEQUENCE if self.attempts is None else 2 * self.attempts
        )
        if config is None:
            return deliveries
        if config.ack_policy in ("none", "all"):
            raise ConfigError(
                f"retry needs a consumer that acknowledges each message by itself, and "
                f"this one has ack_policy={config.ack_policy!r}"
            )
        limit = config.max_deliver or -1
        if limit < 1:
            return deliveries
        if self.attempts is None or limit <= self.attempts:
            raise ConfigError(
                f"the server gives a message up after max_deliver={limit} deliveries, "
                f"before retry ends it (attempts={self.attempts}); set max_deliver of the "
                "consumer above attempts, or unset it"
            )
        # Keep the last delivery for the dead letter: no delivery follows it.
        return min(deliveries, limit - 1)


def extension_interval(
    waits: Sequence[Seconds] | None, ack_wait: Seconds | None
) -> float:
    """Return the seconds between two requests for more time for a message.

    A third of the shortest time after which the server would deliver the message again.

    Args:
        waits: The `backoff` of the consumer.
        ack_wait: The `ack_wait` of the consumer, which counts if there is no `backoff`.
    """
    shortest = min(
        check_seconds(seconds, "ack_wait")
        for seconds in waits or [ack_wait or ACK_WAIT]
    )
    return shortest / _SHARE


def _delay(value: object, name: str) -> float:
    delay = check_seconds(value, name)
    if not 0 <= delay <= MAX_DELAY:
        raise ConfigError(
            f"{name} has to be from 0 to {MAX_DELAY} seconds, not {value!r}"
        )
    return delay


def _kinds(value: object, name: str) -> Failures:
    kinds = value if isinstance(value, tuple) else (value,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ConfigError(
                f"{name}: {kind!r} is no class of exceptions; give one, or a tuple of them"
            )
    return kinds


# Dead letters -------------------------------------------------------------------------


class MessageOrigin(NamedTuple):
    """The origin of a message that was given up: stream, consumer and sequence."""

    stream: str
    consumer: str
    sequence: int
    timestamp: datetime
    """When the stream stored it."""
    attempts: int
    subject: str

    @property
    def msg_id(self) -> str:
        """The `Nats-Msg-Id` of its dead letter, which is the same at each retry."""
        # A recreated stream has the same sequences, so add the time to the id.
        stored = int(self.timestamp.timestamp() * 1e6)
        return f"dead:{self.stream}:{self.consumer}:{self.sequence}:{stored}"


def dead_letter_headers(
    origin: MessageOrigin,
    headers: HeadersLike | None,
    reason: str,
    error: BaseException | None,
    at: datetime,
    traceback_size: int,
    lost: Sequence[str] = (),
) -> Mapping[str, list[str]]:
    """Return the headers of a dead letter: the headers of the message, and the reason.

    `lost` has the names of headers of the message that cannot be sent.
    """
    given = Headers(headers or {})
    if f"{PREFIX}Reason" in given:  # it was already a dead letter
        given = Headers(original_headers(given))
    own: dict[str, list[str]] = {}
    for name, value in given.pairs():
        kept = f"{ORIGINAL}{name}" if name.lower().startswith(_ORDERS) else name
        own.setdefault(kept, []).append(value)
    why = {
        "Reason": one_line(reason)[:_MAX_TEXT],
        "Subject": origin.subject,
        "Stream": origin.stream,
        "Consumer": origin.consumer,
        "Sequence": str(origin.sequence),
        "Attempts": str(origin.attempts),
        "Stored": origin.timestamp.astimezone(UTC).isoformat(),
        "Time": at.astimezone(UTC).isoformat(),
    }
    if lost:
        why["Lost-Headers"] = one_line(", ".join(map(repr, lost)))[:_MAX_TEXT]
    if error is not None:
        kind = type(error)
        why["Exception"] = f"{kind.__module__}.{kind.__qualname__}"
        if traceback_size:
            why["Traceback"] = _truncate(_traceback(error), traceback_size)
    added = {f"{PREFIX}{name}": [value] for name, value in why.items()}
    return own | added | {"Nats-Msg-Id": [origin.msg_id]}


def original_headers(headers: HeadersLike | None) -> dict[str, list[str]]:
    """Return the headers that the message of a dead letter had."""
    own: dict[str, list[str]] = {}
    for name, value in Headers(headers or {}).pairs():
        if name.startswith(ORIGINAL):
            own.setdefault(name.removeprefix(ORIGINAL), []).append(value)
        elif not name.startswith(PREFIX) and name != "Nats-Msg-Id":
            own.setdefault(name, []).append(value)
    return own


def format_error(error: BaseException) -> str:
    """Return the type and the text of an exception, even if its `__str__` raises."""
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 (user code)
        text = f"its text raised {type(second).__name__}"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """Return text as the value of a header, escaped like JSON except for quotes."""
    for plain, escaped in _ESCAPES:
        text = text.replace(plain, escaped)
    return printable(text).strip()


def as_text(value: str) -> str:
    """Return the text from the value of a header that `one_line` returned."""
    quoted = '"' + value.replace('"', '\\"') + '"'
    try:
        return msgspec.json.decode(quoted.encode(), type=str)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return value  # cut in the middle of an escape, or written by another program


def user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception without the first frames, which are of jsync.

    None if there is no other frame.
    """
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(
        _OWN_FILES
    ):
        found = found.tb_next
    return found


def _traceback(error: BaseException) -> str:
    try:
        lines = traceback.format_exception(type(error), error, user_traceback(error))
        return "".join(lines).strip()
    except Exception:  # noqa: BLE001 (the text of an exception is user code)
        return format_error(error)


def _truncate(text: str, size: int) -> str:
    """Return the last `size` bytes of a text as the value of a header."""
    escaped = one_line(text).encode()
    if len(escaped) <= size:
        return escaped.decode()
    return "..." + escaped[-size:].decode(errors="ignore")
