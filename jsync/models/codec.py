"""Codecs of values: seconds as nanoseconds, times as RFC 3339, models as JSON objects.

A field's codec has three methods: `read` converts a value of the wire, `write` converts a
value for a server, and `check` checks a caller's value. Each raises `ValueError` or
`OverflowError` for a bad value. Unless it is `strict`, `read` accepts unknown values, such
as a newer server's.
"""

import math
import types
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from numbers import Integral
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from ..errors import ConfigError
from ..validation import check_seconds

NANOSECONDS: Final = "nanoseconds"
BYTES: Final = "bytes"

Seconds = Annotated[float, NANOSECONDS]
"""A duration: nanoseconds on the wire."""
PositiveSeconds = Annotated[float, NANOSECONDS, msgspec.Meta(ge=0)]
"""A duration that servers reject if it is negative."""
Count = Annotated[int, msgspec.Meta(ge=0)]
"""An unsigned number on the server's side."""
ByteCount = Annotated[int, BYTES]
"""A number of bytes."""

_MIN_INT: Final = -(1 << 63)
_MAX_INT: Final = (1 << 64) - 1
"""`_MIN_INT` to `_MAX_INT` are the numbers of a server: 64 bits in Go, signed or not."""
_MAX_DURATION_NS: Final = (1 << 63) - 1
"""The longest duration of Go in nanoseconds, 292 years. Servers use it for "never"."""


class Codec:
    """Values that are the same on the wire: strings, numbers, booleans, lists of these."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def read(self, wire: Any, strict: bool) -> Any:
        return convert(wire, self.kind)

    def write(self, value: Any) -> Any:
        return value

    def check(self, value: Any) -> Any:
        return convert(value, self.kind)


class NumberCodec(Codec):
    """A whole number. It must fit into the 64 bits of a server's numbers."""

    def read(self, wire: Any, strict: bool) -> Any:
        number = convert(wire, self.kind)
        if not _MIN_INT <= number <= _MAX_INT:
            raise ValueError("a number of more than 64 bits")
        return number

    def check(self, value: Any) -> Any:
        if not isinstance(value, bool) and isinstance(value, Integral):
            value = int(value)  # a numpy number
            if not _MIN_INT <= value <= _MAX_INT:
                raise ValueError(f"{value} does not fit into 64 bits")
        return super().check(value)


class ChoiceCodec(Codec):
    """One of several words. A newer server may use words that jsync does not know."""

    def __init__(self, kind: Any) -> None:
        super().__init__(kind)
        self.words: tuple[str, ...] = get_args(kind)

    def read(self, wire: Any, strict: bool) -> Any:
        return self.check(wire) if strict else convert(wire, str)

    def write(self, value: Any) -> Any:
        return self.check(value)

    def check(self, value: Any) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if value in self.words:
            return value
        raise ValueError(f"{value!r} is not one of {', '.join(map(repr, self.words))}")


class DurationCodec(Codec):
    """Seconds in Python, a whole number of nanoseconds on the wire."""

    def read(self, wire: Any, strict: bool) -> Any:
        return convert(wire, int) / 1_000_000_000

    def write(self, value: Any) -> Any:
        value = check_seconds(value, "a duration")
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a number of seconds")
        # Convert through Decimal: 0.3 s must be exactly 300,000,000 ns.
        nanoseconds = round(Decimal(repr(value)) * 1_000_000_000)
        if abs(nanoseconds) > _MAX_DURATION_NS + 1000:
            raise ValueError(
                f"{value} seconds are more than the 292 years that servers can count: "
                "durations are in seconds; did you pass nanoseconds?"
            )
        return max(-_MAX_DURATION_NS, min(nanoseconds, _MAX_DURATION_NS))

    def check(self, value: Any) -> Any:
        self.write(value)
        return super().check(check_seconds(value, "a duration"))


