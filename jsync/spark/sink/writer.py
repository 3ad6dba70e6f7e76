"""The writers that Spark calls. It makes them on the driver, and writes on executors."""

from __future__ import annotations

import contextlib
import functools
import logging
import uuid
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter

from ...errors import ConfigError, Error, PermissionsError
from ...terminal import printable
from ..connection import get_connection, get_jetstream
from ..retry import retry_until_available
from ..schema import options_of
from ..server_columns import given_by_servers
from ..stream_state import get_stream
from .batch_fence import BatchFence, commit
from .bucket import check_kept, open_bucket
from .columns import ColumnPlan
from .entries import EntryPlan
from .fence_state import TERMINAL, Digest, TaskAttempt
from .message_ids import MAX_NAMED, MessageIds
from .options import SinkSettings
from .publishers import TaskPublisher
from .report import BatchReport, TaskReport
from .rows import as_batches, digest
from .target import SinkTarget, target_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
    from pyspark.sql.types import StructType

    from ... import JetStream
    from ..options import Options

    StreamWriter = DataSourceStreamWriter
    Answer = TypeVar("Answer")
else:
    # Spark 4.0 has no writer for record batches, and passes rows.
    StreamWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
    )

SLICE: Final = 1000
"""Rows between two checks of the time, in a replay."""

logger = logging.getLogger("jsync.spark")


