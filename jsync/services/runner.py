"""A running service: its subscriptions, its threads, and its end.

Handlers run only on the threads of their endpoint. Another thread answers PING, INFO and
STATS, so that user code cannot block these answers.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from datetime import UTC, datetime
from functools import partial
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any

import msgspec

from .. import errors
from .._fast import Mailbox
from ..core.callbacks import as_callback_error, call_with_timeout
from ..core.drain import Drainable
from ..core.session import SubscriptionEntry
from ..core.state import StateMachine
from ..core.sync import ForkSafeRLock, Latch
from ..errors import (
    BlockingCallError,
    ConnectionClosedError,
    DrainTimeoutError,
    Error,
    InvalidPayloadError,
    ServiceError,
    SubscriptionClosedError,
)
from ..validation import format_seconds
from .engine import (
    TRANSITIONS,
    EndpointCounters,
    ServiceState,
    control_subjects,
    sanitize_error,
)
from .messages import ServicePing, ServiceStats
from .request import Request

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from .._fast import Msg
    from ..core.session import Session
    from .bound_handler import BoundHandler
    from .engine import ThreadCounters
    from .messages import EndpointInfo, EndpointStats, ServiceInfo

MAX_PENDING_CONTROL = 10_000
"""The number of PING, INFO and STATS requests that may wait for an answer."""
STATS_SECONDS = 1.0
"""Seconds that the `stats_handler` may take for an answer to STATS."""

OVERLOADED = ServiceError(503, "overloaded: too many requests are waiting")
STOPPING = ServiceError(503, "stopping: the request was not begun")


class EndpointRunner:
    """An endpoint with its waiting requests, its threads, and its statistics."""

    def __init__(
        self,
        driver: ServiceRunner,
        info: EndpointInfo,
        bound: BoundHandler,
        workers: int,
        max_messages: int,
        max_bytes: int,
    ) -> None:
        session = driver.session
        self.info = info
        self._service = driver
        self._call = bound.call
        self._workers = workers
        self._counters = EndpointCounters()
        # Re-entrant: a signal handler may interrupt a call and read the statistics.
        self._lock = ForkSafeRLock()
        sid = session.next_sid()

        def mailbox(readers: int) -> Mailbox:
            return Mailbox(
                session.write_buffer,
                sid,
                max_messages=max_messages,
                max_bytes=max_bytes,
                readers=readers,
            )

        self.mailbox = mailbox(workers)
        self.mailbox.alone = workers == 1
        self._overflow = self.mailbox.overflow = mailbox(1)
        self._overflow.on_first = self._start_rejecting
        self._interest = SubscriptionEntry(
            sid,
            info.subject,
            info.queue_group or None,
            self.mailbox,
            on_closed=driver.on_closed,
        )

    def start_threads(self) -> None:
        """Start the threads that wait for requests."""
        for number in range(1, self._workers + 1):
            name = f"{self.info.name}-{number}"
            self._service.start(name, self._work, self.mailbox)

    def subscribe(self) -> None:
        """Subscribe to the subject of the endpoint."""
        self._service.session.subscribe(self._interest)

    def stop_delivery(self) -> None:
        """Unsubscribe on the server."""
        self._service.session.stop_delivery(self._interest.sid)

    def close(self) -> None:
        """Accept no more requests. Waiting ones are still handled."""
        self.mailbox.close()
        self._overflow.close()
        self._service.session.unsubscribe(self._interest.sid)

    def drop(self) -> int:
        """Drop the waiting requests, which cannot be answered. Return their number."""
        dropped = len(self.mailbox) + len(self._overflow)
        self.mailbox.close(discard=True)
        self._overflow.close(discard=True)
        return dropped

    def reject_pending(self) -> int:
        """Reject the waiting requests. Return their number."""
        rest, work = self.mailbox.take_rest(), self._thread_counters()
        for msg in rest:
            self._reject(work, STOPPING, msg)
        return len(rest)

    # Statistics -----------------------------------------------------------------------

    def stats(self) -> EndpointStats:
        with self._lock:
            return self._counters.stats(self.info)

    def reset(self) -> None:
        with self._lock:
            self._counters.reset()

    def failed(self, error: ServiceError) -> None:
        """Count an error that was sent as an answer."""
        with self._lock:
            self._counters.failed(error)

    # The threads ----------------------------------------------------------------------

    def _thread_counters(self) -> ThreadCounters:
        with self._lock:
            return self._counters.add_thread()

    def _work(self, mailbox: Mailbox) -> None:
        mailbox.hand_over(
            partial(self._handle, self._thread_counters()), self._reply_failed
        )

    def _handle(self, work: ThreadCounters, msg: Msg) -> None:
        answer = failure = None
        work.requests += 1
        request = Request(msg, self.failed)
        started_at = monotonic_ns()
        try:
            answer = self._call(request)
        except ServiceError as error:
            failure = error
        except InvalidPayloadError as error:
            failure = ServiceError(400, str(error))
        except BaseException as error:  # noqa: BLE001 (SystemExit would end the thread)
            failure = self._sanitize_error(msg, error)
        # Count before the answer, so that its receiver finds the request counted.
        work.nanoseconds += monotonic_ns() - started_at
        if request.answered_error:
            return  # the client would take a second answer for one to another request
        if failure is not None:
            self._fail(msg, failure, counted=request.counted_error)
        elif answer is not None and msg.reply is not None:
            try:
                msg.respond(answer)
            except Exception as error:  # noqa: BLE001 (MaxPayloadError for one)
                self._fail(msg, self._sanitize_error(msg, error))

    def _sanitize_error(self, msg: Msg, error: BaseException) -> ServiceError:
        self._service.report(
            as_callback_error(f"the handler of {msg.subject!r}", error)
        )
        return sanitize_error(error, self._service.expose_errors)

    def _fail(self, msg: Msg, error: ServiceError, *, counted: bool = False) -> None:
        if not counted:
            self.failed(error)
        if msg.reply is None:
            return
        try:
            msg.respond(error.data, headers=error.headers)
        except Exception as unsent:  # noqa: BLE001 (data may be too large, or not bytes)
            self._reply_failed(msg, unsent)
            with contextlib.suppress(Error):
                msg.respond(headers=error.headers)

    def _reply_failed(self, msg: Msg, error: BaseException) -> None:
        self._service.report(as_callback_error(f"the answer to {msg.subject!r}", error))

    def _start_rejecting(self) -> None:
        self._service.start_or_retry(
            f"{self.info.name}-full", self._reject_overflow, self._overflow
        )

    def _reject_overflow(self, mailbox: Mailbox) -> None:
        refuse = partial(self._reject, self._thread_counters(), OVERLOADED)
        mailbox.hand_over(refuse, self._reply_failed)

    def _reject(self, work: ThreadCounters, error: ServiceError, msg: Msg) -> None:
        work.requests += 1
        self._fail(msg, error)


class ServiceRunner(Drainable):
    """The state of a service, with its endpoints, subscriptions and threads."""

    def __init__(
        self,
        session: Session,
        info: ServiceInfo,
        prefix: str,
        *,
        stats_handler: Callable[[EndpointStats], object] | None,
        on_done: Callable[[ServiceRunner], object],
        expose_errors: bool,
        around: Callable[[Request], AbstractContextManager[Any]] | None,
    ) -> None:
        self.session = session
        self.expose_errors = expose_errors
        self.around = around
        self.error: Exception | None = None
        """The error that ended the service, or the one that `stop` got."""
        self._info = info.replace(id=secrets.token_hex(11))
        self._started = _now()
        self._stats_handler = stats_handler
        self._stuck = False
        self._on_done = on_done
        self._endpoints: list[EndpointRunner] = []
        self._threads: set[threading.Thread] = set()
        """The running threads. Each answer to a PING may have started one."""
        self._open = True
        self._unfinished: set[Callable[[], None]] = set()
        """The work of each thread that was started and has not ended."""
        # Re-entrant: a signal handler may interrupt a call and stop the service.
        self._lock = ForkSafeRLock()
        self._state = StateMachine(ServiceState.RUNNING, TRANSITIONS, self._lock)
        self._done = Latch(session.write_buffer)
        self._verbs = control_subjects(prefix, info.name, self._info.id)
        self._control_mailboxes: list[Mailbox] = []
        self._controls: list[SubscriptionEntry] = []
        self._finisher: threading.Thread | None = None
        """The thread that calls `on_done`."""

    def start_control(self) -> None:
        """Answer PING, INFO and STATS. A `stats_handler` can delay only STATS."""
        apart = {"STATS"} if self._stats_handler is not None else set[str]()
        for name, verbs in (
            ("control", {"PING", "INFO", "STATS"} - apart),
            ("stats", apart),
        ):
            subjects = [
                subject for subject, verb in self._verbs.items() if verb in verbs
            ]
            if not subjects:
                continue
            sids = [self.session.next_sid() for _ in subjects]
            mailbox = Mailbox(
                self.session.write_buffer, sids[0], max_messages=MAX_PENDING_CONTROL
            )
            mailbox.on_first = partial(self._start_control, name, mailbox)
            self._control_mailboxes.append(mailbox)
            for sid, subject in zip(sids, subjects, strict=True):
                interest = SubscriptionEntry(
                    sid, subject, None, mailbox, on_closed=self.on_closed
                )
                self._controls.append(interest)
                self.session.subscribe(interest)

    @property
    def id(self) -> str:
        return self._info.id

    def add(
        self,
        info: EndpointInfo,
        bound: BoundHandler,
        workers: int,
        max_messages: int,
        max_bytes: int,
    ) -> None:
        """Start an endpoint. Does not block."""
        self.session.write_buffer.check_process()
        self._check_running()
        endpoint = EndpointRunner(self, info, bound, workers, max_messages, max_bytes)
        try:
            endpoint.start_threads()
            with self._lock:
                self._endpoints.append(endpoint)
                endpoint.subscribe()
                # Check again: a signal handler may have stopped the service meanwhile.
                self._check_running()
        except BaseException:
            if endpoint in self._endpoints:  # not if Ctrl-C came before
                self._endpoints.remove(endpoint)
            endpoint.close()
            raise

    def _check_running(self) -> None:
        if self.state is not ServiceState.RUNNING:
            raise SubscriptionClosedError(
                f"{self!r} cannot add an endpoint: it is not running"
            )

    def start(
        self, name: str, run: Callable[[Mailbox], object], mailbox: Mailbox
    ) -> None:
        """Start a thread that reads `mailbox` to its end."""

        def work() -> None:
            self._threads.add(threading.current_thread())
            try:
                run(mailbox)
            except Error as error:
                # After a fork, the connection belongs to the parent process.
                self.report(error)
            finally:
                self._thread_ended(work)
                self._threads.discard(threading.current_thread())

        try:
            self._unfinished.add(work)
            self.session.thread_factory.start(f"{self.session.name}-{name}", work)
        except BaseException:
            self._thread_ended(work)
            raise

    def start_or_retry(
        self, name: str, run: Callable[[Mailbox], object], mailbox: Mailbox
    ) -> None:
        """Like `start`, but retry while the system has no more threads."""
        self.session.start_or_retry(
            name, partial(self.start, name, run, mailbox), self.report
        )

    def report(self, error: Exception) -> None:
        """Pass an error to `on_error` of the connection."""
        self.session.callbacks.report(error)

    # Answers to PING, INFO and STATS --------------------------------------------------

    def ping(self) -> ServicePing:
        info = self._info
        return ServicePing(
            name=info.name, id=info.id, version=info.version, metadata=info.metadata
        )

    def info(self) -> ServiceInfo:
        return self._info.replace(
            endpoints=[endpoint.info for endpoint in list(self._endpoints)]
        )

    def stats(self, data: Callable[[EndpointStats], Any] | None = None) -> ServiceStats:
        """Return the statistics, with the result of `data` for each endpoint."""
        info = self._info
        endpoints = [endpoint.stats() for endpoint in list(self._endpoints)]
        if data is not None:
            endpoints = [stats.replace(data=data(stats)) for stats in endpoints]
        return ServiceStats(
            name=info.name,
            id=info.id,
            version=info.version,
            metadata=info.metadata,
            started=self._started,
            endpoints=endpoints,
        )

    def stats_now(self) -> ServiceStats:
        """Return the statistics. The `stats_handler` runs on the calling thread."""
        return self.stats(self._stats_handler and self._data)

    def _data(self, stats: EndpointStats) -> Any:
        assert self._stats_handler is not None
        try:
            return msgspec.to_builtins(self._stats_handler(stats))
        except Exception as error:  # noqa: BLE001 (user code)
            self.report(as_callback_error("the stats_handler", error))
            return None

    def reset(self) -> None:
        for endpoint in list(self._endpoints):
            endpoint.reset()
        self._started = _now()

    def _start_control(self, name: str, mailbox: Mailbox) -> None:
        """Start a thread that answers the waiting requests and then ends."""
        self.start_or_retry(name, partial(self._answer_control, name), mailbox)

    def _answer_control(self, name: str, mailbox: Mailbox) -> None:
        while True:
            for msg in mailbox.take_rest():
                try:
                    self._answer(msg)
                except BaseException as error:  # noqa: BLE001 (user code may be in it)
                    self._control_failed(msg, error)
            mailbox.on_first = partial(self._start_control, name, mailbox)
            # For a request that has come since `take_rest`, either this thread or another
            # one claims the mailbox.
            if not len(mailbox) or mailbox.claim_first() is None:
                return

    def _answer(self, msg: Msg) -> None:
        if msg.reply is None:
            return
        match self._verbs[msg.subject]:
            case "PING":
                reply: ServicePing | ServiceInfo | ServiceStats = self.ping()
            case "INFO":
                reply = self.info()
            case _:
                reply = self._bounded_stats()
        msg.respond(msgspec.json.encode(reply.to_wire()))

    def _control_failed(self, msg: Msg, error: BaseException) -> None:
        """Report an answer that could not be sent, and send an error instead.

        For example, the answer may be larger than the server accepts.
        """
        self.report(as_callback_error(f"the answer to {msg.subject!r}", error))
        with contextlib.suppress(Error):
            msg.respond(headers=sanitize_error(error, exposed=False).headers)

    def _bounded_stats(self) -> ServiceStats:
        """Return the statistics, without the `stats_handler` if it takes too long."""
        with self._lock:
            before, self._stuck = self._stuck, self._stats_handler is not None
        if before or self._stats_handler is None:
            return self.stats()

        def ask() -> ServiceStats:
            try:
                return self.stats_now()
            finally:
                self._stuck = False

        try:
            return call_with_timeout(
                STATS_SECONDS, self.session.thread_factory, "stats_handler", ask
            )
        except errors.TimeoutError as error:
            self.report(error)
            return self.stats()
        except RuntimeError as error:  # the system has no more threads
            self._stuck = False
            self.report(as_callback_error("starting the stats_handler", error))
            return self.stats()

    # The end --------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """The state of the service."""
        return self._state.current

    def stop(self, error: Exception | None, timeout: float) -> None:
        """Drain the service, and wait for its running handlers."""
        self.session.write_buffer.check_process()
        deadline = monotonic() + timeout
        self._transition(ServiceState.STOPPING, error)
        # Do this in a second call as well, since Ctrl-C may have interrupted the first.
        if self.state is not ServiceState.STOPPED:
            try:
                self._stop_delivery()
                self.session.ping(deadline)
            except errors.ConnectionError:
                pass  # a closed connection brings no more requests
            except errors.TimeoutError as late:
                raise DrainTimeoutError(
                    f"{self!r}: the server did not answer within {format_seconds(timeout)}"
                ) from late
            finally:
                self._end_reader()
        self._wait_finished(deadline, timeout)

    def _transition(self, state: ServiceState, error: Exception | None = None) -> bool:
        """Change the state. Return False if it was in that or a later state already."""
        with self._lock:
            if not self._state.try_to(state):
                return False
            self.error = self.error or error
        return True

    def _stop_delivery(self) -> None:
        """Tell the server to send no more. This is the first step of a drain."""
        for interest in list(self._controls):
            self.session.stop_delivery(interest.sid)
        for endpoint in list(self._endpoints):
            endpoint.stop_delivery()

    def _end_reader(self) -> None:
        """End the threads after the waiting requests, once all requests have arrived."""
        self._transition(ServiceState.STOPPING)
        for mailbox in self._control_mailboxes:
            mailbox.close()
        for interest in self._controls:
            self.session.unsubscribe(interest.sid)
        for endpoint in list(self._endpoints):
            endpoint.close()
        self._close()

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the handlers have returned, the last step of a drain.

        On a thread of the service it does not wait, nor while a handler drains the
        connection, because either would be a wait for itself.
        """
        if (
            self._is_finisher
            or self.session.is_drained_by(self._threads)
            or self._done.wait(max(0.0, deadline - monotonic()))
        ):
            return
        refused = sum(endpoint.reject_pending() for endpoint in list(self._endpoints))
        raise DrainTimeoutError(
            f"{self!r}: a handler has not returned within {format_seconds(timeout)}; {refused} requests "
            "were refused"
        )

    def abort(self) -> None:
        """End a service that could not be started. Does not call `on_done`."""
        with self._lock:
            self._on_done = _ignore
        self._end_reader()

    def on_closed(self, error: Exception) -> None:
        """End the service after the connection closed or a subscription was refused.

        Must not block, since it may run on the I/O thread.
        """
        if isinstance(error, ConnectionClosedError):
            self._transition(ServiceState.STOPPING, error)
            dropped = sum(endpoint.drop() for endpoint in list(self._endpoints))
            if dropped:
                self.report(
                    ConnectionClosedError(
                        f"{self!r}: {dropped} requests were not begun"
                    )
                )
            # Close on the callback thread, because `_close` may call user code.
            self.session.callbacks.submit_unbounded(self._close)
            return
        self.stop_in_background(error)

    def stop_in_background(self, error: Exception | None) -> None:
        """Stop the service on a thread of its own. Must not block."""

        def stop() -> None:
            try:
                self.stop(error, self.session.options.drain_timeout)
            except Error as late:
                self.report(late)

        name = f"{self.session.name}-stop"
        self.session.start_or_retry(
            name, partial(self.session.thread_factory.start, name, stop), self.report
        )

    def wait(self, timeout: float | None) -> bool:
        """Block until the service has ended, and raise the error that ended it."""
        self.session.write_buffer.check_process()
        if self.is_current:
            raise BlockingCallError(
                "a handler of the service would wait for itself: return, or call stop()"
            )
        if self._is_finisher and not self._done.is_set:
            raise BlockingCallError(
                "on_done would wait for itself: the service has ended once it returns"
            )
        done = self._done.wait(timeout)
        if done and self.error is not None:
            raise self.error
        return done

    @property
    def is_current(self) -> bool:
        """True if the caller runs on a thread of the service."""
        return threading.current_thread() in self._threads

    @property
    def _is_finisher(self) -> bool:
        return threading.current_thread() is self._finisher

    def _close(self) -> None:
        """Close the service, so that it ends with its last thread."""
        self._open = False
        self._stop_without_threads()

    def _thread_ended(self, work: Callable[[], None]) -> None:
        self._unfinished.discard(work)
        self._stop_without_threads()

    def _stop_without_threads(self) -> None:
        """Stop the service if it is closed and no thread is left."""
        stops = False
        try:
            with self._lock:
                if not self._open and not self._unfinished:
                    stops = self._transition(ServiceState.STOPPED)
            if stops:
                self._finisher = threading.current_thread()
                self._on_done(self)
        except BaseException as error:
            if not isinstance(error, Exception) and self._finisher not in self._threads:
                raise  # Ctrl-C in a call of `stop`
            self.session.callbacks.report_exception("on_done", error)
        finally:
            if stops:
                self._done.set()

    def __repr__(self) -> str:
        return f"<service {self._info.name} {self._info.version} {self.state.value}>"


def _ignore(_: ServiceRunner) -> None:
    """Do nothing, instead of `on_done`, for a service that could not be started."""


def _now() -> datetime:
    """Return the time with microseconds, since nats-py cannot read one without."""
    now = datetime.now(UTC)
    return now if now.microsecond else now.replace(microsecond=1)
