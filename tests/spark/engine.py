"""Call the readers of the source as the engine of Spark does, but without Spark."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

from jsync.spark.micro_batch import JetStreamStreamReader
from jsync.spark.options import Options
from jsync.spark.schema import source_schema
from jsync.spark.source import JetStreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import InputPartition

SCHEMA = source_schema(include_headers=False)


def streaming(options: dict[str, str], **more: object) -> JetStreamStreamReader:
    chosen = {**options, **{name: str(value) for name, value in more.items()}}
    return JetStreamStreamReader(Options(chosen), SCHEMA)


def batch(options: dict[str, str], **more: object) -> JetStreamReader:
    chosen = {**options, **{name: str(value) for name, value in more.items()}}
    return JetStreamReader(Options(chosen), SCHEMA)


def latest(reader: JetStreamStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Return the next offset without limits, as read back from a checkpoint."""
    offset = reader.latestOffset(start, None)
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def sequences(
    reader: JetStreamReader | JetStreamStreamReader,
    partitions: Iterable[InputPartition],
) -> list[int]:
    """Return the sequences that the executors read. Each gets a pickled reader and partition."""
    return sorted(
        sequence
        for part in partitions
        for found in pickle.loads(pickle.dumps(reader)).read(
            pickle.loads(pickle.dumps(part))
        )
        for sequence in found.column("sequence").to_pylist()
    )
