"""What is behind a watch: an ordered consumer, read as entries (ADR-8, ADR-37)."""

from __future__ import annotations

import contextlib
import secrets
import threading
from time import monotonic
from typing import TYPE_CHECKING, Generic, cast

from ..._fast import Entries, Initial
from ...checks import callback as check_callback, flag, whole
from ...core.callbacks import wrap
from ...core.deadline import deadline_after
from ...core.gate import Gate
from ...core.session import ConnectionState
from ...errors import (
    CodecError,
    ConfigError,
    DrainTimeoutError,
    Error,
    MessageNotFoundError,
    StreamNotFoundError,
)
from ..management import consumer_info, stream_info
from ..ordered.driver import OrderedPull
from ..ordered.engine import IDLE_HEARTBEAT, Cursor, ordered_config
from ..ordered.place import Place
from ..pulls.engine import consume_limits
from ..stored.get import get_message
from .engine import Item

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Never

    from ..api import API
    from .engine import Stored, Watched

EXPIRES = 30.0
FIRST_LOOK = 0.1
"""Seconds of silence before the end of the initial entries until the server is asked."""
LAST_LOOK = 5.0
ASK_SECONDS = 2.0


def open_changes(
    api: API,
    layout: Watched[Item],
    keys: tuple[str, ...],
    *,
    include_history: bool = False,
    updates_only: bool = False,
    headers_only: bool = False,
    ignore_deletes: bool = False,
    revision: int | None = None,
    on_error: Callable[[Exception], object] | None = None,
    timeout: float | None = None,
) -> Changes[Item]:
    """Have a consumer made for changes of `keys`, and begin to read it; blocks."""
    starts = {
        "include_history": flag(include_history, "include_history"),
        "updates_only": flag(updates_only, "updates_only"),
        "revision": revision is not None,
    }
    given = [name for name, value in starts.items() if value]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other: give one")
    check_callback(on_error, "on_error")
    flag(headers_only, "headers_only")
    flag(ignore_deletes, "ignore_deletes")
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
        options["opt_start_seq"] = whole(revision, "revision", 1)
    # A watch lasts as long as the program, so never give up.
    cursor = Cursor(
        ordered_config(options), secrets.token_hex(8), max_reset_attempts=None
    )
    place = Place(api, layout.stream, cursor)
    deadline = deadline_after(api.seconds(timeout))
    try:
        info = place.make(deadline)
    except StreamNotFoundError as error:
        raise layout.gone() from error
    cursor.began(info)
    start = 0 if revision is None else revision - 1
    initial = Initial(0)
    if not updates_only:
        least = last_of(api, layout, keys, deadline - monotonic())
        initial = Initial(info.num_pending, least if least > start else 0)
    return Changes(
        place, layout, keys, start, initial, ignore_deletes, headers_only, on_error
    )


def last_of(
    api: API, layout: Watched[Item], keys: tuple[str, ...], seconds: float
) -> int:
    """The leader's last revision of `keys`, 0 when there is none; blocks.

    In a bucket of one server it is 0: whoever has the consumer is the leader.
    """
    last = 0
    for subject in layout.filters(keys) if layout.replicated else ():
        with contextlib.suppress(MessageNotFoundError):
            message = get_message(
                *(api, layout.stream),
                last_by_subject=subject,
                direct=False,
                timeout=seconds,
            )
            last = max(last, message.sequence)
    return last


