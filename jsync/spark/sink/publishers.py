"""The publishing of one task's rows, by whole record batches."""

from __future__ import annotations

import contextlib
import re
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ...errors import (
    BatchPublishTooManyInflightError,
    Error,
    InvalidSubjectError,
    NoStreamResponseError,
    PublisherError,
    StreamMismatchError,
    WrongLastSequenceError,
)
from .columns import OPTIONS
from .dead_letters import (
    UNSENDABLE,
    UNTIL_TIMEOUT,
    DeadLetters,
    has_no_stream,
    is_rejection,
)
from .entries import WRITE, Expectations

if TYPE_CHECKING:
    from typing import TypeAlias

    import pyarrow as pa

    from ... import FastIngest, JetStream, PubAckFuture
    from .columns import ColumnPlan
    from .options import SinkSettings
    from .target import SinkTarget

    Rows: TypeAlias = "pa.RecordBatch | pa.Table"

CALLBACK_SECONDS: Final = 30.0
FEW_ATTEMPTS: Final = 2
"""Attempts for a message without an answer, if perhaps no stream has its subject."""
CHECK_ROWS: Final = 500
"""Half of the rows that `publish_arrow` checks before it sends the first of them."""


class Confirmed(NamedTuple):
    """A stream's answer to the rows of a task."""

    rows: int
    duplicates: int | None
    first: int | None
    last: int | None
    last_duplicate: int | None = None
    """The last sequence of an earlier message with the id of one of these rows."""


class RowPublisher(Protocol):
    """A way to publish to a stream."""

    def publish(self, rows: Rows, **columns: Any) -> None: ...
    def close(self) -> Confirmed: ...
    def give_up(self) -> int:
        """Stop without waiting. Return how many rows are known to be stored."""


class IngestPublisher:
    """A fast ingest for all rows of the task (ADR-50)."""

    def __init__(self, js: JetStream, ack_timeout: float) -> None:
        self._ingest: FastIngest = js.fast_ingest(ack_timeout=ack_timeout)

    def publish(self, rows: Rows, **columns: Any) -> None:
        self._ingest.publish_arrow(rows, **columns)

    def close(self) -> Confirmed:
        ack = self._ingest.close()
        return Confirmed(ack.count or 0, None, None, ack.seq or None)

    def give_up(self) -> int:
        self._ingest.abandon()
        return self._ingest.acked

    def __repr__(self) -> str:
        return f"<IngestPublisher {self._ingest!r}>"