class StringListCodec(Codec):
    """A list of strings, for which a caller may pass a single string."""

    def write(self, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    def check(self, value: Any) -> Any:
        return super().check(self.write(value))


_EARLIEST: Final = datetime(1678, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2262, 1, 1, tzinfo=UTC)
"""The limits of a server's times, which are nanoseconds since 1970 in 64 bits."""


class TimeCodec(Codec):
    """An aware datetime, RFC 3339 on the wire without trailing zeros, as in Go."""

    def read(self, wire: Any, strict: bool) -> Any:
        time = datetime.fromisoformat(convert(wire, str))
        if time.tzinfo is None:
            raise ValueError("a time without an offset")
        # Go's zero time means that there is no time.
        return None if time.year == 1 else time.astimezone(UTC)

    def write(self, value: Any) -> Any:
        text = self.check(value).isoformat().removesuffix("+00:00")
        return f"{text.rstrip('0')}Z" if "." in text else f"{text}Z"

    def check(self, value: Any) -> Any:
        if not isinstance(value, datetime):
            raise ValueError(f"a datetime, not {type(value).__name__}")
        if value.utcoffset() is None:
            raise ValueError("a datetime with a time zone: this one has none")
        # Convert to UTC, because a time in a gap or a fold of its zone never equals a time
        # of another zone.
        time = value.astimezone(UTC)
        # Beyond these limits a server's times overflow: it would read the year 9999 as a
        # time before all messages. No message has such a time.
        return min(max(time, _EARLIEST), _LATEST)


class NestedCodec(Codec):
    """A field that is another model."""

    def read(self, wire: Any, strict: bool) -> Any:
        return self.kind.parse(convert(wire, dict[str, Any]), strict)

    def write(self, value: Any) -> Any:
        if not isinstance(value, self.kind):
            raise ValueError(f"a {self.kind.__name__}, not {value!r}")
        return value.to_wire()

    def check(self, value: Any) -> Any:
        return self.kind.from_any(value, {})


class ListCodec(Codec):
    """A list of values, each converted by the codec `item`."""

    def __init__(self, kind: Any, item: Codec) -> None:
        super().__init__(kind)
        self.item = item

    def read(self, wire: Any, strict: bool) -> Any:
        return [self.item.read(item, strict) for item in convert(wire, list[Any])]

    def write(self, value: Any) -> Any:
        return [self.item.write(item) for item in value]

    def check(self, value: Any) -> Any:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
            raise ValueError(f"a list, not {type(value).__name__}")
        return [self.item.check(item) for item in value]


class DictCodec(Codec):
    """A dict of values by name, each converted by the codec `item`."""

    def __init__(self, kind: Any, item: Codec) -> None:
        super().__init__(kind)
        self.item = item

    def read(self, wire: Any, strict: bool) -> Any:
        by_name = convert(wire, dict[str, Any])
        return {name: self.item.read(item, strict) for name, item in by_name.items()}

    def write(self, value: Any) -> Any:
        return {name: self.item.write(item) for name, item in value.items()}

    def check(self, value: Any) -> Any:
        return {name: self.item.check(item) for name, item in value.items()}


def convert(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        words = str(error).replace("`array`", "list").replace("`object`", "dict")
        raise ValueError(words.replace("`", "")) from None


def codec_of(kind: Any) -> Codec:
    """Return the codec of a field with the annotation `kind`, apart from its `None`."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Union or origin is types.UnionType:
        (kind,) = (arg for arg in args if arg is not types.NoneType)
        return codec_of(kind)
    if origin is Literal:
        return ChoiceCodec(kind)
    if NANOSECONDS in getattr(kind, "__metadata__", ()):
        return DurationCodec(kind)
    if kind is datetime:
        return TimeCodec(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return NestedCodec(kind)
    if kind is int or (origin is Annotated and args[0] is int):
        return NumberCodec(kind)
    if kind == list[str]:
        return StringListCodec(kind)
    if origin is list and type(item := codec_of(args[0])) not in _PLAIN:
        return ListCodec(kind, item)
    if origin is dict and type(item := codec_of(args[1])) not in _PLAIN:
        return DictCodec(kind, item)
    return Codec(kind)


_PLAIN: Final = (Codec, NumberCodec)
"""Lists of these are converted in one step, since they may have a million items."""


_TIME: Final = TimeCodec(datetime)


def wire_time(value: datetime, name: str) -> str:
    """Return an aware datetime as RFC 3339. Raises `ConfigError` if it is not valid."""
    try:
        return str(_TIME.write(value))
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"{name}: {error}") from error


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return a hint with the most similar words, or an empty string without any."""
    import difflib  # noqa: PLC0415 (only errors need it)

    near = difflib.get_close_matches(word, words, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
