"""The views of a pipeline: its sources as DataFrames, and its steps in SQL."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeGuard

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 (Spark's own name for it)
from pyspark.sql.types import ArrayType, MapType, StringType, StructType, VariantType

from ...errors import PipelineError
from ...terminal import printable
from ..monitoring.figures import MALFORMED
from .checks import jetstream_options, malformed_view, reads, source_columns
from .config import FileSource, JetStreamSource
from .explain import explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from .config import Pipeline, Source, Watermark
    from .positions import Key
    from .problems import Problems
    from .stopping import Stop

FILES = {"parquet": "parquet", "csv": "csv", "ndjson": "json"}
"""What Spark calls the formats of files."""

_TEXT = (StringType, ArrayType, MapType, StructType, VariantType)
"""Columns that may hold text."""
_UNSAFE = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\ufeff\ufff9-\ufffb\x{e0000}-\x{e007f}]|\r(?!\n)"
)
"""The characters that `printable` escapes, in the language of Java."""
_CORRUPT = "_corrupt_record"
DEAD = ("stream", "subject", "sequence", "timestamp", "data")
"""The columns that dead letters are made of."""
_TYPES = {
    "stream": "string",
    "subject": "string",
    "sequence": "bigint",
    "timestamp": "timestamp",
    "headers": "map<string,array<string>>",
    "data": "binary",
}


def make_views(
    spark: SparkSession, pipeline: Pipeline, problems: Problems, pause: Path
) -> dict[str, DataFrame]:
    """Make every view, in the file's order; what Spark refuses is added to `problems`.

    While the file `pause` is there, JetStream sources begin no new micro-batch.
    """
    views: dict[str, DataFrame] = {}
    for name, source in pipeline.sources.items():
        with refusals(problems, ("sources", name)):
            frame = _read(spark, pipeline, name, source, pause)
            views[name.lower()] = _view(frame, name, source.watermark)
        dead = malformed_view(name)
        if _has_json(source) and reads(pipeline, dead):
            with refusals(problems, ("sources", name)):
                letters = _malformed(
                    _messages(spark, pipeline, source, DEAD, pause), source
                )
                views[dead.lower()] = _view(letters, dead, None)
    for name, step in pipeline.steps.items():
        # The fault of the failed view was already reported.
        if problems:
            break
        with refusals(problems, ("steps", name)):
            views[name.lower()] = _view(spark.sql(step.sql), name, step.watermark)
    return views


@contextmanager
def refusals(problems: Problems, key: Key) -> Iterator[None]:
    """Add what Spark says of a plan to the problems, at the SQL's line where it tells."""
    try:
        yield
    except (AnalysisException, ParseException) as error:
        message, line = explain(error)
        problems.add(key, message, text_line=line)


@contextmanager
def failures(sink: str, stop: Stop) -> Iterator[None]:
    """What Spark raises is a `PipelineError`, but for the end that was asked for."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if not stop.asked:
            message, _ = explain(error)
            raise PipelineError(f"sink {sink}: {message}") from error


def harmless(frame: DataFrame) -> DataFrame:
    """The rows as a console may show them: without characters that a terminal obeys."""
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
    columns = source_columns(source)
    wanted = list(columns)
    if source.json is not None:
        wanted += [
            name for name in ("data", "stream", "sequence") if name not in wanted
        ]
    messages = _messages(spark, pipeline, source, wanted, pause)
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
    """These columns of the messages of a source."""
    streamed = pipeline.streaming is not None and not source.static
    reader = spark.readStream if streamed else spark.read
    options = jetstream_options(pipeline, source.options)
    if streamed:
        options = {"pauseFile": str(pause), **options}
    schema = ", ".join(f"{name} {_TYPES[name]}" for name in columns)
    return reader.format("jetstream").options(**options).schema(schema).load()


def _decode(
    messages: DataFrame, name: str, source: JetStreamSource, columns: list[str]
) -> DataFrame:
    """The payload's fields as columns, beside those of the message."""
    rows = messages.select(*messages.columns, _payload(source))
    malformed = _is_malformed()
    if source.malformed == "fail":
        rows = rows.filter(F.when(malformed, _failure()).otherwise(F.lit(True)))
    elif source.malformed == "drop":
        if rows.isStreaming:  # Spark reports no metrics for a batch that did not run
            count = F.count_if(malformed).alias(MALFORMED)
            rows = rows.observe(f"{MALFORMED} {name}", count)
        rows = rows.filter(~malformed)
    return rows.select(*columns, "_payload.*").drop(_CORRUPT)


def _has_json(source: Source) -> TypeGuard[JetStreamSource]:
    return isinstance(source, JetStreamSource) and source.json is not None


def _payload(source: JetStreamSource) -> Column:
    """The payload, decoded, as `_payload`."""
    return F.from_json(
        F.col("data").cast("string"),
        f"{source.json}, {_CORRUPT} string",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    ).alias("_payload")


def _is_malformed() -> Column:
    return F.col("_payload").isNull() | F.col(f"_payload.{_CORRUPT}").isNotNull()


def _malformed(messages: DataFrame, source: JetStreamSource) -> DataFrame:
    """The malformed messages as dead letters, as a sink of `jetstream` takes them."""
    facts = {
        "Reason": F.lit("the payload is not JSON of the declared schema"),
        "Stream": F.col("stream"),
        "Sequence": F.col("sequence").cast("string"),
        "Subject": F.col("subject"),
        "Time": F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"),
    }
    headers = [
        part
        for name, value in facts.items()
        for part in (F.lit(f"Dead-Letter-{name}"), value)
    ]
    rows = messages.select(*messages.columns, _payload(source)).filter(_is_malformed())
    place = F.concat(F.lit("dead "), F.col("stream"), F.lit(" "), F.col("sequence"))
    return rows.select(
        "data", F.create_map(*headers).alias("headers"), place.alias("msg_id")
    )


def _failure() -> Column:
    """Which message it was; not what is in it."""
    where = [
        F.lit("message "),
        F.col("sequence"),
        F.lit(" of stream "),
        F.col("stream"),
    ]
    text = F.concat(*where, F.lit(" is not JSON of the declared schema"))
    return F.raise_error(text).cast("boolean")
