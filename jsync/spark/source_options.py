"""The options of a read, checked. Pure.

A read returns the messages of streams, the last message of each subject, the values of a
bucket, or the changes of a bucket.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..errors import ConfigError
from ..subjects import covers
from .buckets import OBJECT_PREFIX, STREAM_PREFIX, check_bucket, check_keys
from .offsets import MAX_BYTES
from .options import exclusive, invalid_option, moment

if TYPE_CHECKING:
    from collections.abc import Callable

    from .options import Options

OffsetSpec: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""A sequence, a time, or an end of the stream."""
ReadMode: TypeAlias = Literal["consumer", "direct"]


BUCKETS: Final = (STREAM_PREFIX, OBJECT_PREFIX)
"""Prefixes of key-value buckets and object stores, which a pattern leaves out."""
_OF_A_LOG: Final = (
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "readMode",
)
"""Options that choose a part of a stream in the order of its sequences."""
_OF_MICRO_BATCHES: Final = (
    *("maxOffsetsPerTrigger", "maxBytesPerTrigger"),
    *("minOffsetsPerTrigger", "maxTriggerDelay"),
)
TRIGGER_DELAY: Final = 900.0
"""Seconds that a batch waits for `minOffsetsPerTrigger` by default, as with Kafka."""


@dataclass(frozen=True)
class OffsetSpecs:
    """An offset for each stream."""

    named: dict[str, OffsetSpec]
    others: OffsetSpec
    """The offset for streams that are not named."""

    def of(self, stream: str) -> OffsetSpec:
        return self.named.get(stream, self.others)

    def has(self, spec: OffsetSpec) -> bool:
        return spec == self.others or spec in self.named.values()


@dataclass(frozen=True)
class SourceOptions:
    streams: tuple[str, ...]
    """Empty if there is a pattern."""
    pattern: re.Pattern[str] | None
    """Read all streams whose whole name matches."""
    subjects: tuple[str, ...]
    bucket: str | None
    """Read this key-value bucket, whose stream is the only one."""
    keys: tuple[str, ...]
    """Keys of the bucket, or patterns. Empty: all keys."""
    is_table: bool
    """Read only the last message of each subject, or the value of each key."""
    starting: OffsetSpecs
    ending: OffsetSpecs
    """Exclusive, as with Spark's other sources."""
    max_rows: int | None
    """The most messages of a micro-batch."""
    max_bytes: int | None
    min_rows: int | None
    """A micro-batch with fewer messages waits, up to `max_delay` seconds."""
    max_delay: float
    min_partitions: int | None
    max_partitions: int | None
    min_partition_rows: int | None
    """The fewest messages of a partition that is made for `min_partitions`."""
    rows_per_partition: int | None
    partition_bytes: int
    """The most bytes of a partition."""
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
        given = exclusive(options, "stream", "streams", "streamPattern", "bucket")
        for needed in ("pathGlobFilter", "maxObjectBytes"):
            if options.text(needed) is not None:
                raise ConfigError(
                    f"option {needed} needs objectStore: the object store to read"
                )
        pattern = _pattern(options)
        bucket, keys = _bucket(options, streaming=streaming)
        streams = () if given is None or pattern else options.list(given)
        if bucket is not None:
            streams = (STREAM_PREFIX + bucket,)
        if not streams and pattern is None:
            raise ConfigError(
                "option stream is missing: the stream to read, or bucket, a key-value "
                "bucket, or objectStore, an object store"
            )
        if len(set(streams)) < len(streams):
            raise ConfigError(f"option {given} names a stream twice")

        def reads(name: str) -> bool:
            return name in streams if pattern is None else matches(pattern, name)

        first: OffsetSpec = "latest" if streaming else "earliest"
        starting = _offset_specs(options, "starting", streams, first, reads)
        if streaming:
            if name := exclusive(options, "endingOffsets", "endingTimestamp"):
                raise ConfigError(f"option {name} is for a batch: a stream has no end")
            ending = OffsetSpecs({}, "latest")
        else:
            if starting.has("latest"):
                raise ConfigError(
                    "option startingOffsets: a batch from latest on would be empty"
                )
            ending = _offset_specs(options, "ending", streams, "latest", reads)
            if ending.has("earliest"):
                raise ConfigError(
                    "option endingOffsets: a batch that ends at earliest would be empty"
                )
            _check_order(options, starting, ending, streams)
        min_rows, max_rows = options.count_range("OffsetsPerTrigger")
        delay = options.duration("maxTriggerDelay")
        if delay is not None and min_rows is None:
            raise ConfigError(
                "option maxTriggerDelay needs minOffsetsPerTrigger: no batch waits without"
            )
        max_bytes = options.count("maxBytesPerTrigger")
        if not streaming:
            _reject_limits(options)
        min_partitions, max_partitions = options.count_range("Partitions")
        min_rows_each, max_rows_each = options.count_range("RecordsPerPartition")
        if min_rows_each is not None and min_partitions is None:
            raise ConfigError(
                "option minRecordsPerPartition needs minPartitions: it limits them"
            )
        pause = options.text("pauseFile")
        if pause is not None and not streaming:
            raise ConfigError("option pauseFile is for a stream: a batch is not paused")
        mode = options.choice("readMode", ("consumer", "direct"), "")
        return cls(
            streams=streams,
            pattern=pattern,
            subjects=widest(options.list("subjects")),
            bucket=bucket,
            keys=keys,
            is_table=_is_table(options, streaming=streaming),
            starting=starting,
            ending=ending,
            max_rows=max_rows,
            max_bytes=max_bytes,
            min_rows=min_rows,
            max_delay=TRIGGER_DELAY if delay is None else delay,
            min_partitions=min_partitions,
            max_partitions=max_partitions,
            min_partition_rows=min_rows_each,
            rows_per_partition=max_rows_each,
            partition_bytes=options.count("maxPartitionBytes") or MAX_BYTES,
            fail_on_loss=options.flag("failOnDataLoss", True),
            pause_file=None if pause is None else Path(pause),
            read_mode=mode or None,  # type: ignore[arg-type]
        )


