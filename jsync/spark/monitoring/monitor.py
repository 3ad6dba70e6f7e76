"""The listener of a Spark session: metrics of its streaming queries while they run.

Spark calls the listener on a separate thread, where it puts each event into a queue. The
monitor's thread takes the events, requests the lag from the server and stores the metrics,
so no query waits for the monitor.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from ...errors import ConfigError, Error
from ...terminal import printable
from ...worker import http as web
from ..connection import ConnectionOptions, open_connection
from ..errors import explain
from ..options import Options
from ..sink.bucket import Bucket
from ..sink.fence_state import UNREADABLE, Committed, decode
from ..sink.options import FENCE_BUCKET
from .lag import measure_lag
from .metrics import QueryMetrics, prometheus_text
from .status_store import BUCKET, open_status_bucket, read_status, write_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from ... import Connection, JetStream, KeyValue

INTERVAL: Final = 10.0
PAUSE: Final = 0.5
"""Seconds between two measurements at least."""
_MAX_MISSED: Final = 3
"""The monitor is not ready if a running query was not measured for so many intervals."""
_LAST_EVENTS: Final = 10.0
"""Seconds that `close` waits for the last events of ended queries."""

_MAX_ERROR_TEXT: Final = 1000
"""The most characters of an error."""

logger = logging.getLogger("jsync.spark.monitor")

_Event = tuple[str, str, "Mapping[str, Any]"]


def monitor(
    spark: SparkSession,
    options: Mapping[str, str] | None = None,
    *,
    bucket: str | None = BUCKET,
    fence_bucket: str = FENCE_BUCKET,
    http: str | None = None,
    interval: float = INTERVAL,
    on_progress: Callable[[QueryMetrics], object] | None = None,
) -> Monitor:
    """Watch the streaming queries of a session: lag, rates and counts. Blocks to connect.

    After each micro-batch, and every `interval` seconds, the monitor asks the server how
    far each query is behind its streams. It logs a line to `jsync.spark.monitor` and puts
    the metrics into a key-value bucket, where `jsync pipeline status` finds them. Queries
    do not wait for the monitor, and an error of the monitor ends no query.

    Use it as a context manager, or call `close`.

    Args:
        spark: A classic session. Spark Connect runs listeners elsewhere.
        options: The options `nats.*`, as of `format("jetstream")`. One monitor is for one
            server: the lag of other streams is unknown.
        bucket: The bucket, created if it is missing. None: keep nothing. Entries that
            nobody writes expire after 30 days.
        fence_bucket: The option `fenceBucket` of the sinks, if you set it. Sinks keep
            their counts of duplicates and dead letters there.
        http: `HOST:PORT` to serve Prometheus' `/metrics`, `/livez` and `/readyz` on. Port
            0 takes any.
        interval: Seconds between measurements while no micro-batch ends.
        on_progress: Called with the metrics after each measurement of a query, on the
            monitor's thread. What it raises is logged.

    Returns:
        The monitor.

    Raises:
        ConfigError: An option is wrong, or the session is of Spark Connect.
        ConnectionError: No server could be reached.
        JetStreamError: The bucket cannot be opened.
    """
    if not hasattr(spark, "sparkContext") or "connect" in type(spark).__module__:
        raise ConfigError(
            "monitor needs a classic session: Spark Connect runs listeners on its server; "
            "start the monitor there"
        )
    if not 0 < interval < float("inf"):
        raise ConfigError(f"interval: {interval!r}; give a number of seconds above 0")
    found = Monitor(spark, interval, fence_bucket, on_progress)
    address = None if http is None else web.parse_address(http)
    try:
        found.start(
            ConnectionOptions.of(Options(options or {}, "monitor")), bucket, address
        )
    except BaseException:
        found.close()
        raise
    return found


class Monitor:
    """The metrics of a session's queries. Made by `monitor`."""

    def __init__(
        self,
        spark: SparkSession,
        interval: float,
        fence_bucket: str,
        on_progress: Callable[[QueryMetrics], object] | None,
    ) -> None:
        self._spark = spark
        self._interval = interval
        self._fence_bucket = fence_bucket
        self._on_progress = on_progress
        self._listener = _Listener()
        self._queries: dict[str, QueryMetrics] = {}  # used by the thread alone
        self._shown: dict[str, QueryMetrics] = {}  # copies, replaced as a whole
        self._closing = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="jsync-spark-monitor", daemon=True
        )
        self._resources = contextlib.ExitStack()
        self._measured: dict[str, float] = {}
        """The time at which each query was last measured, or first seen. Replaced as a whole."""
        self._options: ConnectionOptions
        self._bucket: str | None = None
        self._nc: Connection | None = None
        self._js: JetStream
        self._board: KeyValue[bytes] | None = None
        self.port: int | None = None
        """The port of the HTTP server. None if there is none."""

    def start(
        self,
        options: ConnectionOptions,
        bucket: str | None,
        address: tuple[str, int] | None,
    ) -> None:
        """Connect and begin to listen. Called by `monitor`."""
        self._options, self._bucket = options, bucket
        self._resources.callback(self._disconnect)
        self._open_bucket()
        if address is not None:
            self.port = self._resources.enter_context(web.serve(address, self))
        self._spark.streams.addListener(self._listener)
        self._resources.callback(self._spark.streams.removeListener, self._listener)
        self._thread.start()

    def _connect(self) -> None:
        """Connect, also after a final close, because a secret may have been replaced."""
        if self._nc is not None and not self._nc.is_closed:
            return
        options = self._options
        self._nc = nc = open_connection(options)
        self._js = nc.jetstream(
            domain=options.domain, prefix=options.api_prefix, timeout=options.timeout
        )
        self._board = None

    def _disconnect(self) -> None:
        if self._nc is not None:
            self._nc.close()

    def _open_bucket(self) -> KeyValue[bytes] | None:
        """Return the bucket of this connection, or None if the monitor keeps nothing."""
        self._connect()
        if self._board is None and self._bucket is not None:
            self._board = open_status_bucket(self._js, self._bucket)
        return self._board

    # Results --------------------------------------------------------------------------

    def queries(self) -> list[QueryMetrics]:
        """Return the metrics of each query that this monitor has seen, as last measured.

        Call it from any thread. It does not block.
        """
        return [msgspec.structs.replace(query) for query in self._shown.values()]

    def prometheus_text(self) -> str:
        """Write the metrics as Prometheus text, format 0.0.4. It does not block."""
        return prometheus_text(self._shown.values())

    def metrics(self) -> str:
        """Return `prometheus_text`, under the name that the HTTP server calls."""
        return self.prometheus_text()

    def is_alive(self) -> bool:
        """Return whether the monitor runs, for `/livez`."""
        return self._thread.is_alive()

    def is_ready(self) -> bool:
        """Return whether no query has failed and all running ones are measured: `/readyz`."""
        measured = self._measured
        oldest = monotonic() - _MAX_MISSED * (self._interval + PAUSE)
        return all(
            query.state == "ended"
            or (query.state == "running" and measured[query.id] >= oldest)
            for query in self._shown.values()
        )

    # The monitor's thread -------------------------------------------------------------

    def _run(self) -> None:
        measured = 0.0
        while True:
            closing = self._closing.is_set()
            due = measured + self._interval
            touched = self._take_events(0.0 if closing else max(0.0, due - monotonic()))
            now = monotonic()
            for query in list(self._queries.values()):
                if query.id in touched or (now >= due and query.state == "running"):
                    self._measure(query)
            if now >= due:
                measured = now
            if closing:
                return
            self._closing.wait(PAUSE)

    def _take_events(self, seconds: float) -> set[str]:
        """Wait for an event, take all that have come, and return the ids of their queries."""
        events, touched = self._listener.events, set[str]()
        with contextlib.suppress(Empty):
            touched.add(self._take(events.get(timeout=seconds)))
            while True:
                touched.add(self._take(events.get_nowait()))
        return touched

    def _take(self, event: _Event) -> str:
        kind, key, about = event
        if not key:
            return key  # only to wake the thread
        query = self._queries.get(key)
        if query is None:
            query = self._queries[key] = QueryMetrics(id=key, is_complete=False)
            try:
                self._complete(query)
            except Error as failure:
                logger.warning("the progress so far of %s is unknown: %s", key, failure)
        match kind:
            case "started":
                query.run_id, query.name = about["run_id"], about["name"]
                query.state, query.error = "running", None
            case "progress":
                query.take(about)
            case "terminated" if query.run_id == about["run_id"]:
                error = about["error"]
                query.state = "ended" if error is None else "failed"
                query.error = (
                    None if error is None else explain(error)[0][:_MAX_ERROR_TEXT]
                )
        return key

    def _complete(self, query: QueryMetrics) -> KeyValue[bytes] | None:
        """Add the earlier runs once, and return the bucket, see `_open_bucket`."""
        board = self._open_bucket()
        if not query.is_complete:
            before = None if board is None else read_status(board, query.id)
            if before is not None:
                query.add(before)
            query.is_complete = True
        return board

    def _measure(self, query: QueryMetrics) -> None:
        self._measured = {query.id: monotonic(), **self._measured}
        failure: Error | None
        try:
            self._connect()
            failure = measure_lag(self._js, query)
            if failure is None:
                query.time = datetime.now(UTC).isoformat(timespec="milliseconds")
            self._count(query)
            board = self._complete(query)
            if board is not None:
                write_status(board, query)
            if failure is None:
                self._measured = {**self._measured, query.id: monotonic()}
        except Error as error:
            failure = error
        if failure is not None:
            logger.warning(
                "%s: the progress cannot be measured or noted: %s",
                *(printable(query.label), printable(str(failure))),
            )
        shown = _copy(query)
        self._shown = {**self._shown, query.id: shown}
        logger.info(
            "%s",
            printable(query.line()),
            extra={"progress": msgspec.to_builtins(shown)},
        )
        if self._on_progress is not None:
            try:
                self._on_progress(_copy(query))
            except Exception:
                logger.exception("on_progress of a monitor raised")

    def _count(self, query: QueryMetrics) -> None:
        """Read the counts that the query's sinks have reported to the fence."""
        try:
            bucket = Bucket(self._js, self._fence_bucket)
        except Error:
            return  # no sink has reported anything
        totals = []
        for key in (f"query.{query.id}", f"job.{query.id}"):
            value = bucket.get(f"{key}.committed")
            try:
                entry = None if value is None or not value.data else decode(value.data)
            except UNREADABLE as error:
                logger.warning("the counts of %s are unreadable: %s", key, error)
                continue
            if isinstance(entry, Committed) and entry.totals is not None:
                totals.append(entry.totals)
        if totals:
            query.dead_letters = sum(total.dead_letters for total in totals)
            query.duplicates = sum(total.duplicates for total in totals)
            query.collisions = sum(total.collisions for total in totals)

    # Closing --------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening, after the last events of ended queries. Blocks up to 10 s."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._thread.is_alive():
            self._await_ends()
            self._closing.set()
            self._listener.events.put(("wake", "", {}))
            self._thread.join(_LAST_EVENTS)
        self._resources.close()

    def _await_ends(self) -> None:
        """Wait until Spark has reported the end of each query that has ended."""
        until = monotonic() + _LAST_EVENTS
        while monotonic() < until:
            active = {str(query.id) for query in self._spark.streams.active}
            if not self._listener.running - active:
                return
            self._closing.wait(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Monitor of {len(self._shown)} queries>"


class _Listener(StreamingQueryListener):
    """Puts the events of Spark into a queue."""

    def __init__(self) -> None:
        self.events: SimpleQueue[_Event] = SimpleQueue()
        self.running: set[str] = set()  # replaced, never changed

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        key = str(event.id)
        self.running = self.running | {key}
        about = {"run_id": str(event.runId), "name": event.name}
        self.events.put(("started", key, about))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self.events.put(("progress", str(progress.id), progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Ignore the event, because the monitor measures idle queries by its own clock."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        key = str(event.id)
        about = {"run_id": str(event.runId), "error": event.exception}
        self.events.put(("terminated", key, about))
        self.running = self.running - {key}


def _copy(query: QueryMetrics) -> QueryMetrics:
    streams = {name: msgspec.structs.replace(s) for name, s in query.streams.items()}
    return msgspec.structs.replace(query, streams=streams)
