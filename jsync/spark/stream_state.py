"""The state of streams, as their leaders report it, and the ways to read them."""

from __future__ import annotations

import contextlib
import difflib
import logging
from datetime import datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from .. import errors
from ..errors import (
    BucketNotFoundError,
    ConfigError,
    DataLossError,
    Error,
    InvalidConsumerConfigError,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
)
from ..terminal import printable
from .buckets import OBJECT_PREFIX, STREAM_PREFIX
from .connection import get_connection
from .fingerprint import fingerprint_of
from .offsets import StreamBounds
from .retry import RETRY_INTERVAL, RETRY_SECONDS, retry_until_available

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .. import Consumer, JetStream, Stream
    from ..models import StreamConfig
    from .connection import ConnectionOptions
    from .source_options import OffsetSpec, ReadMode

_STORES: Final = {STREAM_PREFIX: "bucket", OBJECT_PREFIX: "object store"}
"""The stores whose streams have a prefix."""
INFO_TIMEOUT: Final = 1.0
"""Seconds until a request that the server may have missed is retried."""
CATCH_UP_SECONDS: Final = 10.0
"""Seconds for a new leader to read its log, before missing messages count as lost."""
FEWER_REPLICAS: Final = 10134
"""The code of the server's error for a consumer that has fewer replicas than it must have."""

EXACT: Final = 50
"""The edges of partitions and the limits are right to one part in this many."""

logger = logging.getLogger("jsync.spark")


def get_stream(js: JetStream, name: str) -> Stream:
    """Return a stream, with info from its leader. Blocks.

    Raises:
        StreamNotFoundError: The stream does not exist. The error suggests a similar name.
    """
    stream = js.bind_stream(name)
    try:
        stream.leader_info()
    except StreamNotFoundError as error:
        names = _names(js)
        kind, missing = StreamNotFoundError, f"there is no stream {name!r}"
        for prefix, noun in _STORES.items():
            if not name.startswith(prefix):
                continue
            name = name.removeprefix(prefix)
            kind, missing = BucketNotFoundError, f"there is no {noun} {name!r}"
            name = name.removeprefix(prefix)  # the name of the stream was given
            names = [
                found.removeprefix(prefix)
                for found in names
                if found.startswith(prefix)
            ]
            break
        near = difflib.get_close_matches(name, names, n=1)
        hint = f": did you mean {near[0]!r}?" if near else ": create it first"
        if kind is StreamNotFoundError and STREAM_PREFIX + name in names:
            hint = f", but a bucket: give option bucket, {name!r}, instead of stream"
        if kind is StreamNotFoundError and OBJECT_PREFIX + name in names:
            hint = f", but an object store: read it with option objectStore, {name!r}"
        raise kind(
            f"{missing}{hint}",
            code=error.code,
            err_code=error.err_code,
            description=error.description,
        ) from error
    return stream


def _names(js: JetStream) -> list[str]:
    """Return the names of streams for a hint, or none if the account must not list them."""
    try:
        return list(js.stream_names())
    except Error:
        return []


def fetch_bounds(
    js: JetStream, name: str, seconds: float = RETRY_SECONDS
) -> tuple[Stream, StreamBounds]:
    """Return a stream and its extent. Blocks, and retries up to `seconds`.

    Raises `StreamNotFoundError` if the stream does not exist.
    """
    stream = retry_until_available(lambda: get_stream(js, name), seconds)
    return stream, bounds_of(stream)


def fetch_bounds_at_least(
    js: JetStream, name: str, created: str, stop: int, seconds: float = RETRY_SECONDS
) -> tuple[Stream, StreamBounds]:
    """Do as `fetch_bounds`, but first wait a while until the leader reaches `stop`. Blocks."""
    until = monotonic() + CATCH_UP_SECONDS
    while True:
        stream, bounds = fetch_bounds(js, name, seconds)
        lags = bounds.created == created and bounds.next < stop
        if not lags or monotonic() >= until:
            return stream, bounds
        sleep(RETRY_INTERVAL)


def bounds_of(stream: Stream) -> StreamBounds:
    info = stream.cached_info
    state = info.state
    return StreamBounds(
        stream=stream.name,
        created="" if info.created is None else info.created.isoformat(),
        first=max(1, state.first_seq),
        next=state.last_seq + 1,
        messages=state.messages,
        message_bytes=state.bytes / state.messages if state.messages else 0.0,
        leader="" if info.cluster is None else info.cluster.leader or "",
        fingerprint=fingerprint_of(stream),
        deleted=state.num_deleted if _keeps_all(stream.config) else 0,
        is_bucket=stream.name.startswith(STREAM_PREFIX)
        and bool(stream.config.max_msgs_per_subject),
    )


def resolve_offset(
    stream: Stream,
    bounds: StreamBounds,
    spec: OffsetSpec,
    seconds: float = RETRY_SECONDS,
) -> int:
    """Return the sequence of an offset. If that is a time, blocks and retries up to `seconds`.

    A time stands for the first message of that time or later, or else for the next message
    to come. This needs nats-server 2.11.
    """
    if spec == "earliest":
        return bounds.first
    if spec == "latest":
        return bounds.next
    if isinstance(spec, datetime):
        try:
            found = retry_until_available(
                lambda: stream.get_message(start_time=spec, direct=False), seconds
            )
        except MessageNotFoundError:
            return bounds.next
        return min(found.sequence, bounds.next)
    return spec


def _keeps_all(config: StreamConfig) -> bool:
    """Return whether messages between others go only by a delete, or by their own TTL."""
    each = config.max_msgs_per_subject or 0
    return config.retention in (None, "limits") and each <= 0


