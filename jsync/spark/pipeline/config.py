"""What can be written in a pipeline's file, as msgspec Structs.

The pipeline's own words are in snake case; what is in an `options` table is Spark's, spelled
as `spark.read.option` takes it, and `[nats]` is the `nats.*` options of `format("jetstream")`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Options = dict[str, str]
"""As Spark takes them: numbers, times and lists have become text."""


class Watermark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How late rows may be: `DataFrame.withWatermark`."""

    column: str
    delay: str


class JetStreamSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of streams."""

    format: Literal["jetstream"]
    options: Options
    columns: list[str] | None = None
    """Of those that a message has; without it all, with `json` all but `data`."""
    json: str | None = None
    """The schema of the payload, in Spark's DDL: its fields become columns."""
    malformed: Literal["fail", "drop", "null"] = "fail"
    """What to do with a payload that is not JSON of that schema."""
    required: list[str] = []
    """Fields of the payload that may be neither missing nor null."""
    watermark: Watermark | None = None
    static: bool = False
    """Read once, as a table, in a streaming pipeline too."""


class FileSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files: `ndjson` has a JSON object on each line."""

    format: Literal["parquet", "csv", "ndjson"]
    path: str
    schema: str | None = None
    options: Options = {}
    watermark: Watermark | None = None
    static: bool = False


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A view made of those before it."""

    sql: str
    watermark: Watermark | None = None
    unchecked: bool = False
    """Leave the SQL to Spark alone: it is not read before Spark starts."""


class JetStreamSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows become messages: columns `subject`, `data`, `headers`, `msg_id` and so on."""

    format: Literal["jetstream"]
    view: str = field(name="from")
    options: Options
    output_mode: Literal["append", "update", "complete"] = "append"


class FileSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["parquet", "csv", "ndjson"]
    view: str = field(name="from")
    path: str
    partition_by: list[str] = []
    mode: Literal["error", "append", "overwrite", "ignore"] = "error"
    """Of a batch, where the path has something already."""
    options: Options = {}


class ConsoleSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first rows, on standard output; those of every micro-batch when streaming."""

    format: Literal["console"]
    view: str = field(name="from")
    rows: int = 20
    truncate: bool = True
    output_mode: Literal["append", "update", "complete"] = "append"


class Spark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    master: str | None = None
    conf: Options = {}


class Streaming(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checkpoint: str
    trigger: str = "1 second"
    """`available-now`, or how often: `10 seconds`."""
    monitor: bool = False
    """Note the lag of each query in a bucket, for `jsync pipeline status`."""
    http: str | None = None
    """`HOST:PORT` of the monitor's metrics."""


Source = JetStreamSource | FileSource
Sink = JetStreamSink | FileSink | ConsoleSink


class Pipeline(Struct, frozen=True, kw_only=True):
    """A whole file, read. The views in the order in which they are made."""

    name: str
    spark: Spark
    nats: Options
    streaming: Streaming | None
    sources: dict[str, Source]
    steps: dict[str, Step]
    sinks: dict[str, Sink]
    silent: frozenset[str] = frozenset()
    """Sources that give no rows: a replay is of one source alone."""

    def __repr__(self) -> str:
        """Without what came out of the environment."""
        kind = "batch" if self.streaming is None else "streaming"
        views = ", ".join([*self.sources, *self.steps])
        return f"<Pipeline {self.name}, {kind}: {views} -> {', '.join(self.sinks)}>"
