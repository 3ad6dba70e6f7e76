"""The work of a consumer group's member: it joins, pulls, and hands its partitions over.

The thread that reads the messages owns the state. The thread that watches the
configuration, and any thread that stops the member, set a flag and end the open pull. One
lock protects flags, latch and pull, so that a new flag always wakes the reading thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

from ..._fast import PinId, take_partition
from ...core.clock import boottime
from ...core.drain import Drainable
from ...core.state import StateMachine
from ...core.sync import ForkSafeRLock, Latch
from ...errors import (
    APIError,
    BucketNotFoundError,
    ConcurrentUseError,
    ConnectionClosedError,
    ConsumerDeletedError,
    ConsumerExistsError,
    ConsumerGroupChangedError,
    ConsumerGroupNotFoundError,
    ConsumerNotFoundError,
    Error,
    ForkedProcessError,
    InvalidConsumerGroupError,
    KeyDeletedError,
    KeyNotFoundError,
    NoRespondersError,
    NotInConsumerGroupError,
    PermissionsError,
    PullError,
    StreamNotFoundError,
    UnsupportedFeatureError,
    WorkQueueConsumerError,
)
from ..consumer import Consumer
from ..management import delete_consumer, upsert_consumer
from ..pulls.consumer_check import CONFIRM_SECONDS
from ..pulls.engine import fetch_request
from ..pulls.inbox import PullTarget
from ..pulls.priority import PriorityOptions
from ..pulls.pull import Pull
from ..retries.engine import extension_interval
from .engine import (
    TRANSITIONS,
    HandoverAction,
    MemberState,
    consumer_name,
    decide_handover,
    is_stale,
    key_of,
    member_consumer,
    priority_group,
    pull_seconds,
    read_config,
    stream_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._fast import JetStreamMsg
    from ...core.session import Session
    from ...core.timers import Timer
    from ..api import API
    from ..keyvalue.bucket import KeyValue
    from ..keyvalue.watch import Watch
    from ..pulls.engine import PullRequest
    from .engine import ConsumerGroupConfig, GroupKind

logger = logging.getLogger("jsync.consume")

INITIAL_BACKOFF: Final = 0.02
MAX_BACKOFF: Final = 0.5
"""Seconds between two checks whether partitions are free. The pause doubles up to this."""
_PERMANENT_ERRORS: Final = (
    InvalidConsumerGroupError,
    ConnectionClosedError,
    ConsumerGroupChangedError,
    ForkedProcessError,
    NotInConsumerGroupError,
    PermissionsError,
    UnsupportedFeatureError,
)
"""The errors that end a member."""


class AckExtender:
    """The message that is being handled, for which more time is requested.

    This stops if the thread that got the message ends, as no thread will acknowledge it.
    """

    def __init__(self, session: Session, ack_wait: float) -> None:
        self._session = session
        self._interval = extension_interval(None, ack_wait)
        # Protects the message, its holder and the timer, so that a held message has one
        # timer. Re-entrant, since a signal handler may interrupt the holder of the lock.
        self._lock = ForkSafeRLock()
        self._msg: JetStreamMsg | None = None
        self._holder: threading.Thread | None = None
        self._timer: Timer | None = None

    def start(self, msg: JetStreamMsg) -> None:
        with self._lock:
            self._msg, self._holder = msg, threading.current_thread()
            if self._timer is None:
                self._timer = self._session.call_later(self._interval, self._extend)

    def stop(self) -> None:
        self._msg = None

    def __bool__(self) -> bool:
        """Return whether a living thread has a message without a final ack."""
        msg, holder = self._msg, self._holder
        return (
            msg is not None
            and not msg.is_acked
            and holder is not None
            and holder.is_alive()
        )

    def _extend(self) -> None:
        """Request more time from the server. Runs on the I/O thread."""
        with self._lock:
            msg = self._msg
            if msg is None or not self:
                self._timer = None
                return
            self._timer = self._session.call_later(self._interval, self._extend)
        with contextlib.suppress(Error):
            msg.in_progress()


class Membership(Drainable):
    """One instance of a member. One thread reads, and any thread may stop it."""

    def __init__(
        self,
        api: API,
        bucket: KeyValue,
        kind: GroupKind,
        stream: str,
        group: str,
        member: str,
        *,
        ack_wait: float,
        max_ack_pending: int,
        on_error: Callable[[Exception], object] | None,
    ) -> None:
        self._api, self._bucket = api, bucket
        self.session = session = api.session
        self.kind, self.stream, self.group, self.member = kind, stream, group, member
        self._key = key_of(stream, group)
        self._reads = stream_of(kind, stream, group)
        self._consumer_name = consumer_name(kind, group, member)
        self._ack_wait = ack_wait
        self._max_ack_pending = max_ack_pending
        self._on_error = on_error or session.options.on_error
        self._config: ConsumerGroupConfig | None = None
        self._revision = 0
        self._watched_revision = 0  # the newest revision that the watch has delivered
        self._partitions: tuple[int, ...] = ()
        self._consumer: Consumer | None = None
        self._target: PullTarget | None = None
        self._request: PullRequest = fetch_request(
            1, None, pull_seconds(ack_wait), None
        )
        self._seconds = pull_seconds(ack_wait)
        self._has_received = False
        self._backoff = INITIAL_BACKOFF
        self._missing_since: float | None = None
        self._ack_extender = AckExtender(session, ack_wait)
        # Protects the pull, the latch and the flags below. Re-entrant, since a signal
        # handler may stop the member on the thread that holds the lock.
        self._flags = ForkSafeRLock()
        self._pull: Pull | None = None
        self._woken = Latch(session.write_buffer)
        self._changed = False
        self._stopping = False
        self._detached = False
        self._watch_error: Error | None = None
        self._reading = threading.Lock()
        self._reader: threading.Thread | None = None
        self._state = StateMachine(MemberState.JOINING, TRANSITIONS)
        self.error: Error | None = None
        """The error that ended the member."""
        self.finished = Latch(session.write_buffer)
        """Opens once the member has left."""
        self._watch: Watch[bytes] = bucket.watch(self._key, on_error=self.report)
        try:
            self._read_config()
            session.register_drainable(self)
            session.thread_factory.start(
                f"{session.name}-{group}-{member}", self._watch_config
            )
        except BaseException:
            self._watch.stop()
            raise

    # Any thread -----------------------------------------------------------------------

    @property
    def state(self) -> MemberState:
        """The state of the member."""
        return self._state.current

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that the member reads now."""
        return self._partitions if self.state is MemberState.ACTIVE else ()

    def stop(self) -> None:
        """Make the member end after the current message."""
        with self._flags:
            self._stopping = True
        self._wake()

    def leave(self) -> None:
        """Stop the member, and end it here unless a thread still reads or has a message."""
        self.stop()
        if not self._reading.acquire(blocking=False):
            return
        try:
            if self._reader is threading.current_thread():
                self._ack_extender.stop()
            if self.state is not MemberState.ENDED and not self._ack_extender:
                self._end(None)
        finally:
            self._reading.release()

    def detach(self) -> None:
        """Leave because the member was dropped. For finalisers, so it takes no lock."""
        self._detached = True
        self.session.call_soon(self._watch.stop)  # makes the watching thread leave

    def _stop_delivery(self) -> None:
        """Leave after the current message. The first step of a drain of the connection."""
        self.leave()

    def _wait_finished(self, deadline: float, timeout: float) -> None:
        """Wait until the reading thread has left. The last step of a drain.

        Waits only for a thread that is waiting for a message, not for a loop that is
        handling one. `consume` itself waits for its handler.
        """
        if self._reading.locked():
            self.finished.wait(max(0.0, deadline - monotonic()))

    def report(self, error: Exception) -> None:
        """Report an error that does not end the member to `on_error`, and log it."""
        self.session.callbacks.submit(self._notify_error, error)

    def _notify_error(self, error: Exception) -> None:
        logger.warning(
            *("%s.%s, member %s: %s: %s", self.stream, self.group, self.member),
            *(type(error).__name__, error),
        )
        if self._on_error is not None:
            self._on_error(error)

    def _wake(self) -> None:
        """Wake the reading thread to check the flags."""
        with self._flags:
            wake, pull = self._woken, self._pull
        wake.set()
        if pull is not None:
            pull.close()

    # The thread that watches ----------------------------------------------------------

    def _watch_config(self) -> None:
        try:
            for entry in self._watch:
                self._watched_revision = entry.revision
                if entry.revision > self._revision:
                    with self._flags:
                        self._changed = True
                    self._wake()
        except Error as error:
            with self._flags:
                self._watch_error = error
        if self._detached:
            self._ack_extender.stop()
            self.leave()
        self._wake()

    # The thread that reads ------------------------------------------------------------

    def take(self, deadline: float | None = None) -> JetStreamMsg | None:
        """Wait for the next message. None at `deadline`, or once the member has ended.

        The call shows that the caller has finished the message before.
        """
        if not self._reading.acquire(blocking=False):
            raise ConcurrentUseError(
                f"member {self.member!r} is being read by another thread; join once more "
                "for another reader"
            )
        try:
            self._reader = threading.current_thread()
            self._ack_extender.stop()
            while self.state is not MemberState.ENDED:
                # Create the latch before reading the flags, so that no change is missed.
                with self._flags:
                    self._woken = Latch(self.session.write_buffer)
                msg = self._run_once(deadline)
                if msg is not None:
                    return msg
                if deadline is not None and monotonic() >= deadline:
                    break
            return None
        finally:
            self._reading.release()

    def _run_once(self, deadline: float | None) -> JetStreamMsg | None:
        try:
            with self._flags:
                stopping, failed = self._stopping, self._watch_error
                changed = self._changed and not (stopping or failed)
                if changed:
                    self._changed = False
            if stopping:
                self._end(None)
            elif failed is not None:
                self._end(failed)
            elif changed:
                self._rebalance()
            elif self.state is MemberState.JOINING:
                self._join()
            elif self.state is MemberState.ACTIVE:
                return self._next(deadline)
            elif self.state is MemberState.WAITING:
                self._wait_backoff(deadline)
                self._transition(MemberState.JOINING)
            else:
                self._wait(None, deadline)
        except StreamNotFoundError as error:
            self._on_stream_missing(error, deadline)
        except _PERMANENT_ERRORS as error:
            self._end(error)
        except Error as error:
            if isinstance(error, APIError | NoRespondersError | PullError):
                self.report(error)
            with self._flags:
                self._changed = True  # once more
            self._wait_backoff(deadline)
        return None

    def _on_stream_missing(
        self, error: StreamNotFoundError, deadline: float | None
    ) -> None:
        """End if the stream, or the bucket of groups, is missing for `CONFIRM_SECONDS`.

        Does not end before, because the servers of a cluster may not know all streams right
        after their start, and because an operator may restore a stream.
        """
        moment = monotonic()
        if self._missing_since is None:
            self._missing_since = moment
        if moment - self._missing_since >= CONFIRM_SECONDS:
            # A group is gone with its configuration, and its stream only afterwards.
            gone = isinstance(error, BucketNotFoundError) or self._is_deleted()
            self._end(None if gone else error)
            return
        if isinstance(error, BucketNotFoundError):
            with self._flags:
                self._changed = True  # once more
        self._wait_backoff(deadline)

    def _transition(self, to: MemberState) -> None:
        if to is not MemberState.JOINING:
            self._missing_since = None
        self._state.to(to)

    def _wait(self, seconds: float | None, deadline: float | None) -> None:
        """Wait until the latch is set, for `seconds` at most, and not past `deadline`."""
        if deadline is not None:
            left = max(0.0, deadline - monotonic())
            seconds = left if seconds is None else min(seconds, left)
        self._woken.wait(seconds)

    def _wait_backoff(self, deadline: float | None = None) -> None:
        self._wait(self._backoff, deadline)
        self._backoff = min(2 * self._backoff, MAX_BACKOFF)

    # The configuration ----------------------------------------------------------------

    def _read_config(self) -> bool:
        """Read the configuration. Returns False if the group was deleted."""
        try:
            entry = self._bucket.get(self._key)
        except (KeyNotFoundError, BucketNotFoundError) as error:
            if self._config is None:
                raise ConsumerGroupNotFoundError(
                    f"stream {self.stream!r} has no consumer group {self.group!r}"
                ) from error
            if isinstance(error, BucketNotFoundError):
                raise
            # A marker that is older than the configuration comes from a former leader.
            return (
                isinstance(error, KeyDeletedError) and error.revision < self._revision
            )
        if entry.revision < self._revision:
            return True  # a former leader answered
        config = read_config(self.kind, entry.value, self._key)
        if self._config is not None and not self._config.is_compatible(config):
            raise ConsumerGroupChangedError(
                f"consumer group {self._key!r} has changed beyond its members; join again"
            )
        if self.kind == "static" and not config.partitions_of(self.member):
            raise NotInConsumerGroupError(
                f"static consumer group {self._key!r} has no member {self.member!r}, only "
                f"{', '.join(config.member_names)}"
            )
        self._config, self._revision = config, entry.revision
        return True

    def _is_deleted(self) -> bool:
        with contextlib.suppress(Error):
            return not self._read_config()
        return False

    def _rebalance(self) -> None:
        """Read the configuration again, after a change or an error."""
        before = self._revision
        try:
            found = self._read_config()
        except Error as error:
            if isinstance(error, ConsumerGroupChangedError | InvalidConsumerGroupError):
                self._release_consumer()
            raise
        if not found:
            self._end(None, deleted=True)
            return
        if self._revision < self._watched_revision:
            with self._flags:
                self._changed = True  # a former leader answered
            self._wait_backoff()
            return
        assert self._config is not None
        partitions = self._config.partitions_of(self.member)
        if self._revision > before:
            self._backoff = INITIAL_BACKOFF
        if self.state is MemberState.ACTIVE:
            if partitions == self._partitions:
                self._missing_since = None
                return
            self._release_consumer()
        if self.state is not MemberState.JOINING:
            self._transition(MemberState.JOINING)

    # The consumer ---------------------------------------------------------------------

    def _join(self) -> None:
        """Create the consumer, or wait if another member or instance has the partitions."""
        if not self._read_config():
            self._end(None, deleted=True)
            return
        config = self._config
        assert config is not None
        self._partitions = config.partitions_of(self.member)
        if not self._partitions:
            self._transition(MemberState.IDLE)
            return
        requested = member_consumer(
            config, self.group, self.member, self._ack_wait, self._max_ack_pending
        )
        try:
            info = upsert_consumer(
                self._api, self._reads, "create", requested, {}, None
            )
        except WorkQueueConsumerError:
            self._transition(
                MemberState.WAITING
            )  # for the former member of these partitions
            return
        except ConsumerExistsError as error:
            if self.kind == "static":
                self._end(error)
                return
            # The consumer belongs to another instance, or to an earlier run of this
            # one.
            self._consumer = Consumer(self._api, self._reads, self._consumer_name)
            self._has_received = False
            self._release_consumer()
            self._transition(MemberState.WAITING)
            return
        self._consumer = Consumer(self._api, self._reads, self._consumer_name, info)
        self._target = PullTarget(
            self._api,
            f"{self._reads}.{self._consumer_name}",
            acks=True,
            priority=PriorityOptions(priority_group(config, self.member)),
            pin=PinId(),
            max_unacked=self._max_ack_pending,
        )
        self._has_received = False
        self._backoff = INITIAL_BACKOFF
        self._transition(MemberState.ACTIVE)

    def _release_consumer(self) -> None:
        """Delete the consumer if the server serves this instance.

        After a change of the partitions, another consumer may have to read them from an
        earlier message on. No message is being handled now, but acks may be on their way,
        so this waits for them.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is None:
            return
        started_at = monotonic()
        try:
            while True:
                decision = decide_handover(
                    consumer.info(),
                    self._pin(),
                    has_received=self._has_received,
                    waited=monotonic() - started_at,
                )
                if decision is HandoverAction.LEAVE:
                    return
                if decision is HandoverAction.DELETE:
                    delete_consumer(self._api, self._reads, consumer.name)
                    return
                self.session.sleep(INITIAL_BACKOFF / 4)
        except (ConsumerNotFoundError, StreamNotFoundError):
            pass
        except BaseException:
            self._consumer = consumer
            raise

    def _pin(self) -> str:
        """Return the id that the server has given this instance, or an empty string."""
        target = self._target
        return target.pin.id if target is not None and target.pin is not None else ""

    # Messages -------------------------------------------------------------------------

    def _next(self, deadline: float | None) -> JetStreamMsg | None:
        """Pull a message. None if none came, or if it is too old to be handled."""
        assert self._target is not None
        request, seconds = self._request, self._seconds
        if deadline is not None:
            seconds = min(seconds, max(0.01, deadline - monotonic()))
            request = request.with_expiry(seconds)
        sent = boottime()
        pull = Pull(self._target, request, seconds)
        with self._flags:
            self._pull = pull
            roused = self._changed or self._stopping or self._watch_error is not None
        msg = None
        try:
            if not roused:
                msg = pull.take()
        except (ConsumerDeletedError, NoRespondersError):
            # Another instance with a newer configuration deleted it, or the group was
            # deleted.
            self._consumer = None
            self._transition(MemberState.JOINING)
            self._wait_backoff(deadline)
        finally:
            with self._flags:
                self._pull = None
            pull.close()
        if msg is None:
            return None
        if is_stale(sent, boottime(), self._ack_wait):
            return None
        self._has_received = True
        self._backoff = INITIAL_BACKOFF
        take_partition(msg)
        self._ack_extender.start(msg)
        return msg

    # The end --------------------------------------------------------------------------

    def _end(self, error: Error | None, *, deleted: bool = False) -> None:
        """End the member, and hand over to a waiting instance without a delay."""
        self._ack_extender.stop()
        self.error = self.error or error
        self._transition(MemberState.ENDED)
        with contextlib.suppress(Error):
            if self._consumer is not None and self.error is None:
                if deleted:
                    self._release_consumer()
                else:
                    self._hand_over(self._consumer)
        with contextlib.suppress(Error):
            self._watch.stop()
        self.finished.set()

    def _hand_over(self, consumer: Consumer) -> None:
        """Return the pin, so that the server immediately serves another instance.

        If no instance of an elastic member waits, the consumer is deleted. The next member
        of its partitions then need not wait until the server deletes it.
        """
        pin, started_at = self._pin(), monotonic()
        info = consumer.info()
        while info.num_ack_pending and monotonic() < started_at + INITIAL_BACKOFF:
            self.session.sleep(INITIAL_BACKOFF / 4)
            info = consumer.info()
        served = next(
            (g for g in info.priority_groups or () if g.pinned_client_id), None
        )
        if served is not None and served.pinned_client_id != pin:
            return
        if self.kind == "elastic" and not (info.num_waiting or info.num_ack_pending):
            consumer.delete()
        elif served is not None:
            consumer.unpin(served.group)

    def __repr__(self) -> str:
        return (
            f"<member {self.member!r} of {self.stream}.{self.group} {self.state.value}>"
        )
