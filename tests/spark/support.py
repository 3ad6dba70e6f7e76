"""Read streams with Spark, for the tests of the source."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    import jsync
    from jsync.server import LocalServer

LONG = 600
"""The seconds in which a query must end, even on a slow machine."""


class Reading:
    """The session, the server and the options that the tests read a stream with."""

    def __init__(self, spark: SparkSession, server: LocalServer) -> None:
        self._spark = spark
        self._url = server.url

    def batch(
        self, stream: str | jsync.Stream, schema: str | None = None, **options: object
    ) -> DataFrame:
        reader = self._spark.read.format("jetstream")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**self._options(stream, options)).load()

    def stream(
        self, stream: str | jsync.Stream, schema: str | None = None, **options: object
    ) -> DataFrame:
        reader = self._spark.readStream.format("jetstream")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**self._options(stream, options)).load()

    def _options(
        self, stream: str | jsync.Stream, options: dict[str, object]
    ) -> dict[str, Any]:
        name = stream if isinstance(stream, str) else stream.name
        chosen = {"nats_servers": self._url, "streams": name, **options}
        return {key.replace("_", "."): str(value) for key, value in chosen.items()}


class Batches:
    """The rows of a streaming query, batch by batch, over its restarts."""

    def __init__(self, directory: Path) -> None:
        self.checkpoint = directory / f"checkpoint-{uuid.uuid4().hex}"
        self.given: list[tuple[int, list[int]]] = []
        """The number of each batch, and its sequences."""
        self.rows: list[Row] = []
        self.fail_at: int | None = None
        """The number of a batch that fails once, after its rows are recorded."""

    @property
    def sequences(self) -> list[int]:
        """The sequences of all batches with rows, in order."""
        return [sequence for _, found in self.given for sequence in found]

    def take(self, frame: DataFrame, batch: int) -> None:
        rows = sorted(frame.collect(), key=lambda row: row.sequence)
        self.given.append((batch, [row.sequence for row in rows]))
        self.rows += rows
        if batch == self.fail_at:
            self.fail_at = None
            raise RuntimeError("the sink fails")

    def available(self, frame: DataFrame) -> StreamingQuery:
        """Read the messages that are available now, and wait for the end."""
        query = (
            frame.writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(LONG)
        finally:
            query.stop()
        return query

    @contextmanager
    def running(self, frame: DataFrame) -> Iterator[StreamingQuery]:
        """Read continuously until the block ends."""
        query = (
            frame.writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )
        try:
            yield query
        finally:
            query.stop()


def fill(js: jsync.JetStream, stream: jsync.Stream, *payloads: bytes) -> None:
    """Publish these payloads to the stream, on the subjects `.0`, `.1` and `.2` in turn."""
    with js.publisher() as publisher:
        for number, payload in enumerate(payloads):
            publisher.publish(f"{stream.name}.{number % 3}", payload)


def numbers(count: int, start: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]
