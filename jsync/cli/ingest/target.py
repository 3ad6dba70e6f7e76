"""The stream for the rows, and the choice of the sink and the resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsync
from jsync.errors import (
    AmbiguousSubjectError,
    ConfigError,
    StreamNotFoundError,
    UnsupportedFeatureError,
)
from jsync.subjects import intersection

from .message_ids import RowPosition
from .resume import (
    ResumeAfterIds,
    ResumeAfterPositions,
    ResumeAfterRows,
    none_of,
    too_few_rows,
)
from .sinks import IngestSink, PublisherSink
from .stored import WINDOW, BackwardReader, StoredRows, stored_ids, stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .resume import Resume
    from .sinks import Sink
    from .stored import StoredIds
    from .template import SubjectTemplate


def find_stream(
    js: jsync.JetStream, template: SubjectTemplate, name: str | None, *, create: bool
) -> jsync.Stream:
    """Return the stream for these subjects, and create it if `create` is set. Blocks.

    Raises `StreamNotFoundError` and `ConfigError`, with advice.
    """
    pattern = template.filter
    if create:
        if name is None:
            raise ConfigError("create: the stream needs a name: pass --stream NAME")
        return _create(js, template, name)
    if name is None:
        try:
            name = js.stream_name_by_subject(pattern)
        except AmbiguousSubjectError as error:
            raise ConfigError(f"{error}: choose one with --stream NAME") from None
        except StreamNotFoundError as error:
            error.args = (
                f"no stream takes {pattern}: create one with --create --stream NAME",
                *error.args[1:],
            )
            raise
    stream = js.stream(name)
    subjects = stream.cached_info.config.subjects or []
    if not any(intersection(pattern, subject) for subject in subjects):
        taken = ", ".join(subjects) or "nothing, because it copies other streams"
        raise ConfigError(f"stream {name} does not take {pattern}; it takes {taken}")
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
        return js.create_stream(config.updated({"allow_batched": None}))


def choose_sink(
    js: jsync.JetStream, stream: jsync.Stream, how: str, *, ids: bool
) -> tuple[Sink, str | None]:
    """Return a sink, and for `auto` the reason if it is not the fastest one."""
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
    stream: jsync.Stream, template: SubjectTemplate, files: Mapping[str, int]
) -> Resume:
    """Return a resume by default ids. Blocks.

    `files` has the smallest number of a row, by the identity of the file.
    """
    backwards = _backwards(stream, template)
    return ResumeAfterPositions(backwards, stored_rows(backwards, files))


def find_resume_by_ids(
    stream: jsync.Stream,
    template: SubjectTemplate,
    rows: Callable[[], Iterable[tuple[str, int, str]]] | None,
) -> Resume | None:
    """Return a resume by ids from columns, or None to start at the first row. Blocks.

    `rows` reads the files, and yields the file's name, the number of the row and its
    id. It is None if the rows can be read only once.
    """
    backwards = _backwards(stream, template)
    stored = stored_ids(backwards)
    if not stored.ids and backwards.is_whole:
        return None
    if rows is not None:
        return _after_rows(backwards, stored, rows())
    if backwards.limits.per_subject:
        raise ConfigError(
            f"resume: stream {stream.name} limits the messages of each subject, so a removed "
            "row cannot be told from a missing one: give a file instead of a pipe"
        )
    return ResumeAfterIds(backwards, stored)


def _after_rows(
    backwards: BackwardReader, stored: StoredIds, rows: Iterable[tuple[str, int, str]]
) -> Resume:
    file_rows = StoredRows(1)
    before: dict[str, int] = {}
    start = last = 0
    for count, (name, number, msg_id) in enumerate(rows):
        if name not in before:
            before[name] = start = last
        last = start + number
        if (sequence := stored.ids.get(msg_id)) is not None:
            file_rows.add(RowPosition("", last, msg_id), sequence)
        if count % WINDOW == 0:
            file_rows.prune()
    if not file_rows.last:
        raise none_of(stored)
    file_rows.prune()
    if not (backwards.is_whole or file_rows.is_complete):
        raise too_few_rows()
    return ResumeAfterRows(backwards, file_rows, before)


def _backwards(stream: jsync.Stream, template: SubjectTemplate) -> BackwardReader:
    config = stream.cached_info.config
    if config.retention in ("workqueue", "interest"):
        raise ConfigError(
            f"resume: stream {stream.name} has retention {config.retention}: "
            "consumed messages are removed, so the place to continue from is not known"
        )
    changes = config.subject_transform is not None
    if changes and (config.max_msgs_per_subject or 0) > 0:
        raise ConfigError(
            f"resume: stream {stream.name} changes subjects and limits the messages of each, "
            "so a removed row cannot be told from a missing one"
        )
    # A transform changes the subjects, so read the ids of all messages.
    return BackwardReader(stream, ">" if changes else template.filter)
