"""Checks of a pipeline without Spark, a server or a file.

Each check adds all it finds to the problems. Spark reports other limits of streaming
queries when it has read the plan, which is also before the first row.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...worker import http
from ..connection import ConnectionOptions
from ..object_options import ObjectOptions
from ..options import Options
from ..sink.options import SinkSettings
from ..source_options import SourceOptions
from . import sql
from .config import (
    ConsoleSink,
    FileSink,
    FileSource,
    FormatSink,
    FormatSource,
    JetStreamSink,
    JetStreamSource,
)
from .diagnostics import nearest
from .formats import BATCH_ONLY, MERGED
from .source_columns import offered_columns, row_name, source_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..options import Purpose
    from .config import Pipeline, Sink, Source, ViewStep, Watermark
    from .diagnostics import Diagnostics
    from .toml_lines import Key

AVAILABLE_NOW = "available-now"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ABSOLUTE = re.compile(r"/|\w+:/")
_INTERVAL = re.compile(
    r"\d+ (millisecond|second|minute|hour|day|week)s?", re.IGNORECASE
)


def validate(pipeline: Pipeline, problems: Diagnostics) -> None:
    """Check the whole pipeline, and add all faults to `problems`."""
    PipelineValidator(pipeline, problems).run()


def jetstream_options(pipeline: Pipeline, options: Mapping[str, str]) -> dict[str, str]:
    """Return a source's or sink's options, with the common ones of `[nats]`."""
    own = {name.lower() for name in options}
    common = {f"nats.{name}": value for name, value in pipeline.nats.items()}
    common = {name: value for name, value in common.items() if name.lower() not in own}
    return {**common, **options}


def malformed_view(source: str) -> str:
    """Return the name of the view of a source's malformed messages."""
    return f"{source}_malformed"


def reads(pipeline: Pipeline, view: str) -> bool:
    """Return whether a sink or a step may read a view."""
    texts = [sink.view for sink in pipeline.sinks.values()]
    texts += [step.sql for step in pipeline.steps.values()]
    return any(view.lower() in text.lower() for text in texts)


def adds_to_files(sink: FileSink, pipeline: Pipeline) -> bool:
    """Return whether a sink writes Parquet files into a folder that may have some."""
    adds = pipeline.streaming is not None or sink.mode == "append"
    return sink.format == "parquet" and adds


