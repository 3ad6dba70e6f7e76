"""What a read was asked for, checked; pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from ..errors import ConfigError
from .options import exclusive, refused

if TYPE_CHECKING:
    from .options import Options

Place: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""A sequence, a moment, or an end of the stream."""
ReadMode: TypeAlias = Literal["consumer", "direct"]


@dataclass(frozen=True)
class SourceOptions:
    streams: tuple[str, ...]
    subjects: tuple[str, ...]
    starting: dict[str, Place]
    ending: dict[str, Place]
    """Exclusive, as with Spark's other sources."""
    max_rows: int | None
    """Of a micro-batch."""
    max_bytes: int | None
    min_partitions: int | None
    max_partitions: int | None
    rows_per_partition: int | None
    fail_on_loss: bool
    pause_file: Path | None
    """While it is there, a query begins no batch of new data."""
    read_mode: ReadMode | None
    """None: as the stream wants it."""

    @classmethod
    def of(cls, options: Options, *, streaming: bool) -> SourceOptions:
        """Read them; raises `ConfigError`."""
        given = exclusive(options, "stream", "streams")
        streams = options.list(given) if given else ()
        if not streams:
            raise ConfigError("option stream is missing: the stream to read")
        if len(set(streams)) < len(streams):
            raise ConfigError(f"option {given} names a stream twice")
        starting = _places(
            options, "starting", streams, "latest" if streaming else "earliest"
        )
        if streaming:
            if name := exclusive(options, "endingOffsets", "endingTimestamp"):
                raise ConfigError(f"option {name} is for a batch: a stream has no end")
            ending: dict[str, Place] = {}
        else:
            if "latest" in starting.values():
                raise ConfigError(
                    "option startingOffsets: a batch from latest on would be empty"
                )
            ending = _places(options, "ending", streams, "latest")
            if "earliest" in ending.values():
                raise ConfigError(
                    "option endingOffsets: a batch that ends at earliest would be empty"
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
            subjects=options.list("subjects"),
            starting=starting,
            ending=ending,
            max_rows=options.count("maxOffsetsPerTrigger"),
            max_bytes=options.count("maxBytesPerTrigger"),
            min_partitions=least,
            max_partitions=most,
            rows_per_partition=options.count("maxRecordsPerPartition"),
            fail_on_loss=options.flag("failOnDataLoss", True),
            pause_file=None if pause is None else Path(pause),
            read_mode=mode or None,  # type: ignore[arg-type]
        )


def _places(
    options: Options,
    which: Literal["starting", "ending"],
    streams: tuple[str, ...],
    default: Literal["earliest", "latest"],
) -> dict[str, Place]:
    """The place in each stream, from `...Offsets` or `...Timestamp`."""
    name = f"{which}Offsets"
    exclusive(options, name, f"{which}Timestamp")
    moment = options.time(f"{which}Timestamp")
    if moment is not None:
        return dict.fromkeys(streams, moment)
    text = options.text(name)
    if text is None:
        return dict.fromkeys(streams, default)
    if not text.startswith("{"):
        return dict.fromkeys(streams, _place(name, text))
    try:
        given = json.loads(text)
    except ValueError as error:
        raise refused(name, "JSON when it begins with {", text) from error
    if missing := [stream for stream in streams if stream not in given]:
        raise ConfigError(f"option {name} has no entry for stream {missing[0]}")
    if other := [stream for stream in given if stream not in streams]:
        raise ConfigError(f"option {name} names stream {other[0]}, which is not read")
    return {stream: _place(name, str(given[stream])) for stream in streams}


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
