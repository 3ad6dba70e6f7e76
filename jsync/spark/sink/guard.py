"""The fence, beside the server: what a task asks it, and what a commit tells it."""

from __future__ import annotations

from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from ...errors import (
    CheckpointError,
    ConnectionError as BrokenError,
    JetStreamUnavailableError,
    NoStreamResponseError,
    ReplayTooLateError,
    TimeoutError as LateError,
    WrongLastSequenceError,
)
from .bucket import Bucket
from .fence import (
    ENDS,
    TIMED,
    Attempt,
    Begun,
    Committed,
    Standing,
    Tasked,
    decode,
    encode,
    seconds_left,
    standing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ... import JetStream
    from .bucket import Value
    from .fence import Entry
    from .report import BatchReport
    from .target import Target

    Result = TypeVar("Result")
    Kind = TypeVar("Kind", Committed, Begun, Tasked)

_PASSING: Final = (
    BrokenError,
    LateError,
    NoStreamResponseError,
    JetStreamUnavailableError,
)
PAUSE: Final = 0.25


def patiently(call: Callable[[], Result], seconds: float) -> Result:
    """Call until it goes through, so that a server may restart meanwhile; blocks."""
    deadline = monotonic() + seconds
    while True:
        try:
            return call()
        except _PASSING:
            if monotonic() >= deadline:
                raise
        sleep(PAUSE)


class Guard:
    """One task's way past the fence."""

    def __init__(
        self,
        js: JetStream,
        bucket: str,
        target: Target,
        key: str,
        attempt: Attempt,
        partition: int,
    ) -> None:
        self._js = js
        self._bucket_name = bucket
        self._target = target
        self._key = key
        self._attempt = attempt
        self._partition = partition
        self._until: float | None = None
        self._begun: Begun | None = None

    def enter(self) -> Standing:
        """Where the batch stands; notes that this task has begun. Blocks.

        Raises `CheckpointError` when a later batch is stored, and `ReplayTooLateError`.
        """
        return patiently(self._enter, self._target.ack_timeout)

    def _enter(self) -> Standing:
        bucket = Bucket(self._js, self._bucket_name)
        attempt, key = self._attempt, self._key
        while True:
            committed, _ = _read(bucket, f"{key}.committed", Committed)
            begun, begun_at = _read(bucket, f"{key}.begun", Begun)
            task, task_at = _read(bucket, f"{key}.task.{self._partition}", Tasked)
            last = self._js.stream(self._target.stream).cached_info.state.last_seq
            where = standing(attempt, committed, begun, task, last)
            try:
                if where is Standing.NEW:
                    entry = Begun(attempt.batch, attempt.run, last)
                    _put(bucket, f"{key}.begun", entry, begun_at)
                    continue  # and now the task
                if where is Standing.SHARED:
                    _put(
                        bucket,
                        f"{key}.task.{self._partition}",
                        Tasked(attempt.batch, attempt.run),
                        task_at,
                    )
            except WrongLastSequenceError:
                continue  # another task was first
            break
        if where is Standing.BEHIND:
            raise self._behind()
        if where in TIMED:
            since = task_at if where is Standing.RETRIED else begun_at
            assert since is not None
            left = seconds_left(since.time, bucket.now(), self._target.replay_seconds)
            self._begun, self._until = begun, monotonic() + left
            self.check()
        return where

    @property
    def timed(self) -> bool:
        """Whether some of the rows may be stored already, so that `check` can raise."""
        return self._until is not None

    def check(self) -> None:
        """Raise `ReplayTooLateError` once the stream may have forgotten ids of the batch."""
        if self._until is not None and monotonic() >= self._until:
            assert self._begun is not None
            raise ReplayTooLateError(
                f"batch {self._attempt.batch} of {self._key} was begun so long ago that "
                f"stream {self._target.stream}, which remembers ids for "
                f"{self._target.window:g} s, may have forgotten those that it has: rows "
                "would be stored twice. What of the batch is stored stands behind "
                f"sequence {self._begun.last_sequence}. Either delete it there, then the "
                f"key {self._key}.begun of the bucket {self._bucket_name}, and start "
                "again; or start once with delivery=at-least-once, and have those rows "
                "twice. A longer duplicate_window of the stream leaves more time"
            )

    def _behind(self) -> CheckpointError:
        return CheckpointError(
            f"batch {self._attempt.batch} of {self._key} is older than what the fence in "
            f"the bucket {self._bucket_name} knows to be stored: this is a checkpoint of "
            "before. Start with a new one; or, to have what was written since once more, "
            f"delete the keys {self._key}.committed and {self._key}.begun"
        )

    def __repr__(self) -> str:
        return f"<Guard of {self._key}, {self._attempt}>"


def commit(
    connect: Callable[[], JetStream],
    bucket_name: str,
    key: str,
    batch: int,
    report: BatchReport,
    *,
    fenced: bool,
    last: bool,
) -> None:
    """Note that a batch is stored; on the driver, blocks.

    `last`: nobody will ask for it again. Raises `CheckpointError` when an earlier run has
    stored the batch, and with other rows.
    """

    def put() -> None:
        bucket = Bucket(connect(), bucket_name)
        if fenced and report.skipped:
            committed, _ = _read(bucket, f"{key}.committed", Committed)
            if committed is not None and committed.digest != report.digest:
                raise CheckpointError(
                    f"batch {batch} of {key} was stored with other rows "
                    f"({committed.digest.rows}, now {report.digest.rows}): the checkpoint, "
                    "or what the query reads, was changed since. Nothing was written. To "
                    f"write these rows delete the key {key}.committed of the bucket "
                    f"{bucket_name}"
                )
            return
        if last:
            bucket.forget(f"{key}.>")
            return
        entry = Committed(batch, report.digest, report.as_dict())
        bucket.put(f"{key}.committed", encode(entry))

    patiently(put, 10.0)


def _read(
    bucket: Bucket, key: str, kind: type[Kind]
) -> tuple[Kind | None, Value | None]:
    value = bucket.get(key)
    if value is None or not value.data:
        return None, value
    entry = decode(value.data)
    return (entry if isinstance(entry, kind) else None), value


def _put(bucket: Bucket, key: str, entry: Entry, before: Value | None) -> None:
    bucket.put(key, encode(entry), revision=before.revision if before else 0)


__all__ = ["ENDS", "Guard", "commit", "patiently"]