class PipelineValidator:
    def __init__(self, pipeline: Pipeline, problems: Diagnostics) -> None:
        self._pipeline = pipeline
        self._problems = problems
        self._streams = pipeline.streaming is not None
        self._views: dict[str, bool | None] = {}
        """For each view so far, whether it is streaming. None: not known."""

    def run(self) -> None:
        for kind in ("sources", "steps", "sinks"):
            for name in getattr(self._pipeline, kind):
                if not _NAME.fullmatch(name):
                    self._problems.add(
                        (kind, name), "a name may have only letters, digits and _"
                    )
        for name, source in self._pipeline.sources.items():
            self._source(source, ("sources", name))
            streamed = self._streams and not source.static
            self._views[name.lower()] = streamed
            if isinstance(source, JetStreamSource) and source.json is not None:
                self._malformed(source, name, streaming=streamed)
        for name, step in self._pipeline.steps.items():
            streaming = self._step(step, ("steps", name))
            if name.lower() in self._views:
                self._problems.add(
                    ("steps", name), "there is a view of this name already"
                )
            self._views[name.lower()] = streaming
        for name, sink in self._pipeline.sinks.items():
            self._sink(sink, ("sinks", name))
        self._settings()

    def _source(self, source: Source, key: Key) -> None:
        if source.static and not self._streams:
            self._problems.add(
                (*key, "static"), "a batch reads everything once: leave it out"
            )
        if source.static and source.watermark is not None:
            self._problems.add((*key, "watermark"), "a static source has no late rows")
        if isinstance(source, JetStreamSource):
            columns = self._messages(source, key)
        elif isinstance(source, FormatSource):
            columns = self._format(source, key)
        else:
            columns = self._files(source, key)
        self._watermark(source.watermark, key, columns)

    def _malformed(
        self, source: JetStreamSource, name: str, *, streaming: bool
    ) -> None:
        """Add the view of the malformed messages, unless these fail the pipeline."""
        view = malformed_view(name)
        if source.malformed != "fail":
            self._views[view.lower()] = streaming
        elif reads(self._pipeline, view):
            self._problems.add(
                ("sources", name),
                f"{view} is empty, as a malformed message fails the pipeline: "
                "say malformed = 'drop' or 'null'",
            )

    def _files(self, source: FileSource, key: Key) -> list[str] | None:
        if source.schema is not None:
            return self._schema(source.schema, (*key, "schema"))
        if self._streams and not source.static:
            self._problems.add(
                key, "'schema' is missing: Spark streams files of a known one"
            )
        return None

    def _format(self, source: FormatSource, key: Key) -> list[str] | None:
        self._check_path_or_table(source, key)
        if source.schema is None:
            return None
        return self._schema(source.schema, (*key, "schema"))

    def _check_path_or_table(self, given: FormatSource | FormatSink, key: Key) -> None:
        if given.path is not None and given.table is not None:
            self._problems.add((*key, "table"), "leave 'path' or 'table' out")

    def _messages(self, source: JetStreamSource, key: Key) -> list[str] | None:
        """Check the source. Return the columns of its view, or None if they are not known."""
        streaming = self._streams and not source.static
        with self._refusing(source.options, key):
            options = self._options(source.options, "read")
            ConnectionOptions.of(options)
            if source.object_store is not None:
                ObjectOptions.of(options, streaming=streaming)
            else:
                SourceOptions.of(options, streaming=streaming)
        offered = offered_columns(source)
        noun = row_name(source)
        for name in source.columns or ():
            if name not in offered:
                hint = nearest(name, offered)
                if name == "headers" and noun == "message":
                    hint = ": set includeHeaders = true in the options"
                message = f"{'an' if noun == 'object' else 'a'} {noun} has no column {name!r}{hint}"
                self._problems.add((*key, "columns"), message)
        columns = source_columns(source)
        if source.json is not None and source.object_store is not None:
            message = "is for messages and buckets: decode content in a step"
            self._problems.add((*key, "json"), message)
            return columns
        if source.json is None:
            if source.required:
                message = "these are fields of the payload: give its schema in 'json'"
                self._problems.add((*key, "required"), message)
            return columns
        fields = self._schema(source.json, (*key, "json"))
        for name in source.required:
            if fields is not None and name not in fields:
                message = f"the payload has no field {name!r}{nearest(name, fields)}"
                self._problems.add((*key, "required"), message)
        for field in fields or ():
            if field.lower() in columns:
                self._problems.add(
                    (*key, "json"),
                    f"both the payload and the {noun} have {field!r}: list in "
                    f"'columns' the columns of the {noun} that you want",
                )
        return None if fields is None else [*columns, *fields]

    def _options(self, given: Mapping[str, str], purpose: Purpose) -> Options:
        """Read options as `format("jetstream")` reads them."""
        return Options(jetstream_options(self._pipeline, given), purpose)

    @contextmanager
    def _refusing(self, given: Mapping[str, str], key: Key) -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            self._refused(error, given, key)

    def _refused(self, error: ConfigError, given: Mapping[str, str], key: Key) -> None:
        """Add an error at the option that its message names first, wherever that was given."""
        message = str(error)
        places = {
            **{f"nats.{name}": ("nats", name) for name in self._pipeline.nats},
            **{name: (*key, "options", name) for name in given},
        }
        found = {
            match.start(): name
            for name in places
            if (match := re.search(rf"\b{re.escape(name)}\b", message))
        }
        at = places[found[min(found)]] if found else (*key, "options")
        self._problems.add(at, message)

    def _schema(self, schema: str, key: Key) -> list[str] | None:
        try:
            return sql.columns(schema)
        except sql.SQLError as problem:
            self._problems.add(key, str(problem), text_line=problem.line)
            return None

    def _step(self, step: ViewStep, key: Key) -> bool | None:
        """Check the step. Return whether its view is streaming, or None if that is not known."""
        self._watermark(step.watermark, key, None)
        if step.unchecked:
            return None
        try:
            read = sql.reads(step.sql)
        except sql.SQLError as problem:
            self._problems.add(key, str(problem), text_line=problem.line)
            return None
        for name, line in read:
            if name.lower() not in self._views:
                message = self._unknown_view(name, key[-1])
                self._problems.add(key, message, text_line=line)
        streaming = [self._views.get(name.lower()) for name, _ in read]
        return True if True in streaming else None if None in streaming else False

    def _unknown_view(self, name: str, step: str) -> str:
        if name.lower() == step.lower():
            return "it reads from itself"
        if name.lower() in map(str.lower, self._pipeline.steps):
            return (
                f"it reads from {name!r}, which is defined further down: move that up"
            )
        known = [*self._pipeline.sources, *self._pipeline.steps]
        return (
            f"there is no view {name!r}{nearest(name, [n for n in known if n != step])}"
        )

    def _watermark(
        self, watermark: Watermark | None, key: Key, columns: list[str] | None
    ) -> None:
        if watermark is None:
            return
        key = (*key, "watermark")
        if not self._streams:
            self._problems.add(key, "a batch has no late rows: it is for [streaming]")
        if not _INTERVAL.fullmatch(watermark.delay):
            self._problems.add(
                (*key, "delay"), "has to be an interval such as '10 minutes'"
            )
        if columns is not None and watermark.column.lower() not in map(
            str.lower, columns
        ):
            hint = nearest(watermark.column, columns)
            message = f"there is no column {watermark.column!r}{hint}"
            self._problems.add((*key, "column"), message)

    def _sink(self, sink: Sink, key: Key) -> None:
        view = sink.view.lower()
        if view not in self._views:
            known = [*self._pipeline.sources, *self._pipeline.steps]
            hint = nearest(sink.view, known)
            self._problems.add((*key, "from"), f"there is no view {sink.view!r}{hint}")
        elif self._streams and self._views[view] is False:
            message = f"view {sink.view!r} is static: nothing streams into this sink"
            self._problems.add((*key, "from"), message)
        if isinstance(sink, JetStreamSink):
            with self._refusing(sink.options, key):
                SinkSettings.of(self._options(sink.options, "write"))
        if isinstance(sink, FormatSink):
            self._format_sink(sink, key)
        if (
            self._streams
            and isinstance(sink, FileSink | FormatSink)
            and sink.mode not in ("error", "append")
        ):
            message = "a stream is appended: leave it out"
            self._problems.add((*key, "mode"), message)
        if isinstance(sink, FileSink):
            return
        if not self._streams and sink.output_mode != "append":
            self._problems.add(
                (*key, "output_mode"), "is for [streaming], and this is a batch"
            )
        if isinstance(sink, ConsoleSink) and sink.rows < 1:
            self._problems.add((*key, "rows"), "has to be 1 or more")

    def _format_sink(self, sink: FormatSink, key: Key) -> None:
        self._check_path_or_table(sink, key)
        is_batch_only = sink.format.lower() in BATCH_ONLY and not sink.merge_on
        if self._streams and is_batch_only and not sink.foreach_batch:
            self._problems.add(
                (*key, "format"),
                f"Spark writes no stream into {sink.format}: set foreach_batch = true, "
                "which writes each micro-batch as a batch, and writes it again after a "
                "failure",
            )
        if sink.foreach_batch and not self._streams:
            self._problems.add(
                (*key, "foreach_batch"), "is for [streaming], and this is a batch"
            )
        if sink.merge_on:
            self._merge(sink, key)
            return
        for name in ("sequence_by", "delete_when"):
            if getattr(sink, name) is not None:
                self._problems.add(
                    (*key, name), "needs merge_on: the columns of the key of a row"
                )

    def _merge(self, sink: FormatSink, key: Key) -> None:
        if sink.sequence_by is None:
            message = (
                "needs sequence_by: the column that is greatest in the newest row of a "
                "key, such as sequence or revision"
            )
            self._problems.add((*key, "merge_on"), message)
        if sink.table is None and (
            sink.path is None or sink.format.lower() not in MERGED
        ):
            place = "'path' or 'table'" if sink.format.lower() in MERGED else "'table'"
            message = f"needs {place}: the rows that a merge updates"
            self._problems.add((*key, "merge_on"), message)
        if sink.path is not None and not _ABSOLUTE.match(sink.path):
            message = "merge_on needs a path from the root, such as /lake or s3a://lake"
            self._problems.add((*key, "path"), message)
        if sink.mode not in ("error", "append"):
            self._problems.add(
                (*key, "mode"), "merge_on adds and updates: leave it out"
            )
        if sink.foreach_batch:
            message = "merge_on writes each micro-batch as a batch: leave it out"
            self._problems.add((*key, "foreach_batch"), message)

    def _settings(self) -> None:
        streaming = self._pipeline.streaming
        if streaming is not None:
            trigger = streaming.trigger
            if trigger != AVAILABLE_NOW and not _INTERVAL.fullmatch(trigger):
                message = (
                    f"has to be {AVAILABLE_NOW!r} or an interval such as '10 seconds'"
                )
                self._problems.add(("streaming", "trigger"), message)
            if streaming.http is not None:
                try:
                    http.parse_address(streaming.http)
                except ConfigError:
                    message = "has to be HOST:PORT, such as 127.0.0.1:8080"
                    self._problems.add(("streaming", "http"), message)
            if True not in self._views.values() and None not in self._views.values():
                self._problems.add(
                    ("streaming",), "every source is static: nothing streams"
                )
        for name in self._pipeline.spark.conf:
            key = ("spark", "conf", name)
            if name == "spark.master":
                self._problems.add(key, "set it as master in [spark], or with --master")
            elif not name.startswith("spark."):
                self._problems.add(key, "Spark's settings begin with 'spark.'")