class Changes(Generic[Item]):
    """Entries in order, and what is known of how many are still to come.

    One thread reads: the user's, or its own that calls what `run` is given.
    """

    def __init__(
        self,
        place: Place,
        layout: Watched[Item],
        keys: tuple[str, ...],
        start: int,
        initial: Initial,
        ignore_deletes: bool,
        bare: bool,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._place = place
        self._layout = layout
        self._keys = keys
        self._ignore_deletes = ignore_deletes
        self._session = place.api.session
        self.outbox = self._session.outbox
        self._initial = initial
        self._look_after = FIRST_LOOK
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None
        """What has ended it, if nobody asked for that."""
        self.handed_over = Gate(self.outbox)
        """Opened once all initial entries are, or when it has ended before."""
        self.finished = Gate(self.outbox)
        """Opened when the thread of `run` has ended."""
        limits = consume_limits(expires=EXPIRES, idle_heartbeat=IDLE_HEARTBEAT)
        self._pull = OrderedPull(place, limits, on_error)
        self._mailbox = self._pull.mailbox
        self._decoded = layout.decoder(bare=bare, ignore_deletes=ignore_deletes)
        self.entries: Entries[Item] = Entries(
            *(self._mailbox, initial, layout.make, layout.bucket, layout.prefix),
            revision=start,
            decoded=self._decoded,
            ignore_deletes=ignore_deletes,
        )
        if initial.done:
            self.entries.caught_up = place.cursor.name
            self.handed_over.open()
        self._pull.begin()

    # Reading --------------------------------------------------------------------------

    @property
    def initial_done(self) -> bool:
        """Whether all initial entries were taken."""
        return self._initial.done

    @property
    def closed(self) -> bool:
        return self._mailbox.closed

    @property
    def revision(self) -> int:
        """That of the last entry that was taken; before, that behind which it begins."""
        return self.entries.revision

    def take(self, deadline: float | None, *, initial: bool = False) -> Item | None:
        """The next entry; None at the deadline, at the end, and, if `initial`, at its end."""
        while True:
            wait = None if deadline is None else max(0.0, deadline - monotonic())
            if not self._initial.done:
                wait = self._look_after if wait is None else min(wait, self._look_after)
            try:
                stored = self.entries.get(wait)
                if stored is None and self._mailbox.failure is not None:
                    raise self._mailbox.failure
            except Error as error:
                self._fail(error)
            if stored is not None:
                self._look_after = FIRST_LOOK
                entry = self._arrived(stored)
                if entry is not None or (initial and self._initial.done):
                    return entry
                continue
            if self._mailbox.closed:
                return None
            if not self._initial.done and self.confirm() and initial:
                return None
            if deadline is not None and monotonic() >= deadline:
                return None

    def take_next(self, *, initial: bool = False) -> Item:
        """The next entry, however long it takes.

        Raises `StopIteration` at the end, and, if `initial`, at that of the initial ones.
        """
        entry = self.take(None, initial=initial)
        self.given()
        if entry is None:
            raise StopIteration
        return entry

    def given(self) -> None:
        """What was taken is handed over; perhaps the last initial entry."""
        if self._initial.done and not self.handed_over.is_open:
            self.handed_over.open()

    def _arrived(self, stored: Stored) -> Item | None:
        """The entry in the form of the user; None for a marker that is to be left out."""
        initial = self._initial
        if not initial.done and initial.came(stored.revision, stored.delta):
            with contextlib.suppress(Error):  # then ask at the next entry
                stream = self._layout.stream
                info = stream_info(self._place.api, stream, timeout=ASK_SECONDS)
                initial.ends_at(info.state.last_seq, stored.revision)
        if self._ignore_deletes and stored.operation != "PUT":
            self.given()
            return None
        if self._decoded is None:
            return cast("Item", stored)
        try:
            entry = self._decoded(stored)
        except CodecError:
            self.given()
            raise
        if entry is None:
            self.given()
        return entry

    def _fail(self, error: Exception) -> Never:
        """Raise it, in the words of the user; remember it if it is the end."""
        if self._mailbox.closed and type(error) is type(self._mailbox.failure):
            if isinstance(error, StreamNotFoundError):
                gone = self._layout.gone()
                gone.__cause__ = error
                error = gone
            self.error = error
            self.handed_over.open()
        raise error

    # How current it is ----------------------------------------------------------------

    def confirm(self) -> bool:
        """Ask the server whether all that is there has been taken; blocks.

        For when nothing comes: what was to come may have been deleted.
        """
        self._look_after = min(self._look_after * 2, LAST_LOOK)
        name = self._place.cursor.name
        if name is None:
            return False
        try:
            stream = self._layout.stream
            api = self._place.api
            info = consumer_info(api, stream, name, ASK_SECONDS)
            # The server of the consumer may lag behind the leader.
            last = last_of(api, self._layout, self._keys, ASK_SECONDS)
        except Error:
            return False  # the next look asks the new consumer
        if len(self._mailbox):
            return False
        if self._pull.has_all(info) and last <= self.revision:
            self.entries.caught_up = name
            if not self._initial.done:
                self._initial.all_came()
                self.handed_over.open()
            return True
        return False

    @property
    def is_current(self) -> bool:
        """Whether nothing is missing, as of `last_arrival`."""
        return (
            self._initial.done
            and self.entries.caught_up is not None
            and self.entries.caught_up == self._place.cursor.name
            and not len(self._mailbox)
            and not self._mailbox.closed
            and self._session.state is ConnectionState.CONNECTED
        )

    @property
    def last_arrival(self) -> float:
        """When the server was last heard of, by the monotonic clock."""
        return self._mailbox.last_arrival

    # A thread of its own --------------------------------------------------------------

    def run(
        self,
        callback: Callable[[Item], object],
        *,
        bad: Callable[[CodecError], object] | None = None,
        tick: Callable[[], object] | None = None,
        every: float | None = None,
        drains: bool = False,
    ) -> None:
        """Have `callback` called with each entry, on a thread of its own.

        An entry that cannot be decoded is reported, and `bad` is called with the error.
        Any other exception ends it, and is reported, too.
        `tick` is called there, too, after `every` so many seconds without an entry, and at
        the end. If it `drains`, a drain of the connection waits for the last call.
        """
        name = f"{self._session.name}-{self._layout.bucket}-watch"

        def work() -> None:
            try:
                self._work(callback, bad, tick, every)
            except Error as error:
                self._broke(error)
            except BaseException as error:  # noqa: BLE001 - a codec of the user, for one
                self._broke(wrap(f"the watch of {self._layout.bucket!r}", error))
            finally:
                self.handed_over.open()
                self.finished.open()
                if tick is not None:
                    tick()

        try:
            self._thread = self._session.spawner.start(name, work)
            if drains:
                self._session.adopt(self)
        except BaseException:
            # No thread could be started, or Ctrl-C interrupted the start.
            self._pull.stop()
            raise

    def _broke(self, error: Error) -> None:
        """Its own thread ends by an error, so nobody is left to read the rest."""
        failure = self._mailbox.failure
        if not self._mailbox.closed:
            self.error = error
            self._pull.stop()
        elif self.error is None and failure is not None:
            self.error = error
        self._pull.report(error)

    def _work(
        self,
        callback: Callable[[Item], object],
        bad: Callable[[CodecError], object] | None,
        tick: Callable[[], object] | None,
        every: float | None,
    ) -> None:
        def raised(entry: Item, error: BaseException) -> None:
            self._pull.report(
                wrap(f"the callback of {self._layout.label(entry)!r}", error)
            )

        while True:
            deadline = None if every is None else monotonic() + every
            try:
                self.entries.hand_over(callback, raised)
                entry = self.take(deadline)
            except CodecError as error:
                self._pull.report(error)
                if bad is not None:
                    bad(error)
                continue
            if entry is not None:
                try:
                    callback(entry)
                except BaseException as error:  # noqa: BLE001 - user code
                    raised(entry, error)
            elif self._mailbox.closed:
                return
            elif tick is not None:
                tick()
            self.given()

    # The end --------------------------------------------------------------------------

    def silence(self) -> None:
        """The first step of a drain of the connection: have the server send no more.

        Takes what the server has sent already, for a second at most.
        """
        if not self.finished.is_open:
            self._pull.drain()

    def finish(self) -> None:
        """The second: the drain of the pull has ended the backlog already."""

    def wait_finished(self, deadline: float, timeout: float) -> None:
        """The last: block until the callback has returned from the last entry."""
        if not self._session.is_drained_by([self._thread]):
            self._join(max(0.0, deadline - monotonic()), timeout)

    def stop(self, timeout: float) -> None:
        """End it; blocks until its own thread has ended, unless that calls it."""
        self._pull.stop()
        if self._thread is None:
            self.handed_over.open()
            return
        self._join(timeout, timeout)

    def _join(self, seconds: float, timeout: float) -> None:
        if threading.current_thread() is self._thread:
            return
        if not self.finished.wait(seconds):
            raise DrainTimeoutError(
                f"the callback of a watch has not returned within {timeout} s"
            )

    def abandon(self) -> None:
        """Stop it without waiting, from a finaliser."""
        self._pull.abandon()

    def __repr__(self) -> str:
        state = "ended" if self.closed else "at work"
        return f"<Changes of {self._layout.bucket!r} at {self.revision}, {state}>"