class SinkWriter:
    """One write: a batch of a query, or the whole of a batch job."""

    def __init__(
        self, options: Options, schema: StructType, *, overwrite: bool, streaming: bool
    ) -> None:
        """Check the write on the driver. Blocks. Raises `ConfigError` if it is impossible."""
        self.settings = settings = SinkSettings.of(options)
        # INSERT leaves these columns of a table out.
        self._left_out = given_by_servers(schema) if options_of(schema) else ()
        fields = [
            (field.name, field.dataType.simpleString())
            for field in schema
            if field.name not in self._left_out
        ]
        self._entries = None if settings.bucket is None else EntryPlan(fields)
        self._plan = (
            ColumnPlan.of(fields, settings.subject)
            if self._entries is None
            else self._entries.messages
        )
        self._schema = schema
        self.run = uuid.uuid4().hex
        self._streaming = streaming
        self._replicas = 1
        settings.check(self._plan, overwrite=overwrite, streaming=streaming)
        self._target: SinkTarget | None = None
        if not streaming:
            get_jetstream(settings.connection)  # raises immediately for a wrong address
        self._retry(self._fetch_stream)
        if overwrite:
            self._retry(self._purge)

    def _retry(self, ask: Callable[[], Answer]) -> Answer:
        return retry_until_available(ask, self.settings.connection.retry_timeout)

    def _fetch_stream(self) -> None:
        """Check with the server that the write is possible, and open the fence."""
        settings = self.settings
        js = get_jetstream(settings.connection)
        self._target = self._find_target(js)
        if settings.fence_bucket is not None:
            fence = open_bucket(js, settings.fence_bucket, replicas=self._replicas)
            if settings.exactly_once:
                check_kept(fence)
        if settings.dead_letters is not None:
            js.stream_name_by_subject(settings.dead_letters)

    def _purge(self) -> None:
        assert self.settings.stream is not None
        get_jetstream(self.settings.connection).stream(self.settings.stream).purge()

    def _find_target(self, js: JetStream) -> SinkTarget | None:
        settings = self.settings
        name = settings.stream
        if name is None and settings.subject is not None:
            try:
                name = js.stream_name_by_subject(settings.subject)
            except PermissionsError:
                if settings.publisher == "ingest":
                    raise
        if name is None:
            if settings.publisher == "ingest" or self._plan.has("ttl"):
                what = "publisher=ingest" if settings.publisher == "ingest" else "ttl"
                raise ConfigError(f"{what} needs the option stream, to be checked")
            return None
        config = get_stream(js, name).config
        self._replicas = config.num_replicas or 1
        return target_of(settings, self._plan, config)

    # On executors -----------------------------------------------------------------------

    def write_task(self, given: Iterable[Any], key: str, batch: int) -> TaskReport:
        stored = (
            self._written(one)
            for one in as_batches(given, self._schema)
            if one.num_rows
        )
        first = next(stored, None)
        if first is None:
            return TaskReport(key=key)
        batches: Iterable[pa.RecordBatch] = chain([first], stored)
        if self._entries is not None:
            assert self._target is not None
            batches = map(
                functools.partial(
                    self._entries.batch_of,
                    prefix=self._target.prefix,
                    write=f"{key}/{batch}",
                ),
                batches,
            )
        js = self._retry(lambda: get_jetstream(self.settings.connection))
        fence = None
        if self.settings.exactly_once:
            fence = self._fence(js, key, batch)
            if fence.check_in() in TERMINAL:
                return self._skip(batches, key)
        return self._send(js, batches, key, fence)

    def _written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that INSERT writes into a table."""
        if not self._left_out:
            return batch
        for name in self._left_out:
            if batch.column(name).null_count < batch.num_rows:
                raise ConfigError(
                    f"the server gives the column {name}: leave it out, and name the "
                    "others, as in: insert into t (subject, data) select ..."
                )
        return batch.select(
            [name for name in batch.schema.names if name not in self._left_out]
        )

    def _fence(self, js: JetStream, key: str, batch: int) -> BatchFence:
        context = TaskContext.get()
        assert context is not None
        assert self._target is not None
        assert self.settings.fence_bucket is not None
        return BatchFence(
            js,
            self.settings.fence_bucket,
            self._target,
            key,
            TaskAttempt(batch, self.run),
            context.partitionId(),
        )

    def _skip(self, batches: Iterable[pa.RecordBatch], key: str) -> TaskReport:
        found = Digest()
        for batch in batches:
            found += digest(batch, self._plan)
        return TaskReport(rows=found.rows, skipped=True, key=key, digest=found)

    def _send(
        self,
        js: JetStream,
        batches: Iterable[pa.RecordBatch],
        key: str,
        fence: BatchFence | None,
    ) -> TaskReport:
        publisher = TaskPublisher(
            js,
            self.settings,
            self._plan,
            self._target,
            timeout=(
                self._target.ack_timeout
                if self._target
                else self.settings.connection.retry_timeout
            ),
            max_payload=get_connection(self.settings.connection).max_payload,
        )
        rows, found, ids = 0, Digest(), MessageIds()
        try:
            for batch in batches:
                rows += batch.num_rows
                if fence is not None:
                    self._check_ids(batch, ids)
                    found += digest(batch, self._plan)
                if fence is None or not fence.is_replay:
                    publisher.publish(batch)
                    continue
                for at in range(0, batch.num_rows, SLICE):
                    fence.check()
                    publisher.publish(batch.slice(at, SLICE))
            ids.check()
            confirmed = publisher.close()
            collided = fence is not None and self._retry(
                lambda: fence.has_collision(confirmed.last_duplicate)
            )
        except BaseException as error:
            stored = publisher.give_up()
            error.add_note(f"{stored} rows of this task are stored, and stay stored")
            raise
        return TaskReport(
            rows=rows,
            confirmed=confirmed.rows,
            duplicates=confirmed.duplicates,
            dead_letters=publisher.dead_letters,
            collisions=(confirmed.duplicates or 0) if collided else 0,
            collision_sequence=confirmed.last_duplicate if collided else None,
            first_sequence=confirmed.first,
            last_sequence=confirmed.last,
            key=key,
            digest=found,
        )

    def _check_ids(self, batch: pa.RecordBatch, known: MessageIds) -> None:
        ids = batch.column(self._plan.names.index("msg_id"))
        nulls = ids.null_count
        known.add(ids)
        if nulls and self.settings.dead_letters is None:
            raise ConfigError(
                f"msg_id is null in {nulls} rows: delivery=exactly-once needs one in each"
            )

    # On the driver, at the end ----------------------------------------------------------

    def commit_batch(
        self, messages: Sequence[WriterCommitMessage | None], batch: int, *, last: bool
    ) -> BatchReport:
        tasks = [one for one in messages if isinstance(one, TaskReport)]
        report = BatchReport.of(tasks)
        # Note every batch of a query, even without rows, so that there is no gap.
        key = next((task.key for task in tasks if task.rows or self._streaming), None)
        if report.collisions:
            logger.warning(
                "up to %d rows of batch %d of %s are lost: stream %s has dropped them, "
                "because other rows of the same query or job had their msg_id%s. Give each "
                "row a msg_id that no other row has",
                *(report.collisions, batch, key, printable(self.settings.stream or "")),
                self._examples(tasks),
            )
        bucket = self.settings.fence_bucket
        if bucket is not None and key is not None:
            fenced = self.settings.stream if self.settings.exactly_once else None
            connect = functools.partial(get_jetstream, self.settings.connection)
            commit(
                connect,
                bucket,
                key,
                batch,
                report,
                fenced=fenced,
                last=last,
                retry_seconds=self.settings.connection.retry_timeout,
            )
        logger.info(
            "batch %d of %s: %s", batch, key or "nothing", printable(str(report))
        )
        return report

    def _examples(self, tasks: Sequence[TaskReport]) -> str:
        """Return ids that rows have repeated, one of a task, as a part of a sentence. Blocks."""
        stream = get_jetstream(self.settings.connection).bind_stream(
            self.settings.stream or ""
        )
        found: list[str] = []
        collided = {task.collision_sequence for task in tasks}
        for sequence in sorted(one for one in collided if one is not None)[:MAX_NAMED]:
            # The message may be gone, and the warning is useful without an example.
            with contextlib.suppress(Error):
                headers = stream.get_message(sequence, direct=False).headers
                if headers is not None and (msg_id := headers.get("Nats-Msg-Id")):
                    found.append(repr(printable(msg_id)[:100]))
        return f", for example {', '.join(found)}" if found else ""

    def abort_batch(
        self, messages: Sequence[WriterCommitMessage | None], batch: int
    ) -> None:
        """Log the rows that stay stored, because a stream keeps all that it has stored."""
        tasks = [one for one in messages if isinstance(one, TaskReport)]
        logger.warning(
            "batch %d was aborted. %d of %d tasks were done, and the rows that they wrote "
            "stay stored: %s. The others may have stored rows as well",
            *(batch, len(tasks), len(messages), printable(str(BatchReport.of(tasks)))),
        )


class JetStreamWriter(DataSourceArrowWriter):
    """Writes a DataFrame."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._sink = SinkWriter(options, schema, overwrite=overwrite, streaming=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sink = self._sink
        settings = sink.settings
        key = f"job.{settings.job or sink.run}"
        return sink.write_task(iterator, key, settings.job_batch or 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        settings = self._sink.settings
        last = settings.exactly_once and settings.job is None
        self._sink.commit_batch(messages, settings.job_batch or 0, last=last)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort_batch(messages, self._sink.settings.job_batch or 0)


class JetStreamStreamWriter(StreamWriter):
    """Writes the batches of a streaming query.

    Spark makes one to write each batch, and another one to commit it.
    """

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._sink = SinkWriter(options, schema, overwrite=overwrite, streaming=True)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        return self._sink.write_task(iterator, f"query.{query}", batch)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        self._sink.commit_batch(messages, batchId, last=False)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 (Spark's name)
    ) -> None:
        self._sink.abort_batch(messages, batchId)
