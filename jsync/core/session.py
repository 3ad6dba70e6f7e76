"""The state that a connection's I/O thread shares with the threads of its callers.

The session keeps the connection state, the subscriptions and the waiting threads. The
`io_thread` moves the bytes, and reports to the session when the connection is made or
lost. Neither refers to the public `Connection`, so that a forgotten one can be collected.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from .. import errors
from .._fast import (
    IOLoop,
    JetStreamMailbox,
    Mailbox,
    ReplyMux,
    Sink,
    Waiter,
    Waker,
    WriteBuffer,
    forks,
)
from ..errors import (
    ConnectionClosedError,
    ConnectionLostError,
    Error,
    PermissionsError,
    SubscriptionLimitError,
)
from .callback_pool import CallbackPool
from .callbacks import CallbackExecutor, ThreadFactory, as_callback_error
from .drain import Drainable, drain_all
from .events import Closed, Connected, Disconnected, Reconnected
from .protocol import (
    ServerInfo,
    queue_of_violation,
    subscribe_command,
    unsubscribe_command,
)
from .subscription_limit import UNCERTAIN, refused_subscriptions
from .sync import AtomicCounter, ForkSafeRLock, WeakCollection
from .timers import Timer, Timers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .network_stream import NetworkStream
    from .options import Options
    from .server_address import ServerAddress
    from .server_pool import ServerPool
    from .sync import Latch

logger = logging.getLogger("jsync.connection")

CLOSE_SECONDS = 1.0
"""Seconds that `close` waits for the server to read all, and for the thread to end."""

NO_THREAD_SECONDS = 0.5
"""Seconds before the start of a thread is retried, if the system had no more threads."""

MAX_IDLE_INBOXES = 16
"""The most unused subscriptions that are kept for later pulls."""

MAX_COMMANDS = 32
"""The number of commands, SUB and UNSUB, after which a PING tells which were not refused."""

JUDGED_SECONDS = 0.002
"""Seconds between looks for the PONG after which the server has refused no more of them."""

_DISCARD = Sink()
_session_numbers = AtomicCounter()
_open_sessions: set[Session] = set()


class ConnectionState(Enum):
    """The state of a connection.

    Example:
        ```python
        if nc.state is not jsync.ConnectionState.CONNECTED:
            print("not connected:", nc.last_error)
        ```
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    CLOSED = "closed"


@dataclass(slots=True)
class SubscriptionEntry:
    """A subscription on the server, which is repeated after each reconnect."""

    sid: int
    subject: str
    queue: str | None
    sink: Sink
    expected: int = 0
    """The number of messages after which the server unsubscribes. 0: never."""
    silenced: bool = False
    """True while it is drained: the server was told to send no more."""
    on_lost: Callable[[ConnectionLostError], object] | None = None
    """Called on the I/O thread when the connection breaks. It must not block."""
    on_connected: Callable[[], object] | None = None
    """Called on the I/O thread when the connection is made again. It must not block."""
    on_permission_error: Callable[[PermissionsError], object] | None = None
    """Called on the I/O thread when a publish was refused. It must not block."""
    on_closed: Callable[[Exception], object] | None = None
    """Called when no message can arrive any more, because the connection is closed or the
    subscription was refused. It must not block."""
    describe: Callable[[], str] | None = None
    """Returns a name for errors, used instead of the subject. It must not block."""

    @property
    def has_ended(self) -> bool:
        """True if the server has ended it, because all expected messages have come."""
        delivered = self.sink.delivered if isinstance(self.sink, Mailbox) else 0
        return 0 < self.expected <= delivered

    def commands(self) -> bytes:
        if self.silenced:
            return b""
        command = subscribe_command(self.subject, self.queue, self.sid)
        if self.expected:
            delivered = self.sink.delivered if isinstance(self.sink, Mailbox) else 0
            left = max(1, self.expected - delivered)
            command += unsubscribe_command(self.sid, left)
        return command


@dataclass(slots=True)
class RefusedCommands:
    """Commands of which the server has refused some, because of its limit."""

    commands: list[int]
    pong: Waiter
    """Done once the server has handled all of the commands."""
    count: int = 0
    """The rejections so far."""


