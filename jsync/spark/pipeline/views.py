"""The views of a pipeline: its sources as DataFrames, and its steps in SQL."""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeGuard

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.types import ArrayType, MapType, StringType, StructType, VariantType

from ...errors import PipelineError
from ...terminal import printable
from ..buckets import STREAM_PREFIX
from ..errors import explain
from ..micro_batch import LIMITS
from ..monitoring.metrics import MALFORMED
from .config import FileSink, FileSource, FormatSink, FormatSource, JetStreamSource
from .formats import missing_driver, missing_format
from .local_mode import cores_of, partitions
from .merging import check_merge
from .schemas import conflicts
from .source_columns import (
    column_types,
    dead_columns,
    decoded_columns,
    payload_column,
    source_columns,
)
from .start_retry import start_with_retry
from .validator import (
    AVAILABLE_NOW,
    adds_to_files,
    jetstream_options,
    malformed_view,
    reads,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from .config import Pipeline, Sink, Source, Watermark
    from .console import Report
    from .diagnostics import Diagnostics
    from .signals import StopRequest
    from .toml_lines import Key

FILES = {
    "parquet": "parquet",
    "csv": "csv",
    "ndjson": "json",
    "json": "json",
    "orc": "orc",
}
"""Spark's names for the formats of files."""

_TEXT = (StringType, ArrayType, MapType, StructType, VariantType)
"""Columns that may hold text."""
_UNSAFE = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\x{e0000}-\x{e007f}]|\r(?!\n)"
)
"""The characters that `printable` escapes, as a regular expression of Java."""
_LIMITS = ("maxoffsetspertrigger", "maxbytespertrigger")
_NO_FORMAT = re.compile(r"Failed to find (the )?data source|_NOT_ENABLED\]")
_NO_DRIVER = re.compile(r"No suitable driver|ClassNotFoundException")
_CORRUPT = "_corrupt_record"
_PAYLOAD = "_payload"
_MALFORMED = "_malformed"


def make_views(
    spark: SparkSession,
    pipeline: Pipeline,
    problems: Diagnostics,
    stop: StopRequest,
    report: Report,
    pause: Path,
) -> dict[str, DataFrame]:
    """Make every view, in the file's order. Rejections of Spark are added to `problems`.

    While the file `pause` exists, JetStream sources begin no new micro-batch. Raises
    `PipelineError` if Spark fails.
    """
    views: dict[str, DataFrame] = {}
    for name, source in pipeline.sources.items():
        read = functools.partial(_read, spark, pipeline, name, source, pause)
        with (
            failures(f"source {name}", stop),
            collect_problems(problems, ("sources", name)),
        ):
            frame = start_with_retry(read, is_stopped=stop.is_requested, say=report.say)
            views[name.lower()] = _view(
                _silenced(pipeline, name, frame), name, source.watermark
            )
        dead = malformed_view(name)
        if _has_json(source) and reads(pipeline, dead):
            columns = dead_columns(source)
            read = functools.partial(_messages, spark, pipeline, source, columns, pause)
            with (
                failures(f"source {name}", stop),
                collect_problems(problems, ("sources", name)),
            ):
                found = start_with_retry(
                    read, is_stopped=stop.is_requested, say=report.say
                )
                letters = _malformed(found, source)
                views[dead.lower()] = _view(
                    _silenced(pipeline, name, letters), dead, None
                )
    for name, step in pipeline.steps.items():
        # The fault of the failed view was already reported.
        if problems:
            break
        with collect_problems(problems, ("steps", name)):
            views[name.lower()] = _view(spark.sql(step.sql), name, step.watermark)
    return views


