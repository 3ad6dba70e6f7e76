"""The contents of a pipeline's file, as msgspec Structs. Pure.

The keys of a pipeline are in snake case. An `options` table has options of Spark, spelled as
`spark.read.option` takes them, and `[nats]` has the `nats.*` options of `format("jetstream")`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

Options = dict[str, str]
"""Options as Spark takes them: numbers, times and lists have become text."""


class Watermark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The time that rows may be late: `DataFrame.withWatermark`."""

    column: str
    delay: str


class JetStreamSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages of streams, entries of a key-value bucket, or objects of an object store."""

    format: Literal["jetstream"]
    options: Options
    columns: list[str] | None = None
    """The columns of the message. Default: all, or with `json` all except the payload."""
    json: str | None = None
    """The schema of the payload, in Spark's DDL: its fields become columns."""
    malformed: Literal["fail", "drop", "null"] = "fail"
    """The treatment of payloads that are not JSON of that schema."""
    required: list[str] = []
    """Fields of the payload that may be neither missing nor null."""
    watermark: Watermark | None = None
    static: bool = False
    """Read the source once, as a table, also in a streaming pipeline."""

    @property
    def bucket(self) -> str | None:
        """The bucket to read, or None for streams."""
        return self._option("bucket")

    @property
    def object_store(self) -> str | None:
        """The object store to read, or None for streams."""
        return self._option("objectStore")

    def _option(self, name: str) -> str | None:
        wanted = name.lower()
        found = (v for k, v in self.options.items() if k.lower() == wanted)
        return next(found, "").strip() or None


class FileSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files: `ndjson` and `json` have a JSON object on each line."""

    format: Literal["parquet", "csv", "ndjson", "json", "orc"]
    path: str
    schema: str | None = None
    options: Options = {}
    watermark: Watermark | None = None
    static: bool = False


class FormatSource(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of another format that Spark or one of its packages has, such as `delta`."""

    format: str
    path: str | None = None
    table: str | None = None
    """A table of a catalog, in the place of a path."""
    schema: str | None = None
    options: Options = {}
    watermark: Watermark | None = None
    static: bool = False


class ViewStep(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A view made of the views before it."""

    sql: str
    watermark: Watermark | None = None
    unchecked: bool = False
    """Leave the check of the SQL to Spark, and do not read it before."""


class JetStreamSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows become messages: columns `subject`, `data`, `headers`, `msg_id` and so on."""

    format: Literal["jetstream"]
    view: str = field(name="from")
    options: Options
    output_mode: Literal["append", "update", "complete"] = "append"


class FileSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: Literal["parquet", "csv", "ndjson", "json", "orc"]
    view: str = field(name="from")
    path: str
    partition_by: list[str] = []
    mode: Literal["error", "append", "overwrite", "ignore"] = "error"
    """The action of a batch if the path exists."""
    options: Options = {}


class FormatSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows in another format that Spark or one of its packages has, such as `delta`."""

    format: str
    view: str = field(name="from")
    path: str | None = None
    table: str | None = None
    partition_by: list[str] = []
    mode: Literal["error", "append", "overwrite", "ignore"] = "error"
    """The action of a batch if the path or the table exists."""
    output_mode: Literal["append", "update", "complete"] = "append"
    foreach_batch: bool = False
    """Write each micro-batch as a batch, for formats that take no stream."""
    merge_on: list[str] = []
    """Update the rows whose values in these columns are the same, and insert the others."""
    sequence_by: str | None = None
    """Of several rows with one key, the one with the greatest value here is the newest."""
    delete_when: str | None = None
    """A condition in SQL. A row for which it holds deletes the row of its key."""
    options: Options = {}


class ConsoleSink(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first rows, on standard output. If streaming, of every micro-batch."""

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
    """`available-now`, or the interval between micro-batches: `10 seconds`."""
    monitor: bool = False
    """Note the lag of each query in a bucket, for `jsync pipeline status`."""
    http: str | None = None
    """`HOST:PORT` of the monitor's metrics."""


Source = JetStreamSource | FileSource | FormatSource
Sink = JetStreamSink | FileSink | ConsoleSink | FormatSink


class Pipeline(Struct, frozen=True, kw_only=True):
    """A whole file. Its views are in the order in which they are made."""

    name: str
    spark: Spark
    nats: Options
    streaming: Streaming | None
    sources: dict[str, Source]
    steps: dict[str, ViewStep]
    sinks: dict[str, Sink]
    silent: frozenset[str] = frozenset()
    """Sources that give no rows, because a replay is of only one source."""

    def __repr__(self) -> str:
        """Show no values, because some come from the environment."""
        kind = "batch" if self.streaming is None else "streaming"
        views = ", ".join([*self.sources, *self.steps])
        return f"<Pipeline {self.name}, {kind}: {views} -> {', '.join(self.sinks)}>"