class HasSession(Protocol):
    """The public `Connection`, as the objects that are built on it see it.

    A subscription or a pull refers to it, so that it is not collected while they are open.
    """

    @property
    def _session(self) -> Session:
        """The session of the connection."""


class ConnectionLoop(Protocol):
    """The I/O thread of a session, as the session sees it."""

    pool: ServerPool

    @property
    def servers(self) -> list[ServerAddress]:
        """The servers to connect to."""

    @property
    def is_current(self) -> bool:
        """True if the caller runs on the I/O thread."""

    @property
    def is_leaving(self) -> bool:
        """True after `force_reconnect`, until the server is left."""

    def reconnect(self) -> None:
        """Start the move to the next server. Does not wait."""

    def set_servers(self, servers: list[ServerAddress]) -> None:
        """Replace the servers of the pool soon. Does not wait."""

    def start(self) -> None:
        """Connect, and serve until `stop`."""

    def stop(self) -> None:
        """Close the connection and end the thread. Does not wait."""

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the thread. Return whether it has ended."""

    def close_fd(self) -> None:
        """Close the descriptor only, in a forked child."""


class Session:
    """One connection: its state, and the parts that every thread may use."""

    def __init__(
        self, options: Options, serve: Callable[[Session], ConnectionLoop]
    ) -> None:
        self.options = options
        self.name = f"jsync-{_session_numbers.next()}"
        # Re-entrant: a finaliser or a signal handler may interrupt a call and call any
        # method. No method blocks while it holds this lock.
        self.lock = ForkSafeRLock()
        self.state = ConnectionState.CONNECTING
        self.interests: dict[int, SubscriptionEntry] = {}
        self.idle_inboxes: list[SubscriptionEntry] = []
        """The unused subscriptions among `interests`, for `acquire_inbox`."""
        self._commands: list[int] = []
        """The last commands of this connection, as `refused_subscriptions` takes them."""
        self._accepted: tuple[Waiter, int] | None = None
        """Done once the server has handled so many of the commands."""
        self._rejections: RefusedCommands | None = None
        self._drainables: WeakCollection[Drainable] = WeakCollection()
        self._draining: set[threading.Thread] = set()
        self._is_draining = False
        self.drained = False
        """True once a drain has ended without an error."""
        self._drain_callbacks: dict[object, Callable[[float], object]] = {}
        """Calls that a drain makes at its end: for parts that were collected before, and
        for work that must follow the last handled message."""
        self.next_sid = AtomicCounter().next
        self._waiting: set[Waiter] = set()
        self._sleeping: set[Waiter] = set()
        self.close_commands: set[bytes] = set()
        """Commands that `close` writes, to leave nothing behind on the server."""
        self.closing = False
        """True once `close` writes `close_commands`. Nothing that needs one starts then."""

        self.info = ServerInfo()
        self.server: ServerAddress | None = None
        self.round_trip = inf
        """Seconds between the first PING of the connection and its PONG."""
        self.reconnects = 0
        self.slow_consumers = 0
        self.last_error: Exception | None = None
        self.error: Exception | None = None
        """The reason for the end of the connection, None if the user closed it."""

        try:
            self.waker = Waker()
        except OSError as error:
            raise errors.ConnectionError(f"cannot connect: {error.strerror}") from error
        try:
            self.write_buffer = WriteBuffer(
                self.waker.write_fd,
                options.write_buffer_size,
                options.reconnect_buffer_size,
                options.write_timeout,
            )
            self.io_loop = IOLoop(self.write_buffer, self.waker.read_fd)
            self.first_attempt = Waiter(self.write_buffer, local=True)
            """Done after the first connection, or once every server was tried in vain."""
            self.thread_factory = ThreadFactory()
            self.callbacks = CallbackExecutor(
                self.name,
                self.thread_factory,
                options.on_error,
                later=partial(self.call_later, NO_THREAD_SECONDS, offline=True),
            )
            self.write_buffer.reporter = self.report
            inbox = f"{options.inbox_prefix}.{os.urandom(11).hex()}"
            self.reply_mux = ReplyMux(f"{inbox}.")
            self.timers = Timers()
            self.deadlines = Timers()
            """Calls that are due even without a connection."""
            self.callback_pool = self._make_pool("")
            self.internal_pool = self._make_pool("-internal")
            """The pool of live views, on which no callback of the user blocks."""
            # One token more than replies have, so that their wildcard does not match.
            self.inbox = f"{inbox}.pull."
            """The subjects of pull subscriptions begin with this, and a sid follows."""
            self.io = serve(self)
        except BaseException:
            self.waker.close()
            raise
        self._forks = forks()

    def _make_pool(self, suffix: str) -> CallbackPool:
        return CallbackPool(
            self.name + suffix,
            self.write_buffer,
            self.thread_factory,
            self.options.callback_threads,
            later=partial(self.call_later, offline=True),
            soon=partial(self.call_soon, offline=True),
            retry=self._call_when_threads,
            report=self.report,
        )

    def __repr__(self) -> str:
        where = f" to {self.server.url}" if self.server else ""
        return f"<Session {self.name} {self.state.value}{where}>"

    @property
    def forked(self) -> bool:
        """True in a forked child process, where the I/O thread does not exist."""
        return forks() != self._forks

    @property
    def closed_by_user(self) -> bool:
        """True if the connection is closed, and not because of an error."""
        return self.state is ConnectionState.CLOSED and self.error is None

    def closed_error(self) -> Error:
        """Return the error for a call on a closed connection.

        If the connection was never open, it is the reason why `connect` failed.
        """
        if self.server is None and isinstance(self.error, Error):
            return self.error
        error = ConnectionClosedError(
            "the connection is closed" + (f": {self.error}" if self.error else "")
        )
        error.__cause__ = self.error
        return error

    def report(self, error: Exception) -> None:
        """Pass an error that no call can raise to `on_error`. Never blocks."""
        self.last_error = error
        self.callbacks.report(error)

    # Subscriptions --------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the connection is closed, or belongs to the parent process."""
        self.write_buffer.check_process()
        if self.state is ConnectionState.CLOSED:
            raise self.closed_error()

    def subscribe(
        self, interest: SubscriptionEntry, *, piggyback: bool = False
    ) -> None:
        """Register `interest` and send its SUB now, or at the next connect.

        With `piggyback`, the SUB is sent together with the write that follows.
        """
        try:
            with self.lock:
                if self.state is ConnectionState.CLOSED:
                    raise self.closed_error()
                self.interests[interest.sid] = interest
                self.io_loop.subscribe(interest.sid, interest.sink)
                self._log_command(interest.sid)
                self.write_buffer.command(interest.commands(), piggyback=piggyback)
        except BaseException:  # Ctrl-C, after which the caller cannot unsubscribe
            self.unsubscribe(interest.sid)
            raise

    def unsubscribe(self, sid: int, *, after: int = 0, deferred: bool = False) -> None:
        """End a subscription now, or once `after` messages in all have arrived."""
        with self.lock:
            interest = self.interests.get(sid)
            if interest is None:
                return
            if after:
                interest.expected = after
            else:
                self._log_unsubscribe(interest)
                interest.silenced = True
            self.write_buffer.command(
                unsubscribe_command(sid, after), deferred=deferred
            )
            if not after:  # last, so that a call that Ctrl-C interrupts can be repeated
                self.remove_subscription(sid)

    def on_auto_unsubscribed(self, sid: int) -> None:
        """End a subscription whose expected messages have all arrived.

        Send UNSUB only if the server does not know the number of expected messages.
        """
        interest = self.interests.get(sid)
        if interest is not None and not interest.expected:
            self.unsubscribe(sid, deferred=True)
        elif interest is not None:
            with self.lock:
                self._log_command(UNCERTAIN)
                self.remove_subscription(sid)

    def remove_subscription(self, sid: int) -> None:
        """Remove a subscription without UNSUB, because the server ends it as well."""
        with self.lock:
            self.io_loop.unsubscribe(sid)
            self.interests.pop(sid, None)

    def stop_delivery(self, sid: int) -> None:
        """Tell the server to send no more. Messages on their way are still delivered."""
        with self.lock:
            interest = self.interests.get(sid)
            if interest is not None:
                self._log_unsubscribe(interest)
                interest.silenced = True
                self.write_buffer.command(unsubscribe_command(sid))

    def acquire_inbox(
        self,
        mailbox: JetStreamMailbox,
        on_lost: Callable[[ConnectionLostError], object],
        on_permission_error: Callable[[PermissionsError], object],
    ) -> SubscriptionEntry:
        """Return a subscription to `<inbox><sid>.*` that delivers to `mailbox`.

        It is a returned one, which costs nothing, or a new one, whose SUB is sent with the
        write that follows. The mailbox gets the sid of the subscription.
        """
        self.write_buffer.check_process()
        while self.idle_inboxes:
            try:
                interest = self.idle_inboxes.pop()
            except IndexError:  # another thread was faster
                break
            mailbox.sid = interest.sid
            if self.interests.get(interest.sid) is interest:
                interest.sink, interest.on_lost = mailbox, on_lost
                interest.on_permission_error = on_permission_error
                self.io_loop.subscribe(interest.sid, mailbox)
                return interest
        sid = mailbox.sid = self.next_sid()
        subject = f"{self.inbox}{sid}.*"
        interest = SubscriptionEntry(
            *(sid, subject, None, mailbox),
            on_lost=on_lost,
            on_permission_error=on_permission_error,
        )
        self.subscribe(interest, piggyback=True)
        return interest

    def release_inbox(self, interest: SubscriptionEntry) -> None:
        """Keep a subscription of `acquire_inbox`, whose messages have all come, for reuse.

        A finaliser may call this on any thread, so it neither blocks nor takes a lock.
        """
        interest.sink, interest.on_lost = _DISCARD, None
        interest.on_permission_error = None
        self.io_loop.unsubscribe(interest.sid)
        self.idle_inboxes.append(interest)
        # Check after the append: two threads that check before it may both see room.
        if len(self.idle_inboxes) > MAX_IDLE_INBOXES:
            with contextlib.suppress(IndexError):  # another thread was quicker
                sid = self.idle_inboxes.pop().sid
                self.call_soon(lambda: self.unsubscribe(sid, deferred=True))

    def open_replies(self) -> None:
        """Subscribe to the inbox of requests, unless that is done.

        The caller adds its waiter to `replies` first, so that a refused subscription wakes
        the waiter with the error.
        """
        if not self.reply_mux.is_open:
            self._open_replies()

    def _open_replies(self) -> None:
        with self.lock:
            if self.reply_mux.is_open:
                return
            subject = f"{self.reply_mux.prefix}*"
            self.subscribe(
                SubscriptionEntry(self.next_sid(), subject, None, self.reply_mux)
            )
            self.reply_mux.is_open = True

    def on_permission_error(self, error: PermissionsError) -> None:
        """Fail the requests and subscriptions that the server has refused."""
        if error.operation == "publish":
            refused_requests = [
                waiter
                for waiter in self.reply_mux.waiters()
                if isinstance(waiter, Waiter | Mailbox)
                and waiter.subject == error.subject
            ]
            _refuse(refused_requests, error)
            for interest in list(self.interests.values()):
                tell = interest.on_permission_error  # see `on_disconnected`
                if tell is not None:
                    tell(error)
            return
        queue = queue_of_violation(error)
        with self.lock:
            refused = [
                i
                for i in list(self.interests.values())
                if i.subject == error.subject and i.queue == queue
            ]
            self._log_denied({interest.sid for interest in refused})
        self._refuse_subscriptions(refused, error)

    # The limit of subscriptions -------------------------------------------------------

    def _log_unsubscribe(self, interest: SubscriptionEntry) -> None:
        if not interest.silenced:  # otherwise the server has ended it
            self._log_command(UNCERTAIN if interest.expected else -interest.sid)

    def _log_command(self, command: int) -> None:
        """Remember a command that is written next. Requires `self.lock`."""
        if self.state is not ConnectionState.CONNECTED:
            return
        if len(self._commands) >= MAX_COMMANDS:
            self._forget_accepted()
        self._commands.append(command)
        if command == UNCERTAIN:
            self._forget_accepted()
            if self._rejections is not None:
                self._rejections.commands.append(UNCERTAIN)

    def _forget_accepted(self) -> None:
        """Forget the commands that the server has accepted, and send a PING for later ones."""
        self._drop_accepted()
        if self._accepted is None:
            self._ping(Waiter(self.write_buffer))

    def _ping(self, waiter: Waiter) -> bool:
        """Send a PING, whose PONG accepts the commands so far. False if not connected."""
        with self.lock:
            self._drop_accepted()
            sent = self.io_loop.ping(waiter)
            if sent and self._accepted is None:
                self._accepted = waiter, len(self._commands)
        return sent

    def _drop_accepted(self) -> None:
        if self._accepted is not None and self._accepted[0].done:
            del self._commands[: self._accepted[1]]
            self._accepted = None

    def _log_denied(self, sids: set[int]) -> None:
        """Forget SUBs that the server denied, because it does not count them."""
        logs = [self._commands]
        if self._rejections is not None:
            logs.append(self._rejections.commands)
        for log in logs:
            log[:] = [command for command in log if command not in sids]
        self._accepted = None  # its number counts them

    def on_subscription_limit(self) -> None:
        """Fail a subscription that the server has refused, once it is known which.

        The server does not name it. The number of rejections until the PONG of a PING tells
        which of the commands before the PING were refused.
        """
        rejections = self._rejections
        if rejections is not None and rejections.pong.done:
            self._end_rejections(rejections)
            rejections = None
        if rejections is None:
            with self.lock:
                pong = Waiter(self.write_buffer)
                self._drop_accepted()
                rejections = RefusedCommands(self._commands, pong)
                self._commands, self._accepted = [], None
                self._rejections = rejections
                self.io_loop.ping(pong)
            self._wait_for_rejections(rejections)
        rejections.count += 1

    def _wait_for_rejections(self, rejections: RefusedCommands) -> None:
        if rejections is not self._rejections:
            return  # they have ended, or the connection was lost
        if rejections.pong.done:
            self._end_rejections(rejections)
        else:
            self.call_later(
                JUDGED_SECONDS, partial(self._wait_for_rejections, rejections)
            )

    def _end_rejections(self, rejections: RefusedCommands) -> None:
        """Fail the subscriptions that the server has refused."""
        self._rejections = None
        with self.lock:
            # Unused ones take room, and one that was refused would never get a message.
            while self.idle_inboxes:
                with contextlib.suppress(IndexError):  # another thread was quicker
                    self.unsubscribe(self.idle_inboxes.pop().sid)
            if any(each.has_ended for each in self.interests.values()):
                rejections.commands.append(UNCERTAIN)
            sids = refused_subscriptions(rejections.commands, rejections.count)
            if sids is None:
                # Better an error too many than a subscription that waits in silence.
                sids = {sid for sid in rejections.commands if sid in self.interests}
                for sid in sids:
                    self.write_buffer.command(unsubscribe_command(sid))
                self._log_command(UNCERTAIN)
            refused = [(sid, self.interests.get(sid)) for sid in sorted(sids)]
        for _, interest in refused or [(0, None)]:
            subject = interest.subject if interest else ""
            error = SubscriptionLimitError(
                "maximum subscriptions exceeded"
                + (f" by the one to {subject!r}" if subject else "")
                + ": close others, use another connection, or raise the limit of the "
                "server or the account",
                subject=subject,
                operation="subscribe",
            )
            if interest is not None:
                self._refuse_subscriptions([interest], error)
            self.report(error)

    def _refuse_subscriptions(
        self, refused: Sequence[SubscriptionEntry], error: PermissionsError
    ) -> None:
        """End the subscriptions and requests that get no messages."""
        with self.lock:
            for interest in refused:
                self.remove_subscription(interest.sid)
                if interest.sink is self.reply_mux:
                    self.reply_mux.is_open = False
        for interest in refused:
            sink = interest.sink
            if isinstance(sink, Mailbox):
                sink.close(error)
            if sink is self.reply_mux:
                _refuse(self.reply_mux.waiters(), error)
            if interest.on_closed is not None:
                interest.on_closed(error)

    def register_drainable(self, part: Drainable) -> None:
        """Include `part` in a drain of the connection, while it exists.

        Raises `ConnectionClosedError` if a drain has begun, as it may not see the part.
        """
        self._drainables.add(part)
        self.check_not_draining()

    def check_not_draining(self) -> None:
        """Raise `ConnectionClosedError` if a drain of the connection has begun."""
        if self._is_draining:
            raise ConnectionClosedError(
                "the connection is being drained: it takes no new subscriptions"
            )

    def add_drain_callback(self, key: object, call: Callable[[float], object]) -> None:
        """Let a drain of the connection make `call` after every part is drained.

        The call gets the deadline of the drain. It may block, and must not raise. Each
        `key` has one call. This takes no lock, as a finaliser may use it on any thread.
        """
        self._drain_callbacks[key] = call

    def remove_drain_callback(self, key: object) -> None:
        """Cancel the call that `add_drain_callback` got for `key`."""
        self._drain_callbacks.pop(key, None)

    def drain(self, deadline: float, seconds: float) -> None:
        """Drain every registered part, then flush what their callbacks have published.

        Raises:
            DrainTimeoutError: A callback was not done at `deadline`, which is `seconds`
                after the call.
            TimeoutError: The server did not answer by then.
        """
        thread = threading.current_thread()
        self._is_draining = True
        self._draining.add(thread)
        try:
            drain_all(self._drainables.all(), self.ping, deadline, seconds)
            while self._drain_callbacks:
                with contextlib.suppress(KeyError):  # another thread was quicker
                    self._drain_callbacks.popitem()[1](deadline)
            self.ping(deadline)
            self.drained = True
        finally:
            self._draining.discard(thread)

    def is_drained_by(self, threads: Collection[threading.Thread | None]) -> bool:
        """Return whether one of a part's `threads` is the current one, or drains too.

        The drain does not wait for the callback of such a part, because the callback waits
        for the end of a drain itself.
        """
        return threading.current_thread() in threads or any(
            thread in threads for thread in self._draining.copy()
        )

    # Waiting --------------------------------------------------------------------------

    def wait_connected(self, deadline: float) -> None:
        """Block until connected.

        After `force_reconnect`, only the new connection counts. Raises
        `TimeoutError` at the deadline, and an error if the connection closes.
        """
        with self.lock:
            if self.state is ConnectionState.CONNECTED and not self.io.is_leaving:
                return
            if self.state is ConnectionState.CLOSED:
                raise self.closed_error()
            waiter = Waiter(self.write_buffer)
            self._waiting.add(waiter)
        try:
            if not waiter.wait(deadline - monotonic()):
                reason = f" ({self.last_error})" if self.last_error else ""
                raise errors.TimeoutError(
                    f"not connected in time: still reconnecting{reason}"
                )
        finally:
            # Hold the lock, because `on_connected` may copy the set at the same time.
            with self.lock:
                self._waiting.discard(waiter)
        waiter.value()

    def wait_first_attempt(self, deadline: float) -> None:
        """Block until connected, or until every server was tried once.

        Raises an error if the connection closes.
        """
        self.first_attempt.wait(deadline - monotonic())
        if self.state is ConnectionState.CLOSED:
            raise self.closed_error()

    def sleep(self, seconds: float, until: Latch | None = None) -> bool:
        """Block for `seconds`, or until the latch is set. Return whether it is set.

        Raises an error as soon as the connection closes.
        """
        self.write_buffer.check_process()
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                raise self.closed_error()
            waiter = Waiter(self.write_buffer)
            self._sleeping.add(waiter)
        try:
            woken = (
                waiter.wait(seconds) if until is None else until.wait(seconds, waiter)
            )
        finally:
            with self.lock:
                self._sleeping.discard(waiter)
        waiter.value()
        return woken

    def ping(self, deadline: float) -> None:
        """Block until the server has read everything that was written before this call."""
        if monotonic() >= deadline:
            raise errors.TimeoutError("no time for a ping")
        if self.io.is_leaving:
            self.wait_connected(deadline)
        waiter = Waiter(self.write_buffer)
        while not self._ping(waiter):
            self.wait_connected(deadline)
        if not waiter.wait(deadline - monotonic()):
            raise errors.TimeoutError("the server did not answer a ping in time")
        waiter.value()

    def call_later(
        self, seconds: float, call: Callable[[], object], *, offline: bool = False
    ) -> Timer:
        """Let the I/O thread make `call` once, after `seconds`.

        Without a connection the call is delayed, unless `offline` is True.
        """
        timers = self.deadlines if offline else self.timers
        timer = timers.add(monotonic() + seconds, call)
        if not self.io.is_current:
            self.io_loop.interrupt()
        return timer

    def call_soon(self, call: Callable[[], object], *, offline: bool = False) -> None:
        """Let the I/O thread make `call`, as soon as it is connected.

        With `offline`, it need not be connected. A finaliser may use this on any thread, so
        it neither blocks nor takes a lock.
        """
        if self.state is ConnectionState.CLOSED or self.forked:
            return
        (self.deadlines if offline else self.timers).call_soon(call)
        self.io_loop.interrupt()

    def _call_when_threads(self, call: Callable[[], object]) -> None:
        """Let the I/O thread make `call` when the system may have threads again."""
        self.call_later(NO_THREAD_SECONDS, call, offline=True)

    def start_or_retry(
        self,
        what: str,
        start: Callable[[], object],
        report: Callable[[Exception], object],
        *,
        again: bool = False,
    ) -> bool:
        """Call `start`, which starts a thread. Retry while the system has no more threads.

        Does not raise, since the I/O thread calls it. The first failure is reported.
        Returns False once the interpreter is exiting: no thread will start.
        """
        try:
            start()
        except RuntimeError as error:
            if not again:
                report(as_callback_error(f"starting {what}", error))
            if not threading.main_thread().is_alive():
                return False
            self.call_later(
                NO_THREAD_SECONDS,
                partial(self.start_or_retry, what, start, report, again=True),
                offline=True,
            )
        return True

    # Changes of the connection, called by the I/O thread ------------------------------

    def on_connected(self, server: ServerAddress, stream: NetworkStream) -> None:
        """Restore the subscriptions, resume writing, and wake the waiting threads."""
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                raise self.closed_error()
            again = self.server is not None
            self.server = server
            restored = [i for i in list(self.interests.values()) if not i.silenced]
            first = b"".join([i.commands() for i in restored])
            self._commands = [i.sid for i in restored]
            self._accepted = self._rejections = None
            fd, direct, records = stream.fd, stream.direct, stream.records
            self.io_loop.open(fd, direct=direct, records=records)
            self.write_buffer.open(fd, first, direct=direct, records=records)
            self.reconnects += again
            self.state = ConnectionState.CONNECTED
            waiting = list(self._waiting)
            self._waiting.clear()
            # An interest that is added later begins with this connection.
            interests = list(self.interests.values())
        if not again:
            # Announce before `connect` returns, so that a watcher that is added after it
            # sees only later events.
            self.callbacks.dispatch(Connected(url=server.url), self.options.on_connect)
            self.first_attempt.set(None)
        for waiter in waiting:
            waiter.set(None)
        for interest in interests:
            if (
                interest.on_connected is not None
                and self.interests.get(interest.sid) is interest
            ):
                interest.on_connected()
        if again:
            logger.info("%s: connected again, to %s", self.name, server.url)
            event = Reconnected(url=server.url)
            self.callbacks.dispatch(event, self.options.on_reconnect)

    def on_disconnected(self, error: Exception) -> None:
        """Fail the requests that get no reply, and buffer messages to send later."""
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            was_connected = self.state is ConnectionState.CONNECTED
            # Pause the write buffer first: a thread that sees the new state writes nothing to
            # the old connection, and this loss does not fail a wait that begins later.
            self.write_buffer.pause()
            unanswered = self.reply_mux.waiters()
            interests = list(self.interests.values())
            self.state = ConnectionState.RECONNECTING
        self.io_loop.close()
        self.last_error = error
        where = self.server.url if self.server else "the server"
        loss = ConnectionLostError(f"the connection to {where} was lost: {error}")
        loss.__cause__ = error
        self.io_loop.fail_pings(loss)
        _fail(unanswered, loss)
        for interest in interests:
            tell = interest.on_lost  # another thread may set this to None
            if tell is not None:
                tell(loss)
        logger.info("%s: %s", self.name, loss)
        if was_connected:
            self.callbacks.dispatch(
                Disconnected(error=loss), self.options.on_disconnect, loss
            )

    @property
    def _is_silent_end(self) -> bool:
        """True if no call of the user and no callback tells of reconnects that ended."""
        options = self.options
        connects = self.server is not None or options.retry_on_failed_connect
        return connects and options.allow_reconnect and options.on_closed is None

    def on_closed(self, error: Exception | None) -> None:
        """Close the connection permanently. A second call does nothing.

        `error` is the reason, or None if the user closed the connection.
        """
        with self.lock:
            if self.state is ConnectionState.CLOSED:
                return
            was_connected = self.state is ConnectionState.CONNECTED
            self.error = error
            self.state = ConnectionState.CLOSED
            interests = list(self.interests.values())
            self.interests.clear()
            waiting = self._waiting | self._sleeping
            self._waiting = set()
            closed = self.closed_error()
            # Hold the lock here: the I/O thread takes it before it closes the descriptors,
            # to which another thread may still be writing.
            unsent = self.write_buffer.close(closed)
        if unsent:
            self.callbacks.report(
                ConnectionClosedError(
                    f"the connection closed with {unsent} bytes unsent"
                )
            )
        self.first_attempt.set(None)
        for waiter in waiting:
            waiter.fail(closed)
        self.io_loop.fail_pings(closed)
        _fail(self.reply_mux.waiters(), closed)
        for interest in interests:
            sink = interest.sink  # another thread may set this to None
            if isinstance(sink, Mailbox):
                sink.close(closed)
            if interest.on_closed is not None:
                interest.on_closed(closed)
        _open_sessions.discard(self)
        if was_connected and error is not None:
            self.callbacks.dispatch(
                Disconnected(error=error), self.options.on_disconnect, error
            )
        if error is not None and self._is_silent_end:
            logger.error(
                "%s: the connection is closed, and is not made again: %s",
                *(self.name, error),
            )
        self.callbacks.dispatch(Closed(error=error), self.options.on_closed, error)
        self.callback_pool.close()
        self.internal_pool.close()
        self.callbacks.close()

    # Start and end, called for the user -----------------------------------------------

    def start(self) -> None:
        """Start the I/O thread. `wait_connected` waits for the result."""
        _open_sessions.add(self)
        self.io.start()

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close, after at most `timeout` seconds for the server to read what was written.

        On the I/O thread, where a finaliser may call it, it does not wait for the end. In a
        forked child it closes the descriptor only, since the connection is the parent's.
        """
        if self.forked:
            self.io.close_fd()
            return
        deadline = monotonic() + timeout
        if self.io.is_current:
            self.io.stop()
            return
        try:
            if self.state is ConnectionState.CONNECTED and timeout > 0:
                self._flush_last_messages(deadline)
        finally:
            self.io.stop()  # Ctrl-C ends the wait, and the connection as well
        if not self.io.join(max(0.1, deadline - monotonic())):
            # Name resolution cannot be interrupted. The daemon thread stays behind, so
            # finish here to wake the waiting threads.
            self.on_closed(None)

    def _flush_last_messages(self, deadline: float) -> None:
        """Wait until the server has read all that was published. Report if it may not have."""
        try:
            self._send_close_commands()
            self.ping(deadline)
        except ConnectionClosedError:  # another thread closes it as well
            return
        except Error as error:
            published, _ = self.write_buffer.counters
            if not published:
                return
            unconfirmed = ConnectionClosedError(
                "you closed the connection, and the server has not confirmed that it read "
                "what was published last, which may be lost"
            )
            unconfirmed.__cause__ = error
            self.callbacks.report(unconfirmed)

    def add_close_command(self, command: bytes) -> None:
        """Let `close` write `command`. Raises an error if `close` is writing already."""
        with self.lock:
            if self.closing:
                raise self.closed_error()
            self.close_commands.add(command)

    def _send_close_commands(self) -> None:
        with self.lock:
            self.closing = True
        while self.close_commands:
            with contextlib.suppress(KeyError):  # another thread was faster
                self.write_buffer.command(self.close_commands.pop(), deferred=True)


def _refuse(waiters: Sequence[Sink], error: PermissionsError) -> None:
    """Wake the waiters for replies, and call the callbacks of requests without a waiter."""
    _fail(waiters, error)
    for waiter in waiters:
        if isinstance(waiter, Mailbox):
            call = waiter.claim_first()
            if call is not None:
                call()


def _fail(waiters: Sequence[Sink], error: Exception) -> None:
    """Wake the waiters for replies with `error`."""
    for waiter in waiters:
        if isinstance(waiter, Waiter):
            waiter.fail(error)
        elif isinstance(waiter, Mailbox):
            waiter.close(error)


@atexit.register
def _close_all() -> None:
    """Close forgotten connections, before the interpreter ends their threads."""
    for session in list(_open_sessions):
        session.close()
        session.callbacks.run_pending_at_exit()