def check_formats(
    spark: SparkSession, pipeline: Pipeline, problems: Diagnostics
) -> None:
    """Add the formats to the problems that Spark does not have, and missing drivers."""
    tables: list[tuple[str, str, Source | Sink]]
    tables = [("sources", *item) for item in pipeline.sources.items()]
    tables += [("sinks", *item) for item in pipeline.sinks.items()]
    for kind, name, table in tables:
        if not isinstance(table, FormatSource | FormatSink):
            continue
        is_database = table.format.lower() == "jdbc"
        options = table.options if is_database else {}
        try:
            # Spark looks for the format and the driver first. Without options, most formats
            # refuse the read then.
            spark.read.format(table.format).options(**options).load()
        except (PySparkException, Py4JError) as error:
            if _NO_FORMAT.search(str(error)):
                message = missing_format(table.format, spark.version)
                problems.add((kind, name, "format"), message)
            elif is_database and _NO_DRIVER.search(str(error)):
                problems.add((kind, name, "options"), missing_driver(table.options))


def check_files(
    spark: SparkSession,
    pipeline: Pipeline,
    views: Mapping[str, DataFrame],
    problems: Diagnostics,
) -> None:
    """Compare the views with the Parquet files that sinks add to, before any row is read.

    The columns of a merge are checked as well.
    """
    for name, sink in pipeline.sinks.items():
        view = views.get(sink.view.lower())
        if view is not None and isinstance(sink, FormatSink) and sink.merge_on:
            with collect_problems(problems, ("sinks", name)):
                check_merge(view, sink)
        if view is None or not (
            isinstance(sink, FileSink) and adds_to_files(sink, pipeline)
        ):
            continue
        try:
            existing = spark.read.parquet(sink.path).schema
        except AnalysisException:
            continue  # there is no file yet
        stored, written = (
            {field.name: field.dataType.simpleString() for field in schema}
            for schema in (existing, view.schema)
        )
        for column in sink.partition_by:  # Spark infers their types from the paths
            stored.pop(column, None)
        for conflict in conflicts(written, stored):
            problems.add(("sinks", name, "path"), str(conflict))


@contextmanager
def collect_problems(problems: Diagnostics, key: Key) -> Iterator[None]:
    """Add Spark's errors about a plan to the problems, at the SQL's line if it is known."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        message, line = explain(error)
        problems.add(key, message, text_line=line)


@contextmanager
def failures(what: str, stop: StopRequest) -> Iterator[None]:
    """Raise `PipelineError` for an error of Spark, but not after a requested end.

    Args:
        what: The source or the sink, with its name.
        stop: The requested end.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if not stop.requests:
            message, _ = explain(error)
            raise PipelineError(f"{what}: {message}") from error


def escape_rows(frame: DataFrame) -> DataFrame:
    """Return the rows for a console, without characters that a terminal obeys."""
    names = frame.columns
    # Two columns may have the same name.
    numbered = frame.toDF(*map(str, range(len(names))))
    shown = []
    for name, field in zip(names, numbered.schema, strict=True):
        column = F.col(f"`{field.name}`")
        if isinstance(field.dataType, _TEXT):
            text = column.cast("string")
            column = F.regexp_replace(text, _UNSAFE, "\N{REPLACEMENT CHARACTER}")
        shown.append(column.alias(printable(name)))
    return numbered.select(*shown)


def _silenced(pipeline: Pipeline, name: str, frame: DataFrame) -> DataFrame:
    """Return the rows of a source, or none if a replay is of another one."""
    return frame.where(F.lit(False)) if name in pipeline.silent else frame


def _view(frame: DataFrame, name: str, watermark: Watermark | None) -> DataFrame:
    if watermark is not None and frame.isStreaming:
        frame = frame.withWatermark(watermark.column, watermark.delay)
    frame.createOrReplaceTempView(name)
    return frame