def count_deleted(stream: Stream, start: int, stop: int) -> int:
    """Return how many messages from `start` to before `stop` were deleted. Blocks."""
    deleted = stream.info(deleted_details=True).state.deleted or ()
    return sum(start <= sequence < stop for sequence in deleted)


def has_followers(stream: Stream) -> bool:
    """Return whether a consumer may run on a server that is not the stream's leader."""
    return (stream.config.num_replicas or 1) > 1


def next_message(stream: Stream, sequence: int, subjects: Sequence[str]) -> int | None:
    """Return the sequence of the leader's first message from `sequence` on. Blocks.

    Only messages of `subjects` count, if there are any. None: there is no such message.
    """
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


def pending(stream: Stream, sequence: int, subjects: Sequence[str]) -> int:
    """Return how many messages a stream has from `sequence` on. Blocks.

    Only messages of `subjects` count, if there are any. A server that is behind the leader may
    count too few, so the result is good for sizes, and not to decide what is read.
    """
    consumer = _temporary_consumer(
        stream,
        subjects,
        deliver_policy="by_start_sequence",
        opt_start_seq=sequence,
    )
    count = consumer.cached_info.num_pending
    with contextlib.suppress(Error):
        stream.delete_consumer(consumer.name)
    return count


def _temporary_consumer(
    stream: Stream, subjects: Sequence[str], **options: Any
) -> Consumer:
    """Create a consumer that is deleted after a few requests. Blocks."""

    def create(replicas: int | None) -> Consumer:
        return stream.create_consumer(
            ack_policy="none",
            mem_storage=True,
            num_replicas=replicas,
            filter_subjects=list(subjects) or None,
            inactive_threshold=5.0,
            **options,
        )

    try:
        return create(1)
    except InvalidConsumerConfigError as error:
        if error.err_code != FEWER_REPLICAS:
            raise
        # The stream keeps messages for its consumers, which need as many replicas.
        return create(None)


def sequence_after(
    count: Callable[[int], int], start: int, stop: int, rows: int
) -> int:
    """Return a sequence before which about `rows` messages are, and at most so many.

    Args:
        count: Returns how many messages there are from a sequence on. It may block.
        start: The sequence of the first message.
        stop: The sequence after the last one.
        rows: The messages, at least 1.
    """
    total = count(start)
    low, high = start + 1, stop  # the result is not below `low`
    enough = rows - rows // EXACT
    while low < high:
        middle = (low + high + 1) // 2
        found = total - count(middle)
        if found > rows:
            high = middle - 1
        else:
            low = middle
            if found >= enough:
                break
    return low


def read_mode(stream: Stream, requested: ReadMode | None) -> ReadMode:
    """Return how to read this stream. Raises `ConfigError` if that is impossible.

    A consumer without acks is faster, and removes nothing from a stream with limits
    retention. A work queue refuses such a consumer, and with interest retention messages
    would also be kept for it. So those streams are read by direct gets, which leave no trace.
    """
    kept_by_limits = stream.config.retention in (None, "limits")
    mode = requested or ("consumer" if kept_by_limits else "direct")
    if mode == "consumer" and stream.config.retention == "workqueue":
        raise ConfigError(
            f"option readMode: stream {stream.name} is a work queue, which takes no "
            "consumer beside its workers: read it with readMode direct"
        )
    if mode == "direct" and not stream.config.allow_direct:
        why = "" if requested else f" (its retention is {stream.config.retention})"
        raise ConfigError(
            f"stream {stream.name} is read by direct gets{why}, which it does not allow: "
            "set it to allow_direct"
        )
    return mode


def check_readable(
    stream: Stream, mode: ReadMode, subjects: Sequence[str], options: ConnectionOptions
) -> None:
    """Let the servers refuse now what they would refuse to an executor. Blocks.

    That is an invalid subject, a subject that overlaps another, or a missing permission.
    """
    if mode == "direct":
        for subject in subjects or (">",):
            list(stream.get_messages(subject, max_messages=1))
        return
    consumer = _temporary_consumer(stream, subjects, deliver_policy="new")
    _pull_once(
        f"{options.api}.CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}", options
    )
    with contextlib.suppress(Error):
        stream.delete_consumer(consumer.name)


def _pull_once(subject: str, options: ConnectionOptions) -> None:
    """Send one pull request, and wait for any answer. Blocks.

    It is sent by request/reply, because a pull without permission would look like a silent
    server. In a cluster, a pull may miss a consumer that was just created, or reach a server
    that does not know the consumer yet, so it is retried.
    """
    deadline = monotonic() + options.timeout
    while True:
        left = deadline - monotonic()
        try:
            get_connection(options).request(
                subject, b'{"batch":1,"no_wait":true}', timeout=min(left, INFO_TIMEOUT)
            )
        except (errors.TimeoutError, NoRespondersError) as error:
            if left <= INFO_TIMEOUT:
                raise
            if isinstance(error, NoRespondersError):  # it comes immediately
                sleep(RETRY_INTERVAL)
        else:
            return


class LossPolicy:
    """The reaction to lost data: an error, or a warning in the log."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def report(self, stream: str, loss: str, sequence: int | None = None) -> None:
        """Raise `DataLossError`, or log a warning and return, to continue at `sequence`."""
        if self._fail:
            raise DataLossError(
                f"{loss}. To continue with the remaining messages, set failOnDataLoss=false",
                stream=stream,
            )
        where = "" if sequence is None else f" at sequence {sequence}"
        logger.warning(
            "%s; continuing%s, because failOnDataLoss is false", printable(loss), where
        )
