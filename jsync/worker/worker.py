"""`Worker` holds the handlers of consumers. `RunningWorker` runs them."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ..connection import connect as connect_to
from ..core.resources import CloseOnExit, NotCopyable
from ..core.sync import ForkSafeRLock, Latch
from ..errors import (
    BlockingCallError,
    ConfigError,
    DrainTimeoutError,
    Error,
    FilterMismatchError,
    InvalidPayloadError,
    StreamNotFoundError,
)
from ..health import CONFIRM_SECONDS, READY_SECONDS, Confirmation
from ..hints import explain_arguments
from ..jetstream.retries.driver import RetryHandler
from ..jetstream.retries.engine import Retry, extension_interval
from ..validation import (
    check_callable,
    check_optional_callable,
    check_seconds,
    format_seconds,
)
from .dead_letters import MaxDeliveriesListener
from .metrics import WorkerReport
from .process import run
from .routes import make_route
from .runner import HandlerRunner
from .sources import check_subjects, open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from .._fast import JetStreamMsg
    from ..connection import Connection
    from ..jetstream.context import JetStream
    from ..jetstream.pulls.consume import ConsumeContext
    from ..models import ConsumerConfig
    from ..validation import Seconds
    from .routes import Route
    from .sources import RouteSource

logger = logging.getLogger("jsync.worker")

_MAX_TICK: Final = 1.0
_MIN_TICK: Final = 0.02

_Function = TypeVar("_Function", bound="Callable[..., Any]")


@explain_arguments
class Worker:
    """A program of message handlers that runs until you stop it.

    Decorate your handlers with `handle`. Then run the worker with `jsync worker
    module:app`, with `run`, or with `start` in your own program. The worker acknowledges a
    message when its handler returns. If the handler raises, `retry` decides when the
    message is delivered again, and where it ends.

    Args:
        stream: The default stream of the handlers.
        connect: Called without arguments to get the connection. Default: connect to
            `nats://127.0.0.1:4222`. `jsync worker` connects by its own options.
        retry: The default retry policy of the handlers. Default: retry failed messages
            without end, after 1, 5, 30, and then up to 600 seconds.
        on_error: Called with each error that does not end the worker, on the connection's
            callback thread: `RetriesExhaustedError`, `DeadLetterError`,
            `HandlerTimeoutError`, and the errors of `Consumer.consume`. The logger
            `jsync.worker` gets them as well, and the errors of `Consumer.consume` go to
            `jsync.consume`.
        around: Called with each message. It returns a context manager, and the handler
            is called inside of its `with` block. An exception of the handler passes
            through it.

    Raises:
        ConfigError: `connect`, `on_error` or `around` is not callable.

    Example:
        ```python
        app = jsync.Worker(stream="ORDERS")

        @app.handle("orders.new", consumer="billing", workers=8)
        def bill(order: dict) -> None:
            print("bill order", order["id"])
        ```
    """

    def __init__(
        self,
        *,
        stream: str | None = None,
        connect: Callable[[], Connection] | None = None,
        retry: Retry | None = None,
        on_error: Callable[[Exception], object] | None = None,
        around: Callable[[JetStreamMsg], AbstractContextManager[Any]] | None = None,
    ) -> None:
        check_optional_callable(connect, "connect")
        check_optional_callable(on_error, "on_error")
        check_optional_callable(around, "around")
        self._stream = stream
        self._connect = connect
        self._retry = retry or Retry(attempts=None, factor=2, max_delay=600, jitter=0.1)
        self._on_error = on_error
        self._around = around
        self._routes: list[Route] = []
        self._starts: list[Callable[[JetStream], object]] = []
        self._stops: list[Callable[[], object]] = []

    def handle(
        self,
        subject: str | Sequence[str],
        /,
        *,
        consumer: str | None = None,
        group: str | None = None,
        member: str | None = None,
        stream: str | None = None,
        workers: int = 1,
        payload: Any = None,
        retry: Retry | None = None,
        time_limit: Seconds | None = None,
        max_messages: int | None = None,
        ack_wait: Seconds | None = None,
    ) -> Callable[[_Function], _Function]:
        """Decorate a function that handles the messages of a subject.

        The function takes the payload, the message, or both. The message is the parameter
        with the annotation `JetStreamMsg`, or the one without an annotation. Several threads
        may call the function at the same time. While it runs, the worker requests more time
        from the server, so a handler may take longer than `ack_wait`.

        Args:
            subject: The subject, or a list of them. Wildcards are allowed.
            consumer: The durable consumer. It is created if it does not exist.
            group: A consumer group, instead of `consumer`: the messages of each key are
                handled one at a time and in order. The group has to exist, and each
                process is one of its members. `subject` has the subjects of the group.
            member: The name of the member. Default: the name of the machine and the number
                of the process, such as `host-0`. The worker adds the member to an elastic
                group, and never drops it.
            stream: The stream of the consumer. Default: the stream of the worker.
            workers: The number of threads of each process. 1 for a group.
            payload: The type of the payload: `bytes`, `str`, a type that msgspec reads
                from JSON, or a codec such as `jsync.MsgPack(Order)`. Default: the
                annotation of the parameter for the payload. If a payload cannot be decoded and there
                is a `dead_letter`, the message becomes a dead letter immediately.
            retry: The policy for failed messages. Default: the policy of the worker.
            time_limit: Seconds after which a call counts as failed. The thread of the call
                stays busy until the function returns. In a group the message stays with the
                call as well, because another member would otherwise handle the same key at the
                same time: `on_error` gets a `HandlerTimeoutError`, and the message is
                acknowledged or retried when the function returns or raises.
            max_messages: The messages that each process holds at most: those that its
                threads handle, and those that wait for a thread. Default: one for each
                thread, so that none waits. With more, handlers of a few milliseconds are
                faster. The worker requests more time from the server for messages that wait, too.
            ack_wait: The `ack_wait` in seconds, if the worker creates the consumer, or
                joins a group.

        Returns:
            The decorator. It returns the function unchanged, so you can call it in tests.

        Raises:
            ConfigError: An argument, or the signature of the function, is not valid.

        Example:
            ```python
            app = jsync.Worker(stream="ORDERS")

            @app.handle("orders.new", consumer="billing", workers=8, time_limit=60)
            def bill(order: dict) -> None:
                print("bill order", order["id"])
            ```
        """
        if callable(subject):
            raise ConfigError(
                "handle needs a subject and a consumer: "
                '@app.handle("orders.new", consumer="billing")'
            )

        def add(function: _Function) -> _Function:
            found = make_route(
                function,
                subject,
                around=self._around,
                stream=self._stream if stream is None else stream,
                consumer=consumer,
                group=group,
                member=member,
                workers=workers,
                payload=payload,
                retry=retry or self._retry,
                time_limit=time_limit,
                max_messages=max_messages,
                ack_wait=ack_wait,
            )
            names = {(other.stream, other.consumer) for other in self._routes}
            if (found.stream, found.consumer) in names:
                raise ConfigError(
                    f"consumer {consumer!r} has a handler already: give each handler a "
                    "consumer of its own"
                )
            self._routes.append(found)
            return function

        return add

    def on_start(self, function: _Function) -> _Function:
        """Decorate a function that runs before the first message, with the `JetStream`.

        The functions run in the order of their definition. If one raises, the worker does
        not start.

        Args:
            function: The function. It takes the `JetStream`.

        Returns:
            The function unchanged.

        Example:
            ```python
            app = jsync.Worker(stream="ORDERS")
            pool = []

            @app.on_start
            def open_pool(js: jsync.JetStream) -> None:
                pool.append("a connection to a database")
            ```
        """
        check_callable(function, "on_start")
        self._starts.append(function)
        return function

    def on_stop(self, function: _Function) -> _Function:
        """Decorate a function that runs after the last message, without arguments.

        The functions run in the reverse order of their definition, also after a failed
        start. If one raises, the worker logs the exception and goes on.

        Args:
            function: The function. It takes no arguments.

        Returns:
            The function unchanged.

        Example:
            ```python
            app = jsync.Worker(stream="ORDERS")
            pool = ["a connection to a database"]

            @app.on_stop
            def close_pool() -> None:
                pool.clear()
            ```
        """
        check_callable(function, "on_stop")
        self._stops.append(function)
        return function

    def connect(self, default: Callable[[], Connection] = connect_to) -> Connection:
        """Connect with the `connect` of this worker, or with `default`. Blocks.

        Args:
            default: Called without arguments if the worker has no `connect`.

        Returns:
            The connection.

        Raises:
            Error: The connection cannot be made, as in `jsync.connect`.
        """
        return (self._connect or default)()

    def start(self, nc: Connection, js: JetStream | None = None) -> RunningWorker:
        """Start to handle messages on a connection.

        Blocks until every consumer exists and its handler can run.

        Args:
            nc: The connection. The worker does not close it.
            js: The context to use. Default: `nc.jetstream()`.

        Returns:
            The running worker. Leave its `with` block, or call `stop`, to end it.

        Raises:
            ConfigError: There is no handler, a consumer does not fit its retry policy, no
                stream takes the dead letters, or a group has as many members as partitions.
            FilterMismatchError: An existing consumer, or a group, has other subjects than
                its handler, or the stream does not store the subject of a handler.
            ConsumerGroupNotFoundError: A group does not exist.
            StreamNotFoundError: The stream of a handler does not exist.

        Example:
            ```python
            import threading

            app = jsync.Worker(stream="ORDERS")
            done = threading.Event()

            @app.handle("orders.new", consumer="billing")
            def bill(order: dict) -> None:
                print("bill order", order["id"])
                done.set()

            with app.start(nc):
                done.wait(10)
            ```
        """
        if not self._routes:
            raise ConfigError("the worker has no handler: decorate one with handle")
        return RunningWorker(
            nc,
            js or nc.jetstream(),
            self._routes,
            self._starts,
            self._stops,
            self._on_error,
        )

    def run(self, *, grace: Seconds = 30.0) -> None:
        """Connect, handle messages until SIGTERM or SIGINT (Ctrl-C), and drain. Blocks.

        Call `run` on the main thread of your program. The functions of `on_start` and
        `on_stop` run on other threads. A second signal ends the wait for the handlers, or
        for a function of `on_start` that does not end. While no server answers, `run`
        retries indefinitely, and logs a warning each time.

        Args:
            grace: Seconds for the handlers to end after the signal. Before the worker has
                started, seconds for the functions of `on_start`.

        Raises:
            AuthenticationError: The server refused the credentials. `TLSError` and
                `ProtocolError` are not retried either.
            ConfigError: The worker cannot start, as in `start`.
            ConsumerDeletedError: A consumer was deleted.
            ConnectionClosedError: The connection was closed.
            DrainTimeoutError: The handlers did not return in time. The server delivers
                their messages again.
        """
        run(self.connect, self.start, check_seconds(grace, "grace"))

    def __repr__(self) -> str:
        names = ", ".join(f"{route.stream}.{route.consumer}" for route in self._routes)
        return f"<Worker of {names or 'nothing'}>"


class RunningWorker(CloseOnExit, NotCopyable):
    """A worker that handles messages. `Worker.start` returns it. Any thread may use it.

    Example:
        ```python
        app = jsync.Worker(stream="ORDERS")

        @app.handle("orders.new", consumer="billing")
        def bill(data: bytes) -> None:
            print(data)

        with app.start(nc) as running:
            running.stop(grace=10)
        ```
    """

    def __init__(
        self,
        nc: Connection,
        js: JetStream,
        routes: Sequence[Route],
        starts: Sequence[Callable[[JetStream], object]],
        stops: Sequence[Callable[[], object]],
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._nc, self._js = nc, js
        self._stops = list(reversed(stops))
        self._on_error = on_error
        self._calls: list[HandlerRunner] = []
        self._sources: list[RouteSource] = []
        self._confirmed: dict[RouteSource, Confirmation] = {}
        """The last confirmation of each source that it exists."""
        self._lags: dict[RouteSource, tuple[int, int]] = {}
        """The last known lag of each source."""
        self._running: list[ConsumeContext] = []
        self._stranded: list[MaxDeliveriesListener] = []
        self._finished = Latch(nc._session.write_buffer)
        self._error: Exception | None = None
        self._clock_over = threading.Event()
        self._lock = ForkSafeRLock()
        self._stopped = False
        self._stopper: threading.Thread | None = None
        try:
            for start in starts:
                start(js)
            for route in routes:
                self._prepare(route)
            for source in self._sources:
                source.admit()
            for call, source in zip(self._calls, self._sources, strict=True):
                self._begin(call, source)
            self._start_clock()
            self._thread("confirm", self._confirm)
            for route in routes:
                logger.info(
                    "%s handles %s: %s %s of %s, threads: %d",
                    route.name,
                    ", ".join(route.subjects),
                    "consumer" if route.group is None else "group",
                    route.consumer,
                    route.stream,
                    route.workers,
                )
        except BaseException:
            with contextlib.suppress(DrainTimeoutError):
                self.stop(0)
            for source in self._sources:
                with contextlib.suppress(Error):
                    source.withdraw()
            raise

    # The start ------------------------------------------------------------------------

    def _prepare(self, of: Route) -> None:
        requested_at = monotonic()
        source = open_source(self._js, of)
        confirmed = self._confirmed[source] = Confirmation(READY_SECONDS)
        confirmed.confirm(requested_at)
        config = source.config
        policy = of.retry
        if policy.dead_letter is not None:
            self._check_dead_letter(of, policy.dead_letter)
            assert isinstance(policy.give_up_on, tuple)
            policy = replace(
                policy, give_up_on=(*policy.give_up_on, InvalidPayloadError)
            )
        interval = extension_interval(config.backoff, config.ack_wait)
        call = HandlerRunner(of, interval, self._report)
        call.retrier = RetryHandler(
            self._nc._session, policy, config, 5.0, self._report, call.record_outcome
        )
        self._calls.append(call)
        self._sources.append(source)
        if policy.dead_letter is not None and of.group is None:
            # Also without a `max_deliver`, since another program may set it later.
            stream = self._js.stream(of.stream)
            stranded = MaxDeliveriesListener(
                *(
                    self._js,
                    stream,
                    of,
                    call.retrier,
                    self._report,
                    call.record_outcome,
                ),
                handles=call.has,
            )
            self._stranded.append(stranded)
            self._thread("stranded", stranded.run)

    def _check_dead_letter(self, of: Route, subject: str) -> None:
        try:
            taker = self._js.stream_name_by_subject(subject)
        except StreamNotFoundError:
            raise ConfigError(
                f"no stream takes {subject!r}, the subject of the dead letters of "
                f"{of.name}; create one"
            ) from None
        if taker == of.stream:
            raise ConfigError(
                f"stream {taker!r} takes {subject!r}, the subject of its own dead letters; "
                "choose a subject of another stream"
            )

    def _begin(self, call: HandlerRunner, source: RouteSource) -> None:
        running = source.begin(call, self._forward)
        self._running.append(running)

        def watch() -> None:
            try:
                running.wait()
            except Error as error:
                self._ended(error)

        self._thread("end", watch)

    def _start_clock(self) -> None:
        def tick() -> float:
            waits = [call.interval for call in self._calls]
            waits += [call.route.time_limit or _MAX_TICK for call in self._calls]
            return min(_MAX_TICK, max(_MIN_TICK, min(waits) / 4))

        def run() -> None:
            while not self._clock_over.wait(tick()):
                if self._nc.is_closed and not self._stopped:
                    # A drain ends the handlers without an error.
                    self._ended(self._nc._session.closed_error())
                now = monotonic()
                for call in self._calls:
                    try:
                        call.check(now)
                    except Exception:
                        # The other calls still need the clock: no more threads, perhaps.
                        logger.exception("%s: the clock failed", call.route.name)

        self._thread("clock", run)

    def _confirm(self) -> None:
        """Check regularly whether each consumer, or membership, still exists."""
        while not self._clock_over.wait(CONFIRM_SECONDS):
            for call, source in zip(self._calls, self._sources, strict=True):
                confirmed, before = self._confirmed[source], source.config
                requested_at = monotonic()
                try:
                    exists = source.confirm()
                except Error:
                    continue  # unknown, so the last answer stays valid for its time
                if source.config != before:
                    self._adapt(call, source.config)
                if exists and call.gets_its_subjects:
                    confirmed.confirm(requested_at)
                elif exists is not None:
                    confirmed.revoke()

    def _adapt(self, call: HandlerRunner, config: ConsumerConfig) -> None:
        """Apply the configuration of a consumer that another program has changed.

        The worker goes on, because a new version of it may be about to replace it. It is not
        ready if the consumer has other subjects.
        """
        call.interval = extension_interval(config.backoff, config.ack_wait)
        try:
            call.retrier.adapt(config)
        except ConfigError as error:
            self._report(error)
        call.gets_its_subjects = True
        try:
            check_subjects(call.route, config)
        except FilterMismatchError as error:
            call.gets_its_subjects = False
            self._report(error)

    def _thread(self, name: str, run: Callable[[], object]) -> None:
        self._nc._session.thread_factory.start(f"jsync-worker-{name}", run)

    # While it runs --------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """True while the worker is connected, handles messages, and has all its consumers.

        The worker checks each consumer, and for a group its membership, every 5 seconds. An
        answer is valid for 15 seconds, so `ready` is at most that late. Does not block.
        """
        now = monotonic()
        return (
            not self._stopped
            and self._nc.is_connected
            and not any(running.closed for running in self._running)
            and all(route.holds(now) for route in list(self._confirmed.values()))
        )

    def report(self, *, lag: bool = False) -> WorkerReport:
        """Return the counts so far, by `STREAM.CONSUMER`, and the lag that is known.

        Args:
            lag: Request the lag of each consumer from the server. This blocks. Otherwise the
                last reply counts. After a failed request the lag is unknown.

        Returns:
            The counts of this process.
        """
        found = WorkerReport(ready=self.ready)
        for call, source in zip(self._calls, self._sources, strict=True):
            metrics = call.metrics()
            if lag:
                try:
                    self._lags[source] = source.lag()
                except Error:
                    self._lags.pop(source, None)
            if source in self._lags:
                metrics.pending, metrics.ack_pending = self._lags[source]
            found.consumers[f"{call.route.stream}.{call.route.consumer}"] = metrics
        return found

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Block until the worker has ended.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            True if the worker has ended, False after `timeout`.

        Raises:
            ConsumerDeletedError: A consumer was deleted.
            ConnectionClosedError: The connection was closed.
            BlockingCallError: A handler, or a function of `on_stop`, itself called `wait`.
        """
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        if any(call.is_current for call in self._calls):
            raise BlockingCallError(
                "the handler would wait for itself: return from it, or call stop()"
            )
        stops_here = self._stopper is threading.current_thread()
        if stops_here and not self._finished.is_set:
            raise BlockingCallError(
                "the thread that stops the worker would wait for itself: return from the "
                "function of on_stop, or from the signal handler"
            )
        done = self._finished.wait(timeout)
        if done and self._error is not None:
            raise self._error
        return done

    def _report(self, error: Exception) -> None:
        logger.warning("%s: %s", type(error).__name__, error)
        # On the callback thread: an exception in user code must not end a thread of the
        # worker.
        self._nc._session.callbacks.submit(self._on_error, error)

    def _forward(self, error: Exception) -> None:
        """Pass an error of `consume`, which is logged already, to `on_error`.

        Runs on the callback thread.
        """
        if self._on_error is not None:
            self._on_error(error)

    # The end --------------------------------------------------------------------------

    def stop(self, grace: Seconds = 30.0) -> None:
        """Stop pulling, let the handlers finish the prefetched messages, and end. Blocks.

        After `grace` seconds, the worker gives waiting messages back to the server. If a
        handler is still running then, the server delivers its message again after
        `ack_wait`. A handler of the worker itself may call `stop`, which then does not
        wait for it: `on_error` gets a `DrainTimeoutError`, and `wait` returns at the end.
        A second call on another thread waits for the first one, for at most its own
        `grace`. A signal handler or a hook of `on_stop` that runs within the first call
        does not wait.

        Args:
            grace: Seconds to wait for the handlers.

        Raises:
            DrainTimeoutError: Handlers did not return in time.
        """
        seconds = check_seconds(grace, "grace")
        if any(call.is_current for call in self._calls):
            self._thread("stop", partial(self._stop_for_handler, seconds))
        else:
            self._stop(seconds)

    def _stop_for_handler(self, grace: float) -> None:
        try:
            self._stop(grace)
        except DrainTimeoutError as error:
            self._report(error)

    def _stop(self, grace: float) -> None:
        deadline = monotonic() + grace
        first = False
        late: list[Exception] = []
        ends: list[Latch] = []
        try:
            with self._lock:
                first, self._stopped = not self._stopped, True
                if first:
                    self._stopper = threading.current_thread()
            for running in self._running if first else ():
                over = Latch(self._nc._session.write_buffer)
                drain = partial(_drain, running, deadline, late, over)
                try:
                    self._thread("drain", drain)
                except RuntimeError:  # no thread could be started: drain on this one
                    drain()
                ends.append(over)
            for over in ends:
                over.wait(None)
            if not first and threading.current_thread() is not self._stopper:
                self._await_stop(grace)
        finally:  # Ctrl-C does not leave other threads in `wait`
            if first:
                self._finish()
        if late:
            raise DrainTimeoutError(
                f"handlers have not returned within {format_seconds(grace)}; the server delivers their "
                "messages again"
            )

    def _await_stop(self, grace: float) -> None:
        """Wait for the thread that stops the worker."""
        if not self._finished.wait(grace):
            raise DrainTimeoutError(
                f"another thread has not stopped the worker within {format_seconds(grace)}"
            )

    def _finish(self) -> None:
        self._clock_over.set()
        try:
            for stranded in self._stranded:
                stranded.close()
            for stop in self._stops:
                try:
                    stop()
                except Exception:
                    logger.exception("%r raised", stop)
        finally:
            self._ended(None)

    def _ended(self, error: Exception | None) -> None:
        """Wake all callers of `wait`. Only the first call has an effect."""
        with self._lock:
            if not self._finished.is_set:
                self._error = error
                self._finished.set()

    def close(self) -> None:
        """Stop, with 30 seconds of grace."""
        self.stop()

    def _end_nowait(self) -> None:
        self._thread("stop", partial(self._stop_for_handler, 30.0))

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else "at work"
        return (
            f"<RunningWorker {state}, {sum(c.in_flight for c in self._calls)} in hand>"
        )


def _drain(
    running: ConsumeContext, deadline: float, late: list[Exception], over: Latch
) -> None:
    try:
        running.drain(max(0.0, deadline - monotonic()))
    except DrainTimeoutError:
        try:
            running.stop(0)
        except DrainTimeoutError as error:
            late.append(error)
    except Error:
        pass  # the handler has ended before, and `wait` raises the error
    finally:
        over.set()