def _read(
    spark: SparkSession, pipeline: Pipeline, name: str, source: Source, pause: Path
) -> DataFrame:
    streamed = pipeline.streaming is not None and not source.static
    reader = spark.readStream if streamed else spark.read
    if isinstance(source, FileSource):
        reader = reader.format(FILES[source.format]).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.path)
    if isinstance(source, FormatSource):
        reader = reader.format(source.format).options(**source.options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        if source.table is not None:
            return reader.table(source.table)
        return reader.load(source.path)
    columns = source_columns(source)
    selected = list(columns)
    if source.json is not None:
        selected += [name for name in decoded_columns(source) if name not in selected]
    messages = _messages(spark, pipeline, source, selected, pause)
    if source.json is None:
        return messages
    return _decode(messages, name, source, columns)


def _messages(
    spark: SparkSession,
    pipeline: Pipeline,
    source: JetStreamSource,
    columns: Sequence[str],
    pause: Path,
) -> DataFrame:
    """Return these columns of the messages of a source."""
    streamed = pipeline.streaming is not None and not source.static
    reader = spark.readStream if streamed else spark.read
    options = jetstream_options(pipeline, source.options)
    if streamed:
        options = {"pauseFile": str(pause), **options}
        if one_batch_a_run(pipeline):  # so that batch has to read all messages
            options = {k: v for k, v in options.items() if k.lower() not in _LIMITS}
    master = spark.sparkContext.master
    if cores := cores_of(master or "", spark.sparkContext.defaultParallelism):
        options = {**partitions(cores, options), **options}
    types = column_types(source)
    schema = ", ".join(f"{name} {types[name]}" for name in columns)
    return reader.format("jetstream").options(**options).schema(schema).load()


def one_batch_a_run(pipeline: Pipeline) -> bool:
    """Return whether a query ends after one micro-batch: available-now before Spark 4.2."""
    streaming = pipeline.streaming
    return streaming is not None and streaming.trigger == AVAILABLE_NOW and not LIMITS


def _decode(
    messages: DataFrame, name: str, source: JetStreamSource, columns: list[str]
) -> DataFrame:
    """Return the payload's fields as columns, after those of the message."""
    rows = _parsed(messages, source)
    malformed = F.col(_MALFORMED)
    payload = F.col(_PAYLOAD)
    if source.malformed == "fail":
        failure = _failure(source)
        rows = rows.filter(F.when(malformed, failure).otherwise(F.lit(True)))
    elif source.malformed == "drop":
        if rows.isStreaming:  # Spark reports no metrics for a batch that did not run
            count = F.count_if(malformed).alias(MALFORMED)
            rows = rows.observe(f"{MALFORMED} {name}", count)
        rows = rows.filter(~malformed)
    else:
        rows = rows.withColumn(_PAYLOAD, F.when(~malformed, payload))
    return rows.select(*columns, f"{_PAYLOAD}.*").drop(_CORRUPT)


def _has_json(source: Source) -> TypeGuard[JetStreamSource]:
    return isinstance(source, JetStreamSource) and source.json is not None


def _parsed(messages: DataFrame, source: JetStreamSource) -> DataFrame:
    """Return the messages with the payload as a struct, and whether it is malformed.

    Spark moves a filter below the expressions that it filters by, and evaluates them for the
    filter and again for the rows. It moves none below a generator, so the payload is exploded
    from an array of one element, and parsed once.
    """
    text = F.col(payload_column(source)).cast("string")
    # Whole numbers may be written as 1.0. As a variant, they are written as 1.
    plain = _from_json(F.try_parse_json(text).cast("string"), source)
    payloads = F.transform(
        F.array(_from_json(text, source)),
        lambda payload: F.when(_is_corrupt(payload), plain).otherwise(payload),
    )
    parsed = messages.select(*messages.columns, F.explode(payloads).alias(_PAYLOAD))
    malformed = _is_malformed(text, source, parsed)
    if source.bucket is not None:  # a delete has no payload
        is_put = F.col("operation") == "PUT"
        parsed = parsed.withColumn(_PAYLOAD, F.when(is_put, F.col(_PAYLOAD)))
        malformed &= is_put
    return parsed.withColumn(_MALFORMED, malformed)


def _from_json(text: Column, source: JetStreamSource) -> Column:
    return F.from_json(
        text,
        f"{source.json}, {_CORRUPT} string",
        {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "allowSingleQuotes": "false",
        },
    )


def _is_corrupt(payload: Column) -> Column:
    return payload.isNull() | payload.getField(_CORRUPT).isNotNull()


def _is_malformed(text: Column, source: JetStreamSource, parsed: DataFrame) -> Column:
    """Return whether the payload is no JSON object of the schema, or has text behind it.

    An object without any field of the schema is malformed.
    """
    struct = parsed.schema[_PAYLOAD].dataType
    assert isinstance(struct, StructType)
    fields = [name for name in struct.names if name != _CORRUPT]
    names = F.array(*map(F.lit, fields))
    columns = {name: F.col(f"{_PAYLOAD}.`{name}`") for name in fields}
    is_empty = functools.reduce(
        lambda one, other: one & other, (column.isNull() for column in columns.values())
    )
    has_none = is_empty & ~F.coalesce(
        F.arrays_overlap(F.json_object_keys(text), names), F.lit(False)
    )
    lacks = [columns[name].isNull() for name in source.required]
    return functools.reduce(
        lambda one, other: one | other,
        [_is_corrupt(F.col(_PAYLOAD)), has_none, _has_more(source), *lacks],
    )


def _has_more(source: JetStreamSource) -> Column:
    """Return whether text follows a JSON object, which `from_json` ignores.

    The check parses the payload as the first of two elements of an array, where no text can
    follow the object. The other element is a number that the payload cannot know. If the
    only closing brace is the last character, the array need not be parsed. In a branch of
    `when`, because Spark evaluates what stands twice on the right of `&` for every row.
    """
    body = F.col(payload_column(source))
    text = body.cast("string")
    head = body.substr(F.lit(1), F.octet_length(body) - 1).cast("string")
    is_simple = text.endswith("}") & ~head.contains("}")
    mark = F.xxhash64(text).cast("string")
    array = F.concat(F.lit("["), text, F.lit(","), mark, F.lit("]"))
    rest = F.slice(F.from_json(array, "array<string>"), 2, 2)
    is_alone = F.coalesce(rest == F.array(mark), F.lit(False))
    return F.when(~is_simple, ~is_alone).otherwise(F.lit(False))


def _malformed(messages: DataFrame, source: JetStreamSource) -> DataFrame:
    """Return the malformed messages as dead letters, for a sink of `jetstream`."""
    fields = {"Reason": F.lit("the payload is not JSON of the declared schema")}
    if source.bucket is None:
        place = [F.col("stream"), F.col("sequence")]
        fields |= {
            "Stream": F.col("stream"),
            "Sequence": F.col("sequence").cast("string"),
            "Subject": F.col("subject"),
        }
    else:
        place = [F.lit(STREAM_PREFIX + source.bucket), F.col("revision")]
        fields |= {
            "Bucket": F.lit(source.bucket),
            "Revision": F.col("revision").cast("string"),
            "Key": F.col("key"),
        }
    fields["Time"] = F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    headers = [
        part
        for name, value in fields.items()
        for part in (F.lit(f"Dead-Letter-{name}"), value)
    ]
    rows = _parsed(messages, source).filter(F.col(_MALFORMED))
    return rows.select(
        F.col(payload_column(source)).alias("data"),
        F.create_map(*headers).alias("headers"),
        F.concat_ws(" ", F.lit("dead"), *place).alias("msg_id"),
    )


def _failure(source: JetStreamSource) -> Column:
    """Return a column that raises an error with the position of a message, not its content."""
    if source.bucket is None:
        where = [
            *(F.lit("message "), F.col("sequence")),
            *(F.lit(" of stream "), F.col("stream")),
        ]
    else:
        where = [
            *(F.lit("revision "), F.col("revision"), F.lit(" of key "), F.col("key")),
            F.lit(f" of bucket {source.bucket}"),
        ]
    text = F.concat(*where, F.lit(" is not JSON of the declared schema"))
    return F.raise_error(text).cast("boolean")
