"""Checks of a pipeline's server and its streams, and of its files and directories.

They are the last checks before Spark starts. They block for connections and requests.
"""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ...errors import ConfigError, Error, StreamNotFoundError
from ..buckets import OBJECT_PREFIX, STREAM_PREFIX
from ..connection import ConnectionOptions, get_connection, get_jetstream
from ..monitoring.metrics import parse_offsets
from ..options import Options
from ..sink.columns import ColumnPlan
from ..sink.options import SinkSettings
from ..sink.target import target_of
from ..source_options import SourceOptions
from ..stream_state import get_stream
from .brokers import check_brokers
from .config import (
    FileSink,
    FileSource,
    FormatSink,
    FormatSource,
    JetStreamSink,
    JetStreamSource,
)
from .schemas import conflicts, known_types, parquet_types
from .validator import adds_to_files, jetstream_options

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ..options import Purpose
    from .config import Pipeline, Streaming
    from .diagnostics import Diagnostics
    from .toml_lines import Key

_PLAN = ColumnPlan(("subject", "data"))
"""Columns that every stream permits, because only Spark knows the real ones."""


def preflight(pipeline: Pipeline, problems: Diagnostics) -> None:
    """Add to `problems` what is missing or cannot be reached. Blocks."""
    with _ServerChecks(pipeline, problems) as servers:
        for name, source in pipeline.sources.items():
            if isinstance(source, JetStreamSource):
                servers.check(source.options, ("sources", name))
        for name, sink in pipeline.sinks.items():
            if isinstance(sink, JetStreamSink):
                servers.check(sink.options, ("sinks", name), sink=True)
    for name, source in pipeline.sources.items():
        if isinstance(source, FileSource | FormatSource) and source.path is not None:
            _check_source(source.path, ("sources", name, "path"), problems)
    for name, sink in pipeline.sinks.items():
        if isinstance(sink, FileSink):
            _check_sink(sink, ("sinks", name, "path"), pipeline, problems)
        if isinstance(sink, FormatSink) and sink.path is not None:
            _check_path(sink.path, sink, ("sinks", name, "path"), pipeline, problems)
    for kind, parts in (("sources", pipeline.sources), ("sinks", pipeline.sinks)):
        for name, part in parts.items():
            if isinstance(part, FormatSource | FormatSink) and (
                part.format.lower() == "kafka"
            ):
                check_brokers(part.options, (kind, name), problems)
    if pipeline.streaming is not None:
        key = ("streaming", "checkpoint")
        _check_writable(pipeline.streaming.checkpoint, key, problems)
        for name in pipeline.sinks:
            for stream in _unread_streams(pipeline, pipeline.streaming, name):
                message = (
                    f"the query of sink {name} has read stream {stream}, which no source "
                    "reads now: add it to a source, or choose another checkpoint"
                )
                problems.add(key, message)


def _unread_streams(pipeline: Pipeline, streaming: Streaming, sink: str) -> list[str]:
    """Return the streams in the checkpoint of a sink that the pipeline does not read."""
    folder = _local(f"{streaming.checkpoint.rstrip('/')}/{sink}/offsets")
    found = glob.glob(f"{glob.escape(folder)}/*") if folder else []
    numbered = [path for path in found if os.path.basename(path).isdigit()]
    if not numbered:
        return []
    last = max(numbered, key=lambda path: int(os.path.basename(path)))
    try:
        with open(last, encoding="utf-8") as file:
            read = {name for line in file for name in parse_offsets(line)}
    except (OSError, UnicodeDecodeError):
        return []
    sources = [
        SourceOptions.of(
            Options(jetstream_options(pipeline, source.options), "read"), streaming=True
        )
        for source in pipeline.sources.values()
        if isinstance(source, JetStreamSource) and not source.static
    ]
    return sorted(
        name for name in read if not any(source.reads(name) for source in sources)
    )


def _check_source(place: str, key: Key, problems: Diagnostics) -> None:
    path = _local(place)
    if path is not None and not glob.glob(path):
        problems.add(key, f"there is nothing at {place}")


def _check_sink(
    sink: FileSink, key: Key, pipeline: Pipeline, problems: Diagnostics
) -> None:
    path = _local(sink.path)
    exists = path is not None and os.path.exists(path)
    if exists and adds_to_files(sink, pipeline):
        written = known_types(pipeline).get(sink.view.lower(), {})
        for conflict in conflicts(written, parquet_types(path or "")):
            problems.add(key, str(conflict))
    _check_path(sink.path, sink, key, pipeline, problems)


def _check_path(
    place: str,
    sink: FileSink | FormatSink,
    key: Key,
    pipeline: Pipeline,
    problems: Diagnostics,
) -> None:
    path = _local(place)
    merges = isinstance(sink, FormatSink) and bool(sink.merge_on)
    adds = pipeline.streaming is not None or sink.mode != "error" or merges
    if path is not None and os.path.exists(path) and not adds:
        problems.add(key, f"{place} exists: remove it, or choose a 'mode'")
    _check_writable(place, key, problems)


def _local(path: str) -> str | None:
    """Return the path on this machine, or None if it is elsewhere."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return unquote(parts.path)
    return path if len(parts.scheme) < 2 else None


def _check_writable(path: str, key: Key, problems: Diagnostics) -> None:
    """Check that Spark can create the directories that are missing."""
    local = _local(path)
    if local is None:
        return
    directory = os.path.abspath(local)
    while not os.path.exists(directory):
        directory = os.path.dirname(directory)
    if not os.path.isdir(directory):
        problems.add(key, f"{directory} is no directory")
    elif not os.access(directory, os.W_OK | os.X_OK):
        problems.add(key, f"this user may not write to {directory}")


class _ServerChecks:
    """The servers of the pipeline, with one connection for each."""

    def __init__(self, pipeline: Pipeline, problems: Diagnostics) -> None:
        self._pipeline = pipeline
        self._problems = problems
        self._reached: dict[ConnectionOptions, bool] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for options, reached in self._reached.items():
            if reached:
                get_connection(options).close()

    def check(self, given: Mapping[str, str], key: Key, *, sink: bool = False) -> None:
        """Check that the streams in these options exist, and permit the read or write."""
        purpose: Purpose = "write" if sink else "read"
        options = Options(jetstream_options(self._pipeline, given), purpose)
        server = ConnectionOptions.of(options)
        if not self._reach(server, key):
            return
        js = get_jetstream(server)
        named = "streams" if options.text("streams") else "stream"
        names = options.list(named)
        if bucket := options.text("bucket"):
            named, names = "bucket", (STREAM_PREFIX + bucket,)
        if store := options.text("objectStore"):
            named, names = "objectStore", (OBJECT_PREFIX + store,)
        for name in names:
            try:
                stream = get_stream(js, name)
                if sink:
                    settings = SinkSettings.of(options)
                    target_of(settings, _PLAN, stream.config)
            except (ConfigError, StreamNotFoundError) as error:
                message = str(error)
            except Error as error:
                message = f"cannot read stream {name!r}: {error}"
            else:
                continue
            self._problems.add((*key, "options", named), message)

    def _reach(self, server: ConnectionOptions, key: Key) -> bool:
        if server not in self._reached:
            try:
                get_connection(server)
            except Error as error:
                self._reached[server] = False
                own = "servers" if self._pipeline.nats else ""
                at = ("nats", own) if own else (*key, "options")
                self._problems.add(at, str(error))
            else:
                self._reached[server] = True
        return self._reached[server]
