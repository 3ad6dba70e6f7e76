"""What the leaders of streams say: what there is to read, and how it may be read."""

from __future__ import annotations

import contextlib
import difflib
import logging
from datetime import datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ..errors import (
    ConfigError,
    DataLossError,
    Error,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
    TimeoutError as LateError,
)
from ..terminal import printable
from .connecting import connection
from .marks import mark_of
from .offsets import Holding
from .patience import PAUSE, RETRY_SECONDS, patiently

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import JetStream, Stream
    from .connecting import ConnectionOptions
    from .source_options import Place, ReadMode

ASK_SECONDS: Final = 1.0
"""Until a question that may have been passed over is asked again."""
BEHIND: Final = 10.0
"""Seconds that a new leader has to read its log, until what it lacks is lost."""

logger = logging.getLogger("jsync.spark")


def find(js: JetStream, name: str) -> Stream:
    """Ask the leader of a stream for its info. Blocks.

    Raises:
        StreamNotFoundError: There is none. The error has a name that is near.
    """
    stream = js.bind_stream(name)
    try:
        stream.leader_info()
    except StreamNotFoundError as error:
        near = difflib.get_close_matches(name, _names(js), n=1)
        hint = f": did you mean {near[0]!r}?" if near else ": create it first"
        raise StreamNotFoundError(
            f"there is no stream {name!r}{hint}",
            code=error.code,
            err_code=error.err_code,
            description=error.description,
        ) from error
    return stream


def _names(js: JetStream) -> list[str]:
    """Return the names of streams for a hint. The account may not be allowed to list them."""
    try:
        return list(js.stream_names())
    except Error:
        return []


def look(
    js: JetStream, name: str, seconds: float = RETRY_SECONDS
) -> tuple[Stream, Holding]:
    """Ask for a stream, and wait `seconds` for an answer. Raises `StreamNotFoundError`."""
    stream = patiently(lambda: find(js, name), seconds)
    return stream, holding_of(stream)


def look_behind(
    js: JetStream,
    name: str,
    created: str,
    upto: int,
    seconds: float = RETRY_SECONDS,
) -> tuple[Stream, Holding]:
    """Ask like `look`, and wait a while for a leader that does not reach `upto` yet."""
    until = monotonic() + BEHIND
    while True:
        stream, holding = look(js, name, seconds)
        behind = holding.created == created and holding.next < upto
        if not behind or monotonic() >= until:
            return stream, holding
        sleep(PAUSE)


def holding_of(stream: Stream) -> Holding:
    info = stream.cached_info
    state = info.state
    return Holding(
        stream=stream.name,
        created="" if info.created is None else info.created.isoformat(),
        first=max(1, state.first_seq),
        next=state.last_seq + 1,
        message_bytes=state.bytes / state.messages if state.messages else 0.0,
        leader="" if info.cluster is None else info.cluster.leader or "",
        mark=mark_of(stream),
    )


def sequence_at(
    stream: Stream, holding: Holding, place: Place, seconds: float = RETRY_SECONDS
) -> int:
    """The sequence of a place; blocks for a moment's, up to `seconds`.

    A moment is the first message of that time or later, or else the next one to come;
    that needs nats-server 2.11.
    """
    if place == "earliest":
        return holding.first
    if place == "latest":
        return holding.next
    if isinstance(place, datetime):
        try:
            found = patiently(
                lambda: stream.get_message(start_time=place, direct=False), seconds
            )
        except MessageNotFoundError:
            return holding.next
        return min(found.sequence, holding.next)
    return place


def has_followers(stream: Stream) -> bool:
    """Whether a consumer may run on a server that is not the stream's leader."""
    return (stream.config.num_replicas or 1) > 1


def next_message(stream: Stream, sequence: int, subjects: Sequence[str]) -> int | None:
    """The leader's first message from `sequence` on, of these subjects or any; blocks."""
    found = []
    for subject in subjects or (">",):
        try:
            message = stream.get_message(
                sequence=sequence, next_by_subject=subject, direct=False
            )
        except MessageNotFoundError:
            continue
        found.append(message.sequence)
    return min(found, default=None)


def read_mode(stream: Stream, wanted: ReadMode | None) -> ReadMode:
    """How this stream is read; raises `ConfigError` for what cannot be.

    A consumer without acks takes nothing from a stream that is kept by limits, and is the
    quicker way. A work queue refuses it, and where messages are kept for whom they interest
    it would be one more: those are read by direct gets, which leave no trace.
    """
    kept_by_limits = stream.config.retention in (None, "limits")
    mode = wanted or ("consumer" if kept_by_limits else "direct")
    if mode == "consumer" and stream.config.retention == "workqueue":
        raise ConfigError(
            f"option readMode: stream {stream.name} is a work queue, which takes no "
            "consumer beside its workers: read it with readMode direct"
        )
    if mode == "direct" and not stream.config.allow_direct:
        why = "" if wanted else f" (its retention is {stream.config.retention})"
        raise ConfigError(
            f"stream {stream.name} is read by direct gets{why}, which it does not allow: "
            "set it to allow_direct"
        )
    return mode


def check_readable(
    stream: Stream, mode: ReadMode, subjects: Sequence[str], options: ConnectionOptions
) -> None:
    """Have the servers refuse now what they would refuse an executor; blocks.

    A subject that cannot be, one that overlaps another, or a permission that is missing.
    """
    if mode == "direct":
        for subject in subjects or (">",):
            list(stream.get_messages(subject, max_messages=1))
        return
    consumer = stream.create_consumer(
        ack_policy="none",
        deliver_policy="new",
        mem_storage=True,
        num_replicas=1,
        filter_subjects=list(subjects) or None,
        inactive_threshold=5.0,
    )
    _pull_once(
        f"{options.api}.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}", options
    )
    with contextlib.suppress(Error):
        stream.delete_consumer(consumer.name)


def _pull_once(subject: str, options: ConnectionOptions) -> None:
    """Have one pull answered, whatever the answer.

    As a request, since what is not permitted to a pull looks like a silent server. In a
    cluster a pull may pass a consumer that has just been made, or come to a server that has
    not heard of it: it is sent again.
    """
    deadline = monotonic() + options.timeout
    while True:
        left = deadline - monotonic()
        try:
            connection(options).request(
                subject, b'{"batch":1,"no_wait":true}', timeout=min(left, ASK_SECONDS)
            )
        except (LateError, NoRespondersError) as error:
            if left <= ASK_SECONDS:
                raise
            if isinstance(error, NoRespondersError):  # it comes at once
                sleep(PAUSE)
        else:
            return


class LossPolicy:
    """What becomes of lost data: an error, or a warning in the log."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def found(self, stream: str, loss: str, place: int | None = None) -> None:
        """Raise `DataLossError`, or go on, at `place` if that is known."""
        if self._fail:
            raise DataLossError(
                f"{loss}. To continue with the remaining messages, set failOnDataLoss=false",
                stream=stream,
            )
        where = "" if place is None else f" at sequence {place}"
        logger.warning(
            "%s; continuing%s, because failOnDataLoss is false", printable(loss), where
        )