class AckPublisher:
    """A publisher, whose acks report duplicates and rejections row by row."""

    def __init__(
        self,
        js: JetStream,
        dead: DeadLetters | None,
        *,
        expectations: Expectations | None,
        target: SinkTarget | None,
        names_stream: bool,
        resend: bool,
        timeout: float,
    ) -> None:
        self._js = js
        self._dead = dead
        self._expectations = expectations
        self._stored_before = 0
        self._target = target
        self._names_stream = names_stream
        self._unknown_subjects: dict[str, bool] = {}
        self._failures: SimpleQueue[tuple[PubAckFuture, Exception]] = SimpleQueue()
        self._reported = 0
        self._error: Exception | None = None
        self._publisher = js.publisher(
            resend=resend,
            retry_attempts=FEW_ATTEMPTS if target is None else UNTIL_TIMEOUT,
            ack_timeout=timeout,
            stall_timeout=timeout,
            on_error=self._on_error if self._handles_errors else None,
        )

    @property
    def _handles_errors(self) -> bool:
        """True if failures of single messages are handled here."""
        return self._dead is not None or self._expectations is not None

    def _on_error(self, future: PubAckFuture, error: Exception) -> None:
        future.exception()  # the error is reported here, so mark it as retrieved
        self._failures.put((future, error))

    def publish(self, rows: Rows, **columns: Any) -> None:
        self._publisher.publish_arrow(rows, **columns)
        if self._publisher.failed and not self._handles_errors:
            self._publisher.flush()  # raises for an invalid value
        self._handle_failures(self._failures.qsize())

    def close(self) -> Confirmed:
        publisher = self._publisher
        try:
            publisher.flush()
        except PublisherError:
            if not self._handles_errors:
                raise
        if self._handles_errors:
            self._handle_failures(publisher.failed - self._reported)
        publisher.close()
        first, last = publisher.stored_range or (None, None)
        _, last_duplicate = publisher.duplicate_range or (None, None)
        return Confirmed(
            publisher.acknowledged + self._stored_before,
            publisher.duplicates,
            first,
            last,
            last_duplicate,
        )

    def give_up(self) -> int:
        stored = self._publisher.acknowledged
        with contextlib.suppress(Error):
            self._publisher.close(timeout=0)
        return stored

    def _handle_failures(self, count: int) -> None:
        """Publish `count` failed messages as dead letters. Raise errors that are no rejection."""
        for _ in range(count):
            try:
                future, error = self._failures.get(timeout=CALLBACK_SECONDS)
            except Empty:
                raise RuntimeError(
                    "a publish failed, and its error did not come"
                ) from None
            self._reported += 1
            if self._expectations is not None and isinstance(
                error, WrongLastSequenceError
            ):
                try:
                    is_stored = self._expectations.resolve(future)
                except WrongLastSequenceError:  # another writer was faster
                    is_stored = False
                if is_stored:
                    self._stored_before += 1
                    continue
                error = self._expectations.conflict(future, error)
            if self._dead is None:
                raise error
            if not self._is_rejection(future.subject, error):
                raise error
            headers = future.headers
            msg_id = None
            if headers is not None:
                msg_id = headers.get("Nats-Msg-Id") or headers.get(WRITE)
            self._dead.add(
                error,
                future.subject,
                future.data,
                None
                if headers is None
                else {name: headers.get_all(name) for name in headers},
                msg_id,
            )

    def _is_rejection(self, subject: str, error: Exception) -> bool:
        """Return whether the error is caused by the row, and is not temporary."""
        if isinstance(error, NoStreamResponseError):
            # The rows have subjects of the known stream, so it has no leader now.
            return self._target is None and self._has_no_stream(subject, error)
        if isinstance(error, StreamMismatchError) and not self._names_stream:
            return False  # another stream has taken over the subject
        return is_rejection(error)

    def _has_no_stream(self, subject: str, error: Exception) -> bool:
        if subject not in self._unknown_subjects:
            try:
                self._unknown_subjects[subject] = has_no_stream(self._js, subject)
            except Error as reason:
                error.add_note(
                    f"whether a stream has the subject is not known: {reason}"
                )
                raise error from reason
        return self._unknown_subjects[subject]

    def __repr__(self) -> str:
        return f"<AckPublisher {self._publisher!r}>"


