"""Replaying a part of a stream through a pipeline, into one of its sinks. Blocks."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ...errors import ConfigError
from ..buckets import STREAM_PREFIX
from ..connection import ConnectionOptions, get_jetstream
from ..options import Options, invalid_option, moment
from ..sink.options import SinkSettings
from ..stream_state import fetch_bounds, get_stream, resolve_offset
from .config import JetStreamSink, JetStreamSource
from .diagnostics import nearest
from .validator import jetstream_options

if TYPE_CHECKING:
    from ... import JetStream, Stream
    from ..source_options import OffsetSpec
    from .config import Pipeline

_REPLACED = (
    *("startingoffsets", "startingtimestamp", "endingoffsets", "endingtimestamp"),
    *("pausefile", "maxoffsetspertrigger", "maxbytespertrigger"),
    *("minoffsetspertrigger", "maxtriggerdelay"),
)
"""Options of a source that a replay sets, or that a batch does not have."""


@dataclass(frozen=True)
class ReplayRange:
    """The messages to replay."""

    sink: str
    source: str | None = None
    """None: the only source of streams that is not static."""
    subjects: tuple[str, ...] = ()
    start: str | None = None
    """A sequence or a time. None: the beginning."""
    end: str | None = None
    """Exclusive. None: the end of the streams now."""
    stream: str | None = None
    """Write to this stream, not to the one of the sink."""


def replay_pipeline(
    pipeline: Pipeline, replay_range: ReplayRange, *, again: bool
) -> Pipeline:
    """Return the pipeline as a batch that replays a range into one sink. Blocks.

    The range has a fixed end and gives the job its name, so a replay that is restarted with
    the same range stores no row twice. Other sources give no rows, except static ones.

    Args:
        pipeline: A checked pipeline.
        replay_range: The range and the sink.
        again: Allow rows whose ids the stream may have forgotten.

    Raises:
        ConfigError: The pipeline has no such sink or source, the sink is not exactly-once,
            or the stream may have forgotten ids.
    """
    name = _source(pipeline, replay_range)
    source = pipeline.sources[name]
    assert isinstance(source, JetStreamSource)
    if source.bucket is not None and replay_range.subjects:
        raise ConfigError(
            f"source {name} is a bucket, which has no subjects: give the option keys in its "
            "options"
        )
    sink = _sink(pipeline, replay_range)
    given = Options(jetstream_options(pipeline, source.options), "read")
    js = get_jetstream(ConnectionOptions.of(given))
    offsets = _fixed_range(js, given, replay_range)
    options = {**_kept_options(source), **offsets}
    if source.bucket is not None:
        options["history"] = "true"  # a batch would be the live table
    if replay_range.subjects:
        options = {k: v for k, v in options.items() if k.lower() != "subjects"}
        options["subjects"] = ",".join(replay_range.subjects)
    target = {**sink.options}
    if replay_range.stream is not None:
        target = {k: v for k, v in target.items() if k.lower() != "stream"}
        target["stream"] = replay_range.stream
    out = _stream_of(Options(jetstream_options(pipeline, target), "write"))
    if replay_range.stream is None and not again:
        _check_window(pipeline, js, offsets, out)
    target.setdefault("jobId", _job(pipeline, replay_range, options))
    others = {
        source_name: one
        for source_name, one in pipeline.sources.items()
        if not one.static
    }
    sources = {
        source_name: (
            msgspec.structs.replace(one, options=_kept_options(one))
            if isinstance(one, JetStreamSource) and source_name in others
            else one
        )
        for source_name, one in pipeline.sources.items()
    }
    sources[name] = msgspec.structs.replace(source, options=options)
    chosen = msgspec.structs.replace(sink, options=target, output_mode="append")
    return msgspec.structs.replace(
        pipeline,
        streaming=None,
        sources=sources,
        sinks={replay_range.sink: chosen},
        silent=frozenset(others) - {name},
    )


def range_of(pipeline: Pipeline) -> str:
    """Describe the messages of a replay, for people."""
    for source in pipeline.sources.values():
        if isinstance(source, JetStreamSource) and not source.static:
            starts, ends = (
                json.loads(source.options.get(option, "{}"))
                for option in ("startingOffsets", "endingOffsets")
            )
            if ends:
                return ", ".join(
                    f"{name} from {starts[name]} to {end - 1}"
                    if starts[name] < end
                    else f"no messages of {name}"
                    for name, end in ends.items()
                )
    return "no messages"


def _source(pipeline: Pipeline, replay_range: ReplayRange) -> str:
    names = [
        name
        for name, source in pipeline.sources.items()
        if isinstance(source, JetStreamSource) and not source.static
    ]
    if replay_range.source is None:
        if len(names) == 1:
            return names[0]
        raise ConfigError(f"name the source to replay: {', '.join(names) or 'none'}")
    if replay_range.source not in names:
        hint = nearest(replay_range.source, names)
        raise ConfigError(
            f"there is no source {replay_range.source!r} of streams{hint}"
        )
    return replay_range.source


def _sink(pipeline: Pipeline, replay_range: ReplayRange) -> JetStreamSink:
    sink = pipeline.sinks.get(replay_range.sink)
    if sink is None:
        hint = nearest(replay_range.sink, pipeline.sinks)
        raise ConfigError(f"there is no sink {replay_range.sink!r}{hint}")
    if not isinstance(sink, JetStreamSink):
        raise ConfigError(
            f"sink {replay_range.sink} is {sink.format}: a replay goes into a stream"
        )
    settings = SinkSettings.of(
        Options(jetstream_options(pipeline, sink.options), "write")
    )
    if not settings.exactly_once:
        raise ConfigError(
            f"sink {replay_range.sink} is at-least-once: say delivery = 'exactly-once', or rows "
            "of a replay would be there twice"
        )
    return sink


def _stream_of(target: Options) -> Stream:
    """Return the stream of an exactly-once sink. Raises `StreamNotFoundError`."""
    name = target.text("stream")
    assert name is not None
    return get_stream(get_jetstream(ConnectionOptions.of(target)), name)


def _kept_options(source: JetStreamSource) -> dict[str, str]:
    return {k: v for k, v in source.options.items() if k.lower() not in _REPLACED}


def _fixed_range(
    js: JetStream, given: Options, replay_range: ReplayRange
) -> dict[str, str]:
    """Return the range as sequences of each stream, so that it does not change."""
    first: OffsetSpec = (
        "earliest"
        if replay_range.start is None
        else _offset_spec("start", replay_range.start)
    )
    last: OffsetSpec = (
        "latest" if replay_range.end is None else _offset_spec("end", replay_range.end)
    )
    names = given.list("streams") or given.list("stream")
    if bucket := given.text("bucket"):
        names = (STREAM_PREFIX + bucket,)
    if not names:
        raise ConfigError("a replay needs a source with stream, streams or bucket")
    starts, ends = {}, {}
    for name in names:
        stream, bounds = fetch_bounds(js, name)
        start = resolve_offset(stream, bounds, first)
        ends[name] = min(bounds.next, resolve_offset(stream, bounds, last))
        starts[name] = min(max(start, bounds.first), ends[name])
    return {
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps({name: max(1, end) for name, end in ends.items()}),
    }


def _offset_spec(name: str, text: str) -> OffsetSpec:
    """Parse a sequence or a time. Raises `ConfigError`."""
    is_sequence = text.isascii() and text.isdigit()
    if is_sequence and int(text):
        return int(text)
    if not is_sequence:
        with contextlib.suppress(ConfigError):
            return moment(name, text)
    expected = "a sequence from 1 on, or a time as 2026-01-31T12:00:00Z"
    raise invalid_option(name, expected, text)


def _check_window(
    pipeline: Pipeline, js: JetStream, offsets: dict[str, str], out: Stream
) -> None:
    """Raise `ConfigError` if the sink's stream may have forgotten rows of the range."""
    window = out.config.duplicate_window or 120.0
    now = out.cached_info.ts
    for source, start in json.loads(offsets["startingOffsets"]).items():
        stream, bounds = fetch_bounds(js, source)
        if start >= bounds.next or now is None:
            continue
        first = stream.get_message(sequence=start, next_by_subject=">", direct=False)
        age = (now - first.timestamp).total_seconds()
        if age >= window:
            raise ConfigError(
                f"{pipeline.name}: sequence {first.sequence} of {source} is {age:.0f} s "
                f"old, and stream {out.name} remembers ids for {window:g} s: rows that it has "
                "would be there twice. Replay into another stream (--stream), or allow it "
                "(--again)"
            )


def _job(pipeline: Pipeline, replay_range: ReplayRange, options: dict[str, str]) -> str:
    identity = json.dumps(
        [pipeline.name, replay_range.sink, replay_range.stream, sorted(options.items())]
    )
    return f"replay-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
