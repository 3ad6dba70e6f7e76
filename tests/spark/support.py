"""Read streams with Spark, for the tests of the source."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from jsync.spark.pipeline.start_retry import WORKER_TIMEOUT, start_with_retry

from ..support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

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
        writer = frame.writeStream.foreachBatch(self.take).option(
            "checkpointLocation", str(self.checkpoint)
        )
        return ended(writer.trigger(availableNow=True), LONG)

    @contextmanager
    def running(self, frame: DataFrame) -> Iterator[StreamingQuery]:
        """Read continuously until the block ends."""
        query = begun(
            frame.writeStream.foreachBatch(self.take).option(
                "checkpointLocation", str(self.checkpoint)
            )
        )
        try:
            yield query
        finally:
            query.stop()


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, and wait until its sources have begun."""

    def begin() -> StreamingQuery:
        query = writer.start()
        wait_for(lambda: not query.isActive or has_begun(query), LONG)
        if failure := query.exception():
            raise failure
        return query

    return with_retries(begin)


def has_begun(query: StreamingQuery) -> bool:
    status = query.status
    return bool(status["isDataAvailable"]) or status["message"].startswith("Waiting")


def ended(writer: DataStreamWriter, timeout: int) -> StreamingQuery:
    """Run a query to its end."""

    def run() -> StreamingQuery:
        query = writer.start()
        try:
            assert query.awaitTermination(timeout)
        finally:
            query.stop()
        return query

    return with_retries(run)


def with_retries(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Call `start` until no Python worker of Spark comes too late, even on a slow machine.

    Spark gives a worker ten seconds to connect. Nothing is read or written before.
    """
    deadline = time.monotonic() + LONG
    while True:
        try:
            return start_with_retry(start)
        except PySparkException as error:
            if WORKER_TIMEOUT not in str(error) or time.monotonic() > deadline:
                raise


def fill(js: jsync.JetStream, stream: jsync.Stream, *payloads: bytes) -> None:
    """Publish these payloads to the stream, on the subjects `.0`, `.1` and `.2` in turn."""
    with js.publisher() as publisher:
        for number, payload in enumerate(payloads):
            publisher.publish(f"{stream.name}.{number % 3}", payload)


def numbers(count: int, start: int = 1) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]
