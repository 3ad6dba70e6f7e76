"""The stream that rows go to, and the way into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsync
from jsync.errors import (
    AmbiguousSubjectError,
    ConfigError,
    StreamNotFoundError,
    UnsupportedFeatureError,
)

from ..subjects import overlap
from .resume import BehindId, BehindPlaces, FromStart, last_id, last_places
from .sinks import IngestSink, PublisherSink

if TYPE_CHECKING:
    from collections.abc import Collection

    from .resume import Resume
    from .sinks import Sink
    from .template import SubjectTemplate


def find_stream(
    js: jsync.JetStream, template: SubjectTemplate, name: str | None, *, create: bool
) -> jsync.Stream:
    """The stream for these subjects, created if that is wanted; blocks.

    Raises `StreamNotFoundError` and `ConfigError` with what to do.
    """
    wanted = template.filter
    if create:
        if name is None:
            raise ConfigError("create: the stream needs a name: pass --stream NAME")
        return _create(js, template, name)
    if name is None:
        try:
            name = js.stream_name_by_subject(wanted)
        except AmbiguousSubjectError as error:
            raise ConfigError(f"{error}: choose one with --stream NAME") from None
        except StreamNotFoundError as error:
            error.args = (
                f"no stream takes {wanted}: create one with --create --stream NAME",
                *error.args[1:],
            )
            raise
    stream = js.stream(name)
    subjects = stream.cached_info.config.subjects or []
    if not any(overlap(wanted, subject) for subject in subjects):
        told = ", ".join(subjects) or "nothing, because it copies other streams"
        raise ConfigError(f"stream {name} does not take {wanted}; it takes {told}")
    return stream


def _create(js: jsync.JetStream, template: SubjectTemplate, name: str) -> jsync.Stream:
    if template.is_column:
        raise ConfigError(
            "create: the subjects of the stream are not known, because a column holds whole "
            "subjects: run `jsync stream create` first"
        )
    try:
        return js.stream(name)
    except StreamNotFoundError:
        pass
    config = jsync.StreamConfig(
        name=name, subjects=[template.filter], allow_direct=True, allow_batched=True
    )
    try:
        return js.create_stream(config)
    except UnsupportedFeatureError:
        return js.create_stream(config.changed({"allow_batched": None}))


def choose_sink(
    js: jsync.JetStream, stream: jsync.Stream, how: str, *, ids: bool
) -> tuple[Sink, str | None]:
    """The way into the stream, and a word on why it is not the fastest."""
    batched = bool(stream.cached_info.config.allow_batched)
    if how == "ingest" and not batched:
        raise ConfigError(
            f"stream {stream.name} has no allow_batched, which fast ingest needs: "
            f"run jsync stream edit {stream.name} --allow-fast"
        )
    if how == "ingest" or (how == "auto" and batched):
        return IngestSink(js), None
    word = None
    if how == "auto":
        word = (
            f"stream {stream.name} has no allow_batched, so each message gets its own ack: "
            "fast ingest (nats-server 2.14) is faster"
        )
    return PublisherSink(js, resend=ids), word


def find_resume(
    stream: jsync.Stream,
    template: SubjectTemplate,
    files: Collection[str],
    *,
    own_ids: bool,
) -> Resume:
    """Where to go on; blocks. `files` are identities; `own_ids` are made of columns."""
    config = stream.cached_info.config
    if config.retention in ("workqueue", "interest"):
        raise ConfigError(
            f"resume: stream {stream.name} has retention {config.retention}: "
            "consumed messages are removed, so the place to continue from is not known"
        )
    # A transform stores messages on other subjects than they were sent to.
    subjects = ">" if config.subject_transform is not None else template.filter
    if own_ids:
        found = last_id(stream, subjects)
        return FromStart() if found is None else BehindId(found)
    return BehindPlaces(last_places(stream, subjects, files))
