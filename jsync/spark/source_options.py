"""The options of a read, checked. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..errors import ConfigError
from .options import exclusive, moment, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from .options import Options

Place: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""A sequence, a time, or an end of the stream."""
ReadMode: TypeAlias = Literal["consumer", "direct"]


BUCKETS: Final = ("KV_", "OBJ_")
"""Prefixes of key-value buckets and object stores, which a pattern leaves out."""
TRIGGER_DELAY: Final = 900.0
"""Seconds that a batch waits for `minOffsetsPerTrigger` by default, as with Kafka."""


@dataclass(frozen=True)
class Places:
    """A place in each stream."""

    named: dict[str, Place]
    others: Place
    """The place in streams that are not named."""

    def of(self, stream: str) -> Place:
        return self.named.get(stream, self.others)

    def has(self, place: Place) -> bool:
        return place == self.others or place in self.named.values()


@dataclass(frozen=True)
class SourceOptions:
    streams: tuple[str, ...]
    """Empty if there is a pattern."""
    pattern: re.Pattern[str] | None
    """Read all streams whose whole name matches."""
    subjects: tuple[str, ...]
    starting: Places
    ending: Places
    """Exclusive, as with Spark's other sources."""
    max_rows: int | None
    """The most messages of a micro-batch."""
    max_bytes: int | None
    min_rows: int | None
    """A micro-batch with fewer messages waits, up to `max_delay` seconds."""
    max_delay: float
    min_partitions: int | None
    max_partitions: int | None
    rows_per_partition: int | None
    fail_on_loss: bool
    pause_file: Path | None
    """While this file exists, a query begins no batch of new data."""
    read_mode: ReadMode | None
    """None: as the stream's retention requires."""

    def reads(self, stream: str) -> bool:
        """Return whether the options choose a stream of this name."""
        if self.pattern is None:
            return stream in self.streams
        return matches(self.pattern, stream)

    @classmethod
    def of(cls, options: Options, *, streaming: bool) -> SourceOptions:
        """Read the options. Raises `ConfigError` if one is invalid."""
        given = exclusive(options, "stream", "streams", "streamPattern")
        pattern = _pattern(options)
        streams = () if given is None or pattern else options.list(given)
        if not streams and pattern is None:
            raise ConfigError("option stream is missing: the stream to read")
        if len(set(streams)) < len(streams):
            raise ConfigError(f"option {given} names a stream twice")

        def reads(name: str) -> bool:
            return name in streams if pattern is None else matches(pattern, name)

        first: Place = "latest" if streaming else "earliest"
        starting = _places(options, "starting", streams, first, reads)
        if streaming:
            if name := exclusive(options, "endingOffsets", "endingTimestamp"):
                raise ConfigError(f"option {name} is for a batch: a stream has no end")
            ending = Places({}, "latest")
        else:
            if starting.has("latest"):
                raise ConfigError(
                    "option startingOffsets: a batch from latest on would be empty"
                )
            ending = _places(options, "ending", streams, "latest", reads)
            if ending.has("earliest"):
                raise ConfigError(
                    "option endingOffsets: a batch that ends at earliest would be empty"
                )
        min_rows, max_rows = (
            options.count(f"{which}OffsetsPerTrigger") for which in ("min", "max")
        )
        if min_rows is not None and max_rows is not None and min_rows > max_rows:
            raise ConfigError(
                f"option minOffsetsPerTrigger is above maxOffsetsPerTrigger: {min_rows} "
                f"and {max_rows}; give one of them, or a greater maxOffsetsPerTrigger"
            )
        delay = options.duration("maxTriggerDelay")
        if delay is not None and min_rows is None:
            raise ConfigError(
                "option maxTriggerDelay needs minOffsetsPerTrigger: no batch waits without"
            )
        least, most = options.count("minPartitions"), options.count("maxPartitions")
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"option minPartitions is above maxPartitions: {least} and {most}; give "
                "one of them, or a greater maxPartitions"
            )
        pause = options.text("pauseFile")
        if pause is not None and not streaming:
            raise ConfigError("option pauseFile is for a stream: a batch is not paused")
        mode = options.choice("readMode", ("consumer", "direct"), "")
        return cls(
            streams=streams,
            pattern=pattern,
            subjects=options.list("subjects"),
            starting=starting,
            ending=ending,
            max_rows=max_rows,
            max_bytes=options.count("maxBytesPerTrigger"),
            min_rows=min_rows,
            max_delay=TRIGGER_DELAY if delay is None else delay,
            min_partitions=least,
            max_partitions=most,
            rows_per_partition=options.count("maxRecordsPerPartition"),
            fail_on_loss=options.flag("failOnDataLoss", True),
            pause_file=None if pause is None else Path(pause),
            read_mode=mode or None,  # type: ignore[arg-type]
        )


def matches(pattern: re.Pattern[str], stream: str) -> bool:
    """Return whether a pattern chooses this stream."""
    return not stream.startswith(BUCKETS) and pattern.fullmatch(stream) is not None


def _pattern(options: Options) -> re.Pattern[str] | None:
    text = options.text("streamPattern")
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        wanted = f"a regular expression of Python ({error})"
        raise refused("streamPattern", wanted, text) from error


def _places(
    options: Options,
    which: Literal["starting", "ending"],
    streams: tuple[str, ...],
    default: Place,
    reads: Callable[[str], bool],
) -> Places:
    """Return the place in each stream, from `...Offsets` or `...Timestamp`."""
    name = exclusive(options, f"{which}Offsets", f"{which}Timestamp")
    text = None if name is None else options.text(name)
    if name is None or text is None:
        return Places({}, default)
    place = moment if name.endswith("Timestamp") else _place
    if not text.startswith("{"):
        return Places({}, place(name, text))
    try:
        given = json.loads(text)
    except ValueError as error:
        raise refused(name, "JSON when it begins with {", text) from error
    if missing := [stream for stream in streams if stream not in given]:
        raise ConfigError(f"option {name} has no entry for stream {missing[0]}")
    if other := [stream for stream in given if not reads(stream)]:
        raise ConfigError(f"option {name} names stream {other[0]}, which is not read")
    named = {stream: place(name, str(where)) for stream, where in given.items()}
    return Places(named, default)


def _place(name: str, text: str) -> Place:
    match text.lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise refused(
            name,
            'earliest, latest, a sequence from 1 on, or JSON as {"ORDERS": 42}',
            text,
        )
    return int(text)
