"""The fence, with its entries on the server: checks of a task, and notes of a commit."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from ...errors import (
    CheckpointError,
    DataLossError,
    ReplayWindowExceededError,
    WrongLastSequenceError,
)
from ...terminal import printable
from ..fingerprint import find_mismatch
from ..offsets import check_truncated
from ..retry import RETRY_SECONDS, retry_until_available
from ..stream_state import bounds_of, fetch_bounds_at_least, get_stream
from .bucket import Bucket
from .fence_state import (
    REPLAY,
    TERMINAL,
    UNCHECKED,
    UNREADABLE,
    BatchStarted,
    BatchStatus,
    Committed,
    TaskAttempt,
    TaskStarted,
    Totals,
    batch_status,
    decode,
    encode,
    seconds_left,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ... import JetStream
    from ..offsets import StreamBounds
    from .bucket import Value
    from .fence_state import Entry
    from .report import BatchReport
    from .target import SinkTarget

    Kind = TypeVar("Kind", Committed, BatchStarted, TaskStarted)

QUERY: Final = "query."
"""The prefix of the key of each streaming query."""

logger = logging.getLogger("jsync.spark")


class BatchFence:
    """Checks that one task may publish, and notes that it has begun."""

    def __init__(
        self,
        js: JetStream,
        bucket: str,
        target: SinkTarget,
        key: str,
        attempt: TaskAttempt,
        partition: int,
    ) -> None:
        self._js = js
        self._bucket_name = bucket
        self._target = target
        self._key = key
        self._attempt = attempt
        self._partition = partition
        self._until: float | None = None
        self._batch_started: BatchStarted | None = None
        self._task_revision = 0  # of the first attempt of the task

    def check_in(self) -> BatchStatus:
        """Return the state of the batch, and note that this task has begun. Blocks.

        Raises:
            CheckpointError: A later batch is stored, or the fence has lost entries.
            ReplayWindowExceededError: The stream may have forgotten ids of the batch.
            DataLossError: The stream no longer has rows that were stored before.
        """
        return retry_until_available(self._enter, self._target.ack_timeout)

    def _enter(self) -> BatchStatus:
        bucket = Bucket(self._js, self._bucket_name)
        attempt, key = self._attempt, self._key
        while True:
            committed, _ = _read(bucket, f"{key}.committed", Committed)
            started, started_at = _read(bucket, f"{key}.begun", BatchStarted)
            task, task_at = _read(bucket, self._task_key, TaskStarted)
            bounds = bounds_of(get_stream(self._js, self._target.stream))
            last = bounds.next - 1
            where = batch_status(attempt, committed, started, task, last)
            if committed is not None and where in UNCHECKED:
                self._check_fence(committed)
                self._check_sink(committed)
            if where is not BatchStatus.NEW:
                _check_begun(self._bucket_name, key, started, attempt.batch, bounds)
            try:
                if where is BatchStatus.NEW:
                    since = _since(committed, started, last)
                    entry = BatchStarted(
                        attempt.batch, attempt.run, last, since, bounds.created
                    )
                    _put(bucket, f"{key}.begun", entry, started_at)
                    continue  # now note the task
                if where is BatchStatus.IN_PROGRESS:
                    noted = TaskStarted(attempt.batch, attempt.run)
                    self._task_revision = _put(bucket, self._task_key, noted, task_at)
                if where is BatchStatus.RETRIED:
                    assert task is not None
                    assert task_at is not None
                    # An earlier attempt that still runs detects this one by the revision.
                    time = task_at.time if task.time is None else task.time
                    noted = TaskStarted(attempt.batch, attempt.run, time)
                    _put(bucket, self._task_key, noted, task_at)
            except WrongLastSequenceError:
                continue  # another task was faster
            break
        if where is BatchStatus.SUPERSEDED:
            raise _superseded_error(self._bucket_name, key, attempt.batch)
        self._batch_started = started
        if where in REPLAY:
            entered = task_at if where is BatchStatus.RETRIED else started_at
            assert entered is not None
            time = entered.time
            if (
                where is BatchStatus.RETRIED
                and task is not None
                and task.time is not None
            ):
                time = task.time
            left = seconds_left(time, bucket.now(), self._target.replay_seconds)
            self._until = monotonic() + left
            self.check()
        return where

    @property
    def _task_key(self) -> str:
        return f"{self._key}.task.{self._partition}"

    @property
    def is_replay(self) -> bool:
        """True if some of the rows may be stored already, so that `check` can raise."""
        return self._until is not None

    def check(self) -> None:
        """Raise `ReplayWindowExceededError` once the stream may have forgotten ids of the batch."""
        if self._until is not None and monotonic() >= self._until:
            assert self._batch_started is not None
            raise ReplayWindowExceededError(
                f"batch {self._attempt.batch} of {self._key} cannot be replayed without "
                f"duplicates: stream {self._target.stream} remembers message ids for "
                f"{self._target.window:g} s, and the batch was begun before that. Its rows "
                f"are stored after sequence {self._batch_started.last_sequence}, as far as they "
                "are. Either delete them there and the key "
                f"{self._key}.begun of the bucket {self._bucket_name}, and start again. "
                "Or start once with delivery=at-least-once, and have those rows twice. To "
                "leave more time for a restart, raise duplicate_window of the stream"
            )

    def has_collision(self, last_duplicate: int | None) -> bool:
        """Return whether the stream has dropped a row because another row had its id.

        That is so if nothing of the task was stored before, and the message with that id
        was stored since this query or job began. Blocks.

        Args:
            last_duplicate: The last sequence of an earlier message with the id of a row.
        """
        started, revision = self._batch_started, self._task_revision
        if last_duplicate is None or started is None or not revision:
            return False
        if last_duplicate <= (
            started.last_sequence if started.since is None else started.since
        ):
            return False
        _, task_at = _read(
            Bucket(self._js, self._bucket_name), self._task_key, TaskStarted
        )
        # Another attempt of the task may have stored its rows in the meantime.
        return task_at is not None and task_at.revision == revision

    def _check_fence(self, committed: Committed) -> None:
        """Raise `CheckpointError` if the fence has forgotten batches of a query.

        Each batch of a query is noted. Only older versions left out batches without rows.
        """
        known, batch = committed.batch, self._attempt.batch
        if (
            committed.stream is not None
            and self._key.startswith(QUERY)
            and known < batch - 1
        ):
            raise CheckpointError(
                f"the fence in the bucket {self._bucket_name} was restored from older data: "
                f"it knows {self._key} up to batch {known}, and this is batch {batch}. The "
                "stream may have lost rows as well. To write them again, start with a new "
                "checkpoint. To continue without them, delete the keys "
                f"{self._key}.committed and {self._key}.begun"
            )

    def _check_sink(self, committed: Committed) -> None:
        """Raise `DataLossError` if the stream is not the one that was written into."""
        name, created, fingerprint = (
            committed.stream,
            committed.created,
            committed.fingerprint,
        )
        if name is None or name != self._target.stream:
            # An older version did not note it, or the query now writes to another
            # stream.
            return
        stop = 1 if fingerprint is None else fingerprint.sequence + 1
        stream, bounds = fetch_bounds_at_least(self._js, name, created, stop)
        if bounds.created != created:
            loss: str | None = (
                f"stream {name} was recreated, or restored from a backup: it was created "
                f"at {bounds.created}, and the stream of the last write at {created}"
            )
        else:
            loss = check_truncated(stop, bounds)
            if loss is None and fingerprint is not None:
                loss = find_mismatch(stream, fingerprint)
        if loss is not None:
            raise DataLossError(
                f"{loss}. Rows up to batch {committed.batch} of {self._key} may be missing "
                "there. To write them again, start with a new checkpoint or jobId. To "
                f"continue without them, delete the keys {self._key}.committed and "
                f"{self._key}.begun of the bucket {self._bucket_name}",
                stream=name,
            )

    def __repr__(self) -> str:
        return f"<BatchFence of {self._key}, {self._attempt}>"


def commit(
    connect: Callable[[], JetStream],
    bucket_name: str,
    key: str,
    batch: int,
    report: BatchReport,
    *,
    fenced: str | None,
    last: bool,
    retry_seconds: float = RETRY_SECONDS,
) -> None:
    """Note that a batch is stored. Called on the driver. Blocks.

    Args:
        connect: Returns JetStream.
        bucket_name: The fence's bucket.
        key: The key of the query or the job in the fence.
        batch: The number of the batch.
        report: The reports of the tasks, added up.
        fenced: The stream that was written exactly once. None: at least once.
        last: The entries are not needed any more.
        retry_seconds: Seconds to wait for a lost server.

    Raises:
        CheckpointError: Another run has stored the batch with other rows, or a later batch.
        DataLossError: The stream was created again since the batch was begun.
    """
    sent = b""

    def put() -> None:
        nonlocal sent
        js = connect()
        bucket = Bucket(js, bucket_name)
        if last and not (fenced is not None and report.skipped):
            bucket.forget(f"{key}.>")
            return
        committed, committed_at = _read(bucket, f"{key}.committed", Committed)
        if committed_at is not None and committed_at.data == sent:
            return  # only the answer was lost
        if fenced is not None and committed is not None and committed.batch >= batch:
            if committed.batch > batch:
                raise _superseded_error(bucket_name, key, batch)
            if committed.digest != report.digest:
                raise _changed(bucket_name, key, batch, report, committed)
            return
        if fenced is not None and committed is None and key.startswith(QUERY):
            _warn_of_another(bucket, key, fenced)
        before = None if committed is None else committed.totals
        entry = Committed(
            batch,
            report.digest,
            report.as_dict(),
            totals=(before or Totals()) + report.totals(),
        )
        if fenced is not None:
            bounds = bounds_of(get_stream(js, fenced))
            started, _ = _read(bucket, f"{key}.begun", BatchStarted)
            _check_begun(bucket_name, key, started, batch, bounds)
            entry = msgspec.structs.replace(
                entry,
                stream=fenced,
                created=bounds.created,
                fingerprint=bounds.fingerprint,
                since=_since(committed, started, bounds.next - 1),
            )
        sent = encode(entry)
        try:
            _put(bucket, f"{key}.committed", entry, committed_at)
        except WrongLastSequenceError:
            put()  # another run was faster, or only the answer was lost

    retry_until_available(put, retry_seconds)


def _check_begun(
    bucket_name: str,
    key: str,
    started: BatchStarted | None,
    batch: int,
    bounds: StreamBounds,
) -> None:
    """Raise `DataLossError` if the stream is not the one that the batch was begun for."""
    if started is None or started.batch != batch or not started.created:
        return
    if started.created != bounds.created:
        raise DataLossError(
            f"stream {bounds.stream} was recreated, or restored from a backup, while batch "
            f"{batch} of {key} was written: it was created at {bounds.created}, and the "
            f"stream of the batch at {started.created}. Rows up to this batch may be missing "
            "there. To write them again, start with a new checkpoint or jobId. To continue "
            f"without those of earlier batches, delete the keys {key}.committed and "
            f"{key}.begun of the bucket {bucket_name}",
            stream=bounds.stream,
        )


def _superseded_error(bucket_name: str, key: str, batch: int) -> CheckpointError:
    return CheckpointError(
        f"batch {batch} of {key} is older than the last batch that the fence in the bucket "
        f"{bucket_name} knows: this is an old checkpoint, or another driver runs the query. "
        "Start with a new one. Or, to write the later rows a second time, delete the keys "
        f"{key}.committed and {key}.begun"
    )


def _changed(
    bucket_name: str, key: str, batch: int, report: BatchReport, before: Committed
) -> CheckpointError:
    written = report.rows - report.skipped
    return CheckpointError(
        f"batch {batch} of {key} was stored with other rows ({before.digest.rows}, now "
        f"{report.digest.rows}): the checkpoint or the source of the query was changed "
        "since, or two jobs have its name. "
        f"{f'{written} rows were' if written else 'Nothing was'} written. To write these "
        f"rows, delete the key {key}.committed of the bucket {bucket_name}"
    )


def _warn_of_another(bucket: Bucket, key: str, stream: str) -> None:
    """Log a warning if another query has written into the stream.

    It may be this query: after you delete its checkpoint, it begins again with a new id, which
    the fence does not know.
    """
    for other in bucket.keys(f"{QUERY}*.committed"):
        try:
            before, _ = _read(bucket, other, Committed)
        except CheckpointError:
            continue  # the unreadable entry is of another query
        if before is not None and before.stream == stream:
            logger.warning(
                "%s is new, and %s has written into stream %s before. If both are one "
                "query with a new checkpoint, rows whose ids the stream has forgotten are "
                "stored twice",
                *(key, other.removesuffix(".committed"), printable(stream)),
            )
            return


def _read(
    bucket: Bucket, key: str, kind: type[Kind]
) -> tuple[Kind | None, Value | None]:
    value = bucket.get(key)
    if value is None or not value.data:
        return None, value
    try:
        entry = decode(value.data)
    except UNREADABLE as error:
        raise CheckpointError(
            f"the key {key} of the fence is unreadable ({error}): put back what the sink "
            "wrote, from a backup of the bucket. Or delete the keys of this query or job "
            "that end in .committed and .begun, and have the rows of its last batch twice"
        ) from error
    return (entry if isinstance(entry, kind) else None), value


def _put(bucket: Bucket, key: str, entry: Entry, before: Value | None) -> int:
    revision = before.revision if before else 0
    return bucket.put(key, encode(entry), revision=revision)


def _since(committed: Committed | None, started: BatchStarted | None, last: int) -> int:
    """Return the last sequence of the stream before the first batch of a query or job."""
    for known in (committed, started):
        if known is not None and known.since is not None:
            return known.since
    return last


__all__ = ["TERMINAL", "BatchFence", "commit"]
