"""The reading behind a watch: an ordered consumer, read as entries (ADR-8, ADR-37)."""

from __future__ import annotations

import secrets
import threading
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ... import errors
from ..._fast import EntryReader, InitialState
from ...core.clock import deadline_after
from ...core.drain import Drainable
from ...core.session import ConnectionState
from ...core.sync import Latch
from ...errors import (
    CodecError,
    ConfigError,
    ConnectionClosedError,
    DrainTimeoutError,
    Error,
    StreamNotFoundError,
    WrongRevisionError,
)
from ...validation import check_bool, check_int, check_optional_callable, format_seconds
from ..management import stream_info
from ..ordered.driver import OrderedPull
from ..ordered.engine import IDLE_HEARTBEAT, Cursor, ordered_config
from ..ordered.factory import ConsumerFactory
from ..pulls.engine import consume_limits
from ..stream_end.driver import follow, stream_pending
from ..stream_end.engine import end_in, end_steps, pending_steps
from .freshness import Freshness
from .source import Item

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from ...core.callback_pool import CallbackPool, PoolTask
    from ...core.timers import Timer
    from ...models import ConsumerInfo
    from ...validation import Seconds
    from ..api import API
    from ..stream_end.engine import StreamEnd
    from .freshness import Applied
    from .source import StoredEntry, WatchSource

WatchT = TypeVar("WatchT")

EXPIRES = 30.0
MIN_POLL_INTERVAL = 0.1
"""Seconds without an entry after which more initial entries are requested from the leader."""
MAX_POLL_INTERVAL = 5.0
MAX_BARE_ENTRIES = 2000
"""Entries without values that are requested at a time: many, because they are small, and each
request takes a round trip."""
INFO_TIMEOUT = 2.0
"""Seconds that the leader may take to answer, and the pause after it gave no answer."""
MAX_SILENCE = 60.0
"""Seconds without a message after which a read of the initial entries fails.

An election takes less, also after a leader that does not answer. A watch itself never fails by
time."""
HOLD_BACK_SECONDS = 0.5
"""The most seconds to hold an entry until it is known whether it is the last initial one."""
MAX_ROUNDS = 2
"""Times that the end may move ahead of the reading before the keys are compared."""