def _reject_limits(options: Options) -> None:
    """Raise `ConfigError` for a limit of micro-batches, which would not limit a batch."""
    for name in _OF_MICRO_BATCHES:
        if options.text(name) is not None:
            raise ConfigError(
                f"option {name} is for the micro-batches of a stream: a batch has no such "
                "limit, so leave it out"
            )


def matches(pattern: re.Pattern[str], stream: str) -> bool:
    """Return whether a pattern chooses this stream."""
    return not stream.startswith(BUCKETS) and pattern.fullmatch(stream) is not None


def widest(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the patterns that no other one covers, because servers refuse the others."""
    unique = dict.fromkeys(patterns)
    return tuple(
        pattern
        for pattern in unique
        if not any(other != pattern and covers(other, pattern) for other in unique)
    )


def _bucket(options: Options, *, streaming: bool) -> tuple[str | None, tuple[str, ...]]:
    """Return the bucket to read, or None, and the keys to read."""
    bucket = options.text("bucket")
    if bucket is None:
        for name in ("keys", "history"):
            if options.text(name) is not None:
                raise ConfigError(f"option {name} needs bucket: the bucket to read")
        return None, ()
    for name, remedy in (
        ("subjects", "give keys"),
        ("includeHeaders", "leave it out, or read its stream"),
        (
            "lastPerSubject",
            "leave it out, since a batch has the last value of each key",
        ),
    ):
        if options.text(name) is not None:
            raise ConfigError(
                f"option {name} is for streams, not for a bucket: {remedy}"
            )
    if streaming and options.text("history") is not None:
        raise ConfigError(
            "option history is for a batch: a stream has every change, from "
            "startingOffsets on"
        )
    check_bucket(bucket)
    keys = options.list("keys")
    check_keys(keys)
    return bucket, widest(keys)


def _is_table(options: Options, *, streaming: bool) -> bool:
    """Return whether to read only the last message of each subject or key."""
    last = options.flag("lastPerSubject", False)
    if last and streaming:
        raise ConfigError(
            "option lastPerSubject is for a batch: a stream has every message"
        )
    whole_bucket = options.text("bucket") is not None and not streaming
    if not last and (not whole_bucket or options.flag("history", False)):
        return False
    for name in _OF_A_LOG:
        if options.text(name) is not None:
            remedy = "add history=true" if whole_bucket else "leave lastPerSubject out"
            raise ConfigError(
                f"option {name} needs every message, and this read has only the last one "
                f"of each {'key' if whole_bucket else 'subject'}: {remedy}"
            )
    return True


def _pattern(options: Options) -> re.Pattern[str] | None:
    text = options.text("streamPattern")
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        expected = f"a regular expression of Python ({error})"
        raise invalid_option("streamPattern", expected, text) from error


def _offset_specs(
    options: Options,
    which: Literal["starting", "ending"],
    streams: tuple[str, ...],
    default: OffsetSpec,
    reads: Callable[[str], bool],
) -> OffsetSpecs:
    """Return the offset for each stream, from `...Offsets` or `...Timestamp`."""
    name = exclusive(options, f"{which}Offsets", f"{which}Timestamp")
    text = None if name is None else options.text(name)
    if name is None or text is None:
        return OffsetSpecs({}, default)
    parse = moment if name.endswith("Timestamp") else _offset_spec
    if not text.startswith("{"):
        return OffsetSpecs({}, parse(name, text))
    try:
        given = json.loads(text)
    except ValueError as error:
        raise invalid_option(name, "JSON when it begins with {", text) from error
    if missing := [stream for stream in streams if stream not in given]:
        raise ConfigError(f"option {name} has no entry for stream {missing[0]}")
    if other := [stream for stream in given if not reads(stream)]:
        raise ConfigError(f"option {name} names stream {other[0]}, which is not read")
    named = {stream: parse(name, str(where)) for stream, where in given.items()}
    return OffsetSpecs(named, default)


def _check_order(
    options: Options,
    starting: OffsetSpecs,
    ending: OffsetSpecs,
    streams: tuple[str, ...],
) -> None:
    """Raise `ConfigError` if the end of a batch is before its start, as far as that is known."""
    for stream in dict.fromkeys((*streams, *starting.named, *ending.named)):
        match starting.of(stream), ending.of(stream):
            case (int(start), int(end)) if end < start:
                pass
            case (datetime() as since, datetime() as until) if until < since:
                pass
            case _:
                continue
        first, last = (
            exclusive(options, f"{which}Offsets", f"{which}Timestamp")
            for which in ("starting", "ending")
        )
        raise ConfigError(
            f"option {last} is before {first} for stream {stream}: give a later end, or an "
            "earlier start"
        )


def _offset_spec(name: str, text: str) -> OffsetSpec:
    match text.lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise invalid_option(
            name,
            'earliest, latest, a sequence from 1 on, or JSON as {"ORDERS": 42}',
            text,
        )
    return int(text)
