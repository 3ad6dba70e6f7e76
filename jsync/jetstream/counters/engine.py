"""Counters in the form in which streams store them (ADR-49). Pure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...errors import ConfigError, JetStreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...models import StoredMessage, StreamConfig

INCREMENT: Final = "Nats-Incr"
SOURCES: Final = "Nats-Counter-Sources"


class CounterEntry(msgspec.Struct, frozen=True):
    """A counter, as its stream has it. `Counters.get` returns it.

    Example:
        ```python
        js.create_stream(
            name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True
        )
        hits = js.counters("HITS")
        hits.add("hits.home", 2)
        entry = hits.get("hits.home")
        print(entry.subject, entry.value)
        ```
    """

    subject: str
    value: int
    sources: dict[str, dict[str, int]]
    """The contributions of other streams: the value by stream and subject. Empty for a
    counter without sources."""
    increment: int | None
    """The latest increment. Sum these to audit a counter."""
    sequence: int
    """The sequence of the latest increment in the stream."""


class _Body(msgspec.Struct):
    val: str


_decode: Final = msgspec.json.Decoder(_Body).decode
_decode_sources: Final = msgspec.json.Decoder(dict[str, dict[str, str]]).decode


def read_entry(message: StoredMessage) -> CounterEntry:
    """Read the counter in a message. Raises `JetStreamError` if the message has none."""
    headers: Any = message.headers or {}
    try:
        sources = headers.get(SOURCES)
        increment = headers.get(INCREMENT)
        return CounterEntry(
            subject=message.subject,
            value=int(_decode(message.data).val),
            sources={
                stream: {subject: int(value) for subject, value in values.items()}
                for stream, values in _decode_sources(sources).items()
            }
            if sources
            else {},
            increment=None if increment is None else int(increment),
            sequence=message.sequence,
        )
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise JetStreamError(
            f"{message.subject!r} of {message.stream} is not a counter: "
            f"{message.data[:100]!r}"
        ) from error


def read_entries(messages: Iterable[StoredMessage]) -> Iterator[CounterEntry]:
    """Read the counters in messages, and then raise the error of the first that has none."""
    failure: JetStreamError | None = None
    for message in messages:
        try:
            entry = read_entry(message)
        except JetStreamError as error:
            failure = failure or error
        else:
            yield entry
    if failure is not None:
        raise failure


def check_amount(amount: object) -> int:
    """Return a valid number to add. Raises `ConfigError` otherwise."""
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise ConfigError(f"amount: an int, not {type(amount).__name__}")
    digits = sys.get_int_max_str_digits()
    # Python refuses to format longer numbers. 10 bits have slightly more than 3 digits.
    if digits and amount.bit_length() > digits * 3:
        raise ConfigError(
            f"amount: a number of {amount.bit_length()} bits is too large for a counter"
        )
    return amount


def missing_settings(config: StreamConfig) -> list[str]:
    """Return the settings that counters need and that the stream lacks."""
    return [
        name
        for name in ("allow_msg_counter", "allow_direct")
        if not getattr(config, name)
    ]