def open_watch(
    api: API,
    layout: WatchSource[Item],
    keys: tuple[str, ...],
    make: Callable[[WatchReader[Item]], WatchT],
    *,
    include_history: bool = False,
    updates_only: bool = False,
    headers_only: bool = False,
    ignore_deletes: bool = False,
    revision: int | None = None,
    on_error: Callable[[Exception], object] | None = None,
    timeout: Seconds | None = None,
) -> WatchT:
    """Create a consumer for changes of `keys`, and begin to read it. Blocks.

    Returns the object for the user, which `make` makes of the reader. If Ctrl-C comes before,
    nothing of the watch is left.
    """
    starts = {
        "include_history": check_bool(include_history, "include_history"),
        "updates_only": check_bool(updates_only, "updates_only"),
        "revision": revision is not None,
    }
    given = [name for name, value in starts.items() if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other: give one")
    check_optional_callable(on_error, "on_error")
    check_bool(headers_only, "headers_only")
    check_bool(ignore_deletes, "ignore_deletes")
    options: dict[str, Any] = {
        "filter_subjects": layout.filters(keys),
        "headers_only": headers_only or None,
        "deliver_policy": "last_per_subject",
    }
    if include_history:
        options["deliver_policy"] = "all"
    elif updates_only:
        options["deliver_policy"] = "new"
    elif revision is not None:
        options["deliver_policy"] = "by_start_sequence"
        options["opt_start_seq"] = check_int(revision, "revision", 1)
    # A watch lasts as long as the program, so never give up.
    cursor = Cursor(
        ordered_config(options), secrets.token_hex(8), max_reset_attempts=None
    )
    factory = ConsumerFactory(api, layout.stream, cursor)
    factory.needs_end = not updates_only
    deadline = deadline_after(api.seconds(timeout))
    requested_at = monotonic()
    changes: WatchReader[Item] | None = None
    try:
        info = factory.create_unbound(deadline)
        cursor.on_created(info)
        start = 0 if revision is None else revision - 1
        if factory.end is not None and start > factory.end.sequence:
            raise _no_revision(layout, start + 1, factory.end.sequence)
        initial = InitialState(0)
        if not updates_only:
            latest = options["deliver_policy"] == "last_per_subject"
            initial = _initial(factory, info, start, latest=latest)
        changes = WatchReader(
            *(factory, layout, keys, start, initial),
            *(ignore_deletes, headers_only, on_error),
        )
        changes.requested_at = requested_at
        changes.begin()
        if not initial.done and not info.num_pending:
            changes.learn_end(deadline)
            changes.mark_delivered()
        return make(changes)
    except BaseException as error:
        if changes is not None:
            changes.abandon()
        factory.schedule_delete()
        if changes is None and isinstance(error, StreamNotFoundError):
            raise layout.not_found_error() from error
        raise


def _no_revision(
    layout: WatchSource[Item], revision: int, last: int
) -> WrongRevisionError:
    """Make the error for a revision to begin with that is not the next one at most."""
    return WrongRevisionError(
        f"bucket {layout.bucket!r} is at revision {last}, so changes from {revision} on would "
        "leave out those before: it was deleted and created again, or has lost changes; "
        "watch it without a revision",
        revision=last,
    )


def _initial(
    factory: ConsumerFactory, info: ConsumerInfo, start: int, *, latest: bool
) -> InitialState:
    """Track the initial entries of a consumer, as its server counts them."""
    end = factory.end
    if end is None:  # this account may not query the leader
        return InitialState(info.num_pending, latest=latest)
    # The server that reported the end of the stream has every message up to it.
    server = info.cluster and info.cluster.leader
    leader = end.info.cluster and end.info.cluster.leader
    return InitialState(
        info.num_pending,
        end=end.sequence,
        after=start,
        exact=not end.is_replicated or (server is not None and server == leader),
        latest=latest,
    )


class WatchReader(Drainable, Generic[Item]):
    """The entries of a watch in order, and the known number of those still to come.

    One thread at a time reads them: the user's, or one of the pool for the callback.
    """

    def __init__(
        self,
        factory: ConsumerFactory,
        layout: WatchSource[Item],
        keys: tuple[str, ...],
        start: int,
        initial: InitialState,
        ignore_deletes: bool,
        bare: bool,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._factory = factory
        self._layout = layout
        self._keys = keys
        self._ignore_deletes = ignore_deletes
        self._session = factory.api.session
        self.write_buffer = self._session.write_buffer
        self._initial = initial
        self._latest = factory.cursor.is_latest
        self._rounds = 0  # how often the leader had more than the watch
        self.poll_interval = MIN_POLL_INTERVAL
        self._silent_until = 0.0  # the leader is not queried before
        self._compares = False  # the next query may compare keys
        self._pinged = -inf  # the time of the open ping of the leader, for a pool
        self.leader_answered = False
        """True once the leader has answered the ping. The next query is sent then."""
        # The revisions of the last returned entry, and of the held one that follows it.
        self._revision = self._held_revision = start
        self.requested_at = monotonic()
        """The time when the leader was queried for the end of the initial entries."""
        self._pool: CallbackPool | None = None
        """The pool that reads the entries. None if the user does."""
        self.error: Exception | None = None
        """The error that has ended the watch. None after a `stop`."""
        self.handed_over = Latch(self.write_buffer)
        """Set once all initial entries were handed over, or if the watch ends before."""
        self.finished = Latch(self.write_buffer)
        """Set when the callback has returned from the last entry."""
        limits = consume_limits(
            expires=EXPIRES,
            idle_heartbeat=IDLE_HEARTBEAT,
            max_messages=MAX_BARE_ENTRIES if bare else None,
        )
        self._pull = OrderedPull(factory, limits, on_error)
        self._pull.when_moved = initial.on_server_changed
        self._mailbox = self._pull.mailbox
        self._decoded = layout.decoder(bare=bare, ignore_deletes=ignore_deletes)
        self.entries: EntryReader[Item] = EntryReader(
            *(self._mailbox, initial, layout.make, layout.bucket, layout.prefix),
            revision=start,
            decoded=self._decoded,
            ignore_deletes=ignore_deletes,
        )
        if initial.done:
            self.handed_over.set()

    def begin(self) -> None:
        """Begin to read the consumer."""
        self._pull.begin()

    # Reading --------------------------------------------------------------------------

    @property
    def initial_done(self) -> bool:
        """True once all initial entries were taken."""
        return self._initial.done

    @property
    def closed(self) -> bool:
        return self._mailbox.closed

    @property
    def revision(self) -> int:
        """The revision of the last taken entry. At first: the one before the start."""
        return self.entries.revision if self.entries.held is None else self._revision

    def take(self, deadline: float | None, *, initial: bool = False) -> Item | None:
        """Wait for the next entry.

        None at the deadline, at the end of the watch and, if `initial`, after the last initial
        entry.
        """
        held, self.entries.held = self.entries.held, None
        if isinstance(held, Exception):
            raise held
        revision = self._held_revision
        entry: Item | None = held
        if entry is None:
            entry = self._next(deadline, initial=initial)
            revision = self.entries.revision
        looks_ahead = self._ignore_deletes and not (initial or self._initial.done)
        if entry is not None and looks_ahead:
            self._prefetch(deadline)
            self._revision, self._held_revision = revision, self.entries.revision
        return entry

    def _prefetch(self, deadline: float | None) -> None:
        """Fetch and hold the entry that follows the next returned one, if it comes soon.

        Only then is it known whether the returned entry is the last initial one, because
        delete markers that are left out may follow it.
        """
        until = monotonic() + HOLD_BACK_SECONDS
        if deadline is not None:
            until = min(until, deadline)
        try:
            self.entries.held = self._next(until, initial=True)
        except CodecError as error:
            self.entries.held = error
        except Error:
            pass  # the end of the watch: the next call finds it again

    def _next(self, deadline: float | None, *, initial: bool = False) -> Item | None:
        silent_until = monotonic() + MAX_SILENCE if initial else inf
        while True:
            wait = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._initial.done:
                wait = (
                    self.poll_interval
                    if wait is None
                    else min(wait, self.poll_interval)
                )
            try:
                stored = self.entries.get(wait)
                if stored is None and self._mailbox.failure is not None:
                    raise self._mailbox.failure
            except Error as error:
                raise self._noted(error)  # noqa: B904 - it has its cause
            if stored is not None:
                self.poll_interval = MIN_POLL_INTERVAL
                entry = self._arrived(stored)
                if entry is not None or (initial and self._initial.done):
                    return entry
                silent_until = max(silent_until, monotonic() + MAX_SILENCE)
                continue
            if self._mailbox.closed:
                return None
            if not self._initial.done and self.confirm() and initial:
                return None
            if deadline is not None and monotonic() >= deadline:
                return None
            if monotonic() >= silent_until:
                raise errors.TimeoutError(
                    f"no server has sent the rest of bucket {self._layout.bucket!r} for "
                    f"{MAX_SILENCE:g} s; try again once the servers answer"
                )

    def take_next(self, *, initial: bool = False) -> Item:
        """Wait for the next entry, without a limit.

        Raises `StopIteration` at the end of the watch and, if `initial`, after the last
        initial entry.
        """
        entry = self.take(None, initial=initial)
        self.mark_delivered()
        if entry is None:
            raise StopIteration
        return entry

    def mark_delivered(self) -> None:
        """Open `handed_over` if the entry that was handed over was the last initial one."""
        done = self._initial.done and self.entries.held is None
        if done and not self.handed_over.is_set:
            self.handed_over.set()

    def _arrived(self, stored: StoredEntry) -> Item | None:
        """Convert a stored entry for the user. None if it is to be left out."""
        entries = self.entries
        repeated = entries.repeated
        if self._initial.on_entry(stored.revision, stored.delta):
            self._learn_end(compares=True)
        if (self._ignore_deletes and stored.operation != "PUT") or (
            repeated and entries.once
        ):
            self.mark_delivered()
            return None
        if self._decoded is None:
            return cast("Item", stored)
        try:
            entry = self._decoded(stored)
        except CodecError:
            self.mark_delivered()
            raise
        if entry is None:
            self.mark_delivered()
        return entry

    def _noted(self, error: Exception) -> Exception:
        """Return an error in the words of the user. Remember it if it has ended the watch."""
        if self._mailbox.closed and type(error) is type(self._mailbox.failure):
            if isinstance(error, StreamNotFoundError):
                gone = self._layout.not_found_error()
                gone.__cause__ = error
                error = gone
            self.error = error
            self.handed_over.set()
        return error

    # The end of the initial entries ---------------------------------------------------

    def learn_end(self, deadline: float, *, compares: bool = False) -> None:
        """Query the leader for the end of the initial entries. Blocks.

        If the end keeps moving ahead of the reading, keys may be compared to find it.
        """
        factory, initial = self._factory, self._initial
        after, end = self.entries.revision, factory.end
        until = None if self._latest or end is None else end.sequence
        if compares and self._rounds >= MAX_ROUNDS and initial.exact:
            self._compare_keys(deadline)
            return
        # Without a bound, because an initial entry that is replaced comes later.
        pending = stream_pending(
            factory.api,
            lambda: pending_steps(factory.stream, factory.cursor.filters, after),
            deadline,
        )
        if pending.first is None:
            initial.finish()
        else:
            self._rounds += 1 if self._latest else 0
            initial.set_end(pending.end.sequence if until is None else until)
            if not self._mailbox:
                self._session.call_soon(
                    lambda: self._pull.leave_if_behind(pending, after)
                )

    def _compare_keys(self, deadline: float) -> None:
        """Query the leader for all keys, and end the initial entries if each of them has come.

        This needs `InitialState.exact`, because entries from a server that lags may be older than
        the beginning of the watch.
        """
        keys, last = self.listed(deadline)
        if self._initial.seen(keys):
            self._initial.finish()
        else:
            self._initial.set_end(last)

    def listed(self, deadline: float) -> tuple[set[str], int]:
        """Query the leader for its keys, in stored form, and the end of the stream.

        Blocks until the deadline, with a request for each filter. Raises `TimeoutError`.
        """
        factory, size = self._factory, len(self._layout.prefix)
        keys: set[str] = set()
        last = 0
        for subject in factory.cursor.filters or (">",):
            info = stream_info(
                *(factory.api, factory.stream),
                subjects_filter=subject,
                timeout=max(0.0, deadline - monotonic()),
            )
            last = max(last, end_in(info).sequence)
            keys.update([name[size:] for name in info.state.subjects or ()])
        return keys, last

    def _learn_end(self, *, compares: bool) -> None:
        """Query the leader for the end, unless it has just failed to answer."""
        self._compares |= compares
        if monotonic() < self._silent_until or not self._may_query():
            return
        compares, self._compares = self._compares, False
        try:
            self.learn_end(monotonic() + INFO_TIMEOUT, compares=compares)
        except Error:
            self._silent_until = monotonic() + INFO_TIMEOUT

    def _may_query(self) -> bool:
        """Return whether this thread may wait for the leader.

        A thread of a pool would delay other callbacks, so it waits only for a leader that
        has just answered. Otherwise the leader is pinged, and its answer brings a turn.
        """
        if self._pool is None:
            return True
        answered, self.leader_answered = self.leader_answered, False
        now = monotonic()
        if not answered and now >= self._pinged + self._factory.api.timeout:
            self._pinged = now
            steps = end_steps(self._factory.stream)
            self._session.call_soon(
                lambda: follow(self._factory.api, steps, self._on_leader)
            )
        return answered

    def _on_leader(self, end: StreamEnd | Error) -> None:
        """Have the pool query a leader that answers, on the I/O thread."""
        self._pinged = -inf
        if isinstance(end, Error):
            self._silent_until = monotonic() + INFO_TIMEOUT
        else:
            self.leader_answered = True
            self._mailbox.request_turn()

    def confirm(self) -> bool:
        """Check with the leader after a silence whether all initial entries have come. Blocks.

        The messages that were still to come may have been deleted.
        """
        self.poll_interval = min(self.poll_interval * 2, MAX_POLL_INTERVAL)
        self._learn_end(compares=False)
        if self._initial.done:
            self.mark_delivered()
        return self._initial.done

    # How current it is ----------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """True while changes can arrive."""
        return (
            not self._mailbox.closed
            and self._session.state is ConnectionState.CONNECTED
            and not self._session.forked
        )

    @property
    def max_age(self) -> float | None:
        """The `ttl` that the bucket had when the watch began."""
        end = self._factory.end
        return None if end is None else end.info.config.max_age

    @property
    def is_of_all(self) -> bool:
        """True if the watch covers every key."""
        return self._factory.cursor.filters == [f"{self._layout.prefix}>"]

    def freshness(self, applied: Callable[[], Applied]) -> Freshness:
        """Begin to track how current the watch is, given the changes that were `applied`."""
        freshness = Freshness(self._factory, self._pull, applied)
        end = self._factory.end
        freshness.begin(self.requested_at - (0.0 if end is None else end.silence))
        return freshness

    @property
    def callback_pool(self) -> CallbackPool:
        """The pool for callbacks of the user."""
        return self._session.callback_pool

    @property
    def internal_pool(self) -> CallbackPool:
        """The pool on which no callback of the user blocks."""
        return self._session.internal_pool

    # A callback -----------------------------------------------------------------------

    def start(self, task: PoolTask, pool: CallbackPool, *, drains: bool) -> None:
        """Have `pool` read the entries by `task` from now on.

        If the watch `drains`, a drain of the connection waits for the last entry.
        """
        self._pool = pool
        try:
            pool.add(self._mailbox, task)
            self._mailbox.request_turn()
            if drains:
                self._session.register_drainable(self)
        except BaseException:  # Ctrl-C interrupted the start
            self._pull.stop()
            raise

    @property
    def label(self) -> str:
        """The watch, for errors."""
        return f"the watch of {self._layout.bucket!r}"

    def name_of(self, item: Item) -> str:
        """Return the name of an entry, for errors."""
        return self._layout.label(item)

    @property
    def pending(self) -> int:
        """Entries that have arrived and are not taken yet."""
        return len(self._mailbox)

    def take_ready(self) -> Item | None:
        """Take the next entry. None if none is here, or if it is left out."""
        stored = self.entries.get(0.0)
        if stored is None:
            return None
        self.poll_interval = MIN_POLL_INTERVAL
        return self._arrived(stored)

    def rouse_later(self, seconds: float) -> Timer:
        """Have the callback get a turn after `seconds`, even if no entry comes."""
        return self._session.call_later(
            seconds, self._mailbox.request_turn, offline=True
        )

    def report(self, error: Error) -> None:
        """Report an error that does not end the watch."""
        self._pull.report(error)

    def finish(self, error: Exception | None) -> None:
        """Note that the callback gets no more entries, because of `error` if there is one."""
        failure = self._mailbox.failure
        if error is None and failure is not None:
            error = self._noted(failure)
        elif error is not None and not self._mailbox.closed:
            self.error = error
            self._pull.stop()
        elif self.error is None and failure is not None:
            self.error = error
        # The connection reports itself that it is closed.
        if error is not None and not isinstance(error, ConnectionClosedError):
            self._pull.report(error)
        self.handed_over.set()
        self.finished.set()

    # The end --------------------------------------------------------------------------

    def _stop_delivery(self) -> None:
        """Stop the pull requests, as the first step of a drain of the connection.

        Entries that the server has already sent still arrive, for a second at most.
        """
        if not self.finished.is_set:
            self._pull.drain()

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Block until the callback has returned from the last entry, as the last step."""
        if not self._session.is_drained_by(self._threads):
            self._join(max(0.0, deadline - monotonic()), timeout)

    def stop(self, timeout: float) -> None:
        """End the watch. Blocks until its callback has returned, unless called by that."""
        self._pull.stop()
        if self._pool is None:
            self.handed_over.set()
            return
        self._join(timeout, timeout)

    @property
    def _threads(self) -> Collection[threading.Thread]:
        """The thread that may be in the callback now."""
        runner = self._mailbox.runner
        return () if runner is None else (runner,)

    def _join(self, seconds: float, timeout: float) -> None:
        if threading.current_thread() in self._threads:
            return
        if self._pool is not None:
            self._pool.end_idle(self._mailbox)
        if not self.finished.wait(seconds):
            raise DrainTimeoutError(
                f"the callback of a watch has not returned within {format_seconds(timeout)}"
            )

    def abandon(self) -> None:
        """Stop the watch without waiting. For use in a finaliser."""
        self._pull.close_nowait()

    def __repr__(self) -> str:
        state = "ended" if self.closed else "at work"
        return f"<WatchReader of {self._layout.bucket!r} at {self.revision}, {state}>"