class TaskPublisher:
    """Publishes all rows of a task. `close` waits until they are confirmed."""

    def __init__(
        self,
        js: JetStream,
        settings: SinkSettings,
        plan: ColumnPlan,
        target: SinkTarget | None,
        *,
        timeout: float,
        max_payload: int,
    ) -> None:
        self._js = js
        self._settings = settings
        self._plan = plan
        self._target = target
        self._timeout = timeout
        self._dead = (
            None
            if settings.dead_letters is None
            else DeadLetters(js, settings.dead_letters, max_payload, timeout)
        )
        # A leading space: no subject and no stream has such a name.
        self._names = [f" {name}" for name in plan.names]
        self._columns: dict[str, Any] = {
            name: f" {name}" for name in plan.names if name in OPTIONS
        }
        api = re.escape(settings.connection.api)
        self._requests = rf"^(?:\$JS|\$SYS|_INBOX|{api})\."
        self._columns["data"] = " data"
        self._columns["subject"] = plan.subject or " subject"
        if settings.exactly_once and target is not None:
            self._columns.setdefault("expected_stream", target.stream)
        self._publisher: RowPublisher = (
            IngestPublisher(js, timeout)
            if target is not None and target.ingest
            else self._by_acks()
        )

    def _by_acks(self) -> AckPublisher:
        # Without an id in each row, no message may be sent twice.
        resend = self._settings.exactly_once
        return AckPublisher(
            self._js,
            self._dead,
            target=self._target,
            expectations=(
                Expectations(self._js, self._settings.bucket, self._target.prefix)
                if self._settings.bucket is not None
                and self._target is not None
                and self._plan.expectations
                else None
            ),
            names_stream=self._plan.has("expected_stream"),
            resend=resend,
            timeout=self._timeout,
        )

    def publish(self, batch: pa.RecordBatch) -> None:
        """Publish the rows of a batch, in order. Blocks while too many wait for acks.

        Raises the errors of `publish_arrow`. A row that cannot be sent raises no error if
        there is a subject for dead letters.
        """
        import pyarrow as pa  # noqa: PLC0415

        # pyarrow 15 cannot rename the columns of a record batch.
        rows: Rows = pa.RecordBatch.from_arrays(batch.columns, names=self._names)
        if self._plan.has("subject"):
            rows = self._of_the_stream(rows)
        if not rows.num_rows:
            return
        try:
            self._send(rows)
        except BatchPublishTooManyInflightError:
            if self._settings.publisher != "auto" or self._publisher.give_up():
                raise
            # Too many fast ingests run at the same time. This one has stored nothing yet.
            self._publisher = self._by_acks()
            self._send(rows)

    def _of_the_stream(self, rows: Rows) -> Rows:
        """Return the rows whose subjects a stream takes. Rows without a subject stay.

        Other rows become dead letters, or raise `InvalidSubjectError` without a subject for
        dead letters.
        """
        import pyarrow.compute as pc  # noqa: PLC0415

        target, subjects = self._target, rows.column(" subject")
        if target is None:
            fits = pc.invert(pc.match_substring_regex(subjects, self._requests))
            why = "the sink sends no requests to the server, such as"
        elif target.subjects is None:
            return rows
        else:
            fits = pc.match_substring_regex(subjects, target.subjects)
            why = f"stream {target.stream} does not take the subject"
            if target.prefix:
                why = (
                    "a key has letters, digits, -/_= and single dots, unlike the end of"
                )
        fits = pc.fill_null(fits, fill_value=True)
        if pc.all(fits).as_py() is not False:
            return rows
        for row in rows.filter(pc.invert(fits)).to_pylist():
            error = InvalidSubjectError(f"{why} {row[' subject']!r}")
            if self._dead is None:
                raise error
            self._add_dead(error, row)
        return rows.filter(fits)

    def _send(self, rows: Rows) -> None:
        if self._dead is None:
            self._publisher.publish(rows, **self._columns)
            return
        todo = [rows]
        while todo:
            rows = todo.pop()
            try:
                self._publisher.publish(rows, **self._columns)
            except UNSENDABLE as error:
                rest = rows.slice(getattr(error, "published", 0))
                if rest.num_rows == 1:
                    self._add_dead(error, rest.to_pylist()[0])
                else:
                    half = min(CHECK_ROWS, rest.num_rows // 2)
                    todo += [rest.slice(half), rest.slice(0, half)]

    def _add_dead(self, error: Exception, row: dict[str, Any]) -> None:
        assert self._dead is not None
        self._dead.add(
            error,
            self._plan.subject or row[" subject"],
            row[" data"],
            dict(row.get(" headers") or {}),
            row.get(" msg_id"),
        )

    @property
    def dead_letters(self) -> int:
        return 0 if self._dead is None else self._dead.count

    def close(self) -> Confirmed:
        """Wait until the stream has confirmed all rows. Blocks. Raises if it has not."""
        confirmed = self._publisher.close()
        if self._dead is not None:
            self._dead.close()
        return confirmed

    def give_up(self) -> int:
        """Stop without waiting. Return how many rows are known to be stored, and stay so."""
        return self._publisher.give_up()

    def __repr__(self) -> str:
        return f"<TaskPublisher {self._publisher!r}>"
