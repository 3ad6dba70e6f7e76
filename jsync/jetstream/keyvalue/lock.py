"""A distributed lock: a key that its holder renews. `KeyValue.lock` returns it."""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from ... import errors
from ..._fast import ends_by
from ...core.callbacks import as_callback_error
from ...core.clock import boottime, deadline_after
from ...core.resources import NotCopyable
from ...core.state import StateMachine
from ...core.sync import ForkSafeRLock, Latch
from ...errors import (
    ConcurrentUseError,
    ConnectionClosedError,
    Error,
    KeyExistsError,
    KeyNotFoundError,
    LockLostError,
    LockNotHeldError,
    SubscriptionClosedError,
    UnsupportedFeatureError,
    WrongRevisionError,
)
from ...validation import check_seconds, format_seconds
from ..buckets.engine import TRANSIENT_ERRORS
from .lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ...core.session import Session
    from ...validation import Seconds
    from .engine import Entry
    from .watch import Watch

RETRY_INTERVAL = 5.0
"""Seconds until the next attempt, if no release of the lock was seen before."""
ERROR_BACKOFF = 0.5
"""Seconds until the next attempt after servers could not answer."""
MARKER_TTL = 60
"""Seconds after which the marker of a release expires."""


class LockState(Enum):
    """The state of a lock object."""

    FREE = "it does not hold the lock, and nobody waits for it here"
    ACQUIRING = "a thread waits for the lock"
    HELD = "it holds the lock, or has lost it and not been released"
    RELEASING = "a thread gives the lock back"


TRANSITIONS: Final = {
    LockState.FREE: {LockState.ACQUIRING},
    LockState.ACQUIRING: {LockState.FREE, LockState.HELD},
    LockState.HELD: {LockState.RELEASING},
    LockState.RELEASING: {LockState.FREE, LockState.HELD},
}
"""The states that may follow each state. One thread at a time acquires, and one releases."""


class LockBucket(Protocol):
    """The bucket of a lock, of plain keys and bytes: a `KeyValue`."""

    @property
    def bucket(self) -> str: ...
    def create(
        self, key: str, value: bytes, *, ttl: int, timeout: Seconds | None = None
    ) -> int: ...
    def get(self, key: str, *, timeout: Seconds | None = None) -> Entry[bytes]: ...
    def purge(self, key: str, *, last: int, ttl: int | None = None) -> int: ...
    def watch(
        self, filters: str, /, *, timeout: Seconds | None = None
    ) -> Watch[bytes]: ...


class Lock(NotCopyable):
    """One holder at a time, among all programs that lock the same key.

    Use it in a `with` block, or call `acquire` and `release`. It is for one holder: make
    another one for another thread. Leaving the block raises `LockLostError` if the lock was
    lost inside.

    The lock is a key that expires. A thread renews it every third of its `ttl`. If that
    fails, the lock is lost for its holder a tenth of the `ttl` before another one can get
    it: `held` is False then, and `on_lost` is called.

    It trusts that the holder's clock and the server's run at the same rate, and that the
    server's clock is not set forward. The holder's is the clock of the machine since it was
    started, never the time of day. A holder that was stopped and wakes up may still be in
    the middle of its work: give `token` to what you write to, and have that refuse a lower
    one than it has seen.

    Example:
        ```python
        kv = js.create_key_value(bucket="locks", limit_marker_ttl=60)
        with kv.lock("report", ttl=30) as lock:
            print(lock.held, lock.token)
        ```
    """

    def __init__(
        self,
        bucket: LockBucket,
        session: Session,
        key: str,
        ttl: int,
        renew: Callable[[bytes, int, float], int],
        timeout: Seconds | None,
        on_lost: Callable[[LockLostError], object] | None,
    ) -> None:
        self._bucket, self._session = bucket, session
        self._key, self._ttl = key, ttl
        self._renew = renew
        self._timeout = timeout
        self._on_lost = on_lost
        self._owner = b""
        self._deadline: float | None = None
        """The deadline of the current `acquire`."""
        # Guards the state, the lease, the watch and its cancellation. Re-entrant, because
        # a signal handler may run while this thread holds it.
        self._state_lock = ForkSafeRLock()
        self._state = StateMachine(LockState.FREE, TRANSITIONS, self._state_lock)
        self._lease: Lease | None = None
        self._renew_thread: threading.Thread | None = None
        self._cancelled = Latch(session.write_buffer)
        self._watch: Watch | None = None
        # The error of the last attempt, if it had no answer.
        self._failure: Error | None = None
        # True while a create may be stored that has had no answer.
        self._unanswered = False
        self._released = self._finished = Latch(session.write_buffer)

    @property
    def key(self) -> str:
        """The key that is locked."""
        return self._key

    @property
    def held(self) -> bool:
        """True while you hold the lock, by the clock of this machine.

        A forked child does not hold the lock of its parent.
        """
        lease = self._lease
        return (
            lease is not None and lease.is_held(boottime()) and not self._session.forked
        )

    @property
    def token(self) -> int:
        """The revision of this holding. Each later holder has a higher one.

        Raises:
            LockLostError: The lock was lost.
            LockNotHeldError: It was not acquired, or it was released.
            ForkedProcessError: This is a child of the process that holds the lock.
        """
        self._session.write_buffer.check_process()
        lease = self._lease
        if lease is None:
            raise LockNotHeldError(f"lock not held: {self._key!r}; acquire it first")
        if not lease.is_held(boottime()):
            raise self._lost()
        return lease.token

    @property
    def remaining(self) -> float:
        """Seconds until the lock ends without a renewal. 0 if you do not hold it."""
        lease, moment = self._lease, boottime()
        if lease is None or not self.held:
            return 0.0
        return max(0.0, lease.ends - moment)

    def acquire(self, timeout: Seconds | None = None) -> bool:
        """Get the lock, and wait for it if another holder has it.

        While the servers cannot answer, without a leader or without JetStream for
        instance, it tries again until the timeout. The first such error goes to the
        `on_error` of the connection, or to the log. `cancel` ends the wait.

        Args:
            timeout: Seconds to wait. None: no limit. 0: try once.

        Returns:
            Whether you hold it now.

        Raises:
            ConfigError: `timeout` is not a number of seconds.
            ConcurrentUseError: This object holds it already.
            ForkedProcessError: This is a child of the process that made the lock.
            UnsupportedFeatureError: nats-server is older than 2.11, or the server that leads
                the bucket in a cluster of several versions. It would keep the lock of a dead
                holder forever. Nothing is stored.
            MessageTTLDisabledError: The bucket has no `limit_marker_ttl`.

        Example:
            ```python
            locks = js.create_key_value(bucket="locks", limit_marker_ttl=60)
            lock = locks.lock("report", ttl=30)
            if lock.acquire(timeout=5):
                print("it is ours")
                lock.release()
            ```
        """
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        deadline = None if timeout is None else deadline_after(timeout)
        self._session.write_buffer.check_process()
        if not self._state.try_to(LockState.ACQUIRING):
            raise ConcurrentUseError(
                f"lock is in use: {self._key!r}; make another one for another holder"
            )
        lease = None
        try:
            lease = self._acquire(deadline)
            if lease is None:
                self._discard_unanswered()
                self._state.try_to(LockState.FREE)
            else:
                self._start_renewal(lease)
        except BaseException:
            # For one, Ctrl-C, or no thread could be started.
            self._release_unclaimed(lease)
            raise
        return lease is not None

    def _acquire(self, deadline: float | None) -> Lease | None:
        """Wait for the lock. None at the deadline, or after `cancel`."""
        self._owner = secrets.token_hex(16).encode()
        # A single attempt has the default timeouts.
        once = deadline is not None and deadline <= time.monotonic()
        self._deadline = None if once else deadline
        while (lease := self._try()) is None:
            left = RETRY_INTERVAL if deadline is None else deadline - time.monotonic()
            if left <= 0 or self._cancelled.is_set:
                return None
            self._await_release(min(left, RETRY_INTERVAL))
            if self._left <= 0:  # no time for another attempt
                return None
        return lease

    @property
    def _left(self) -> float:
        """Seconds until the end of `acquire`. A single attempt has no end."""
        if self._deadline is None:
            return math.inf
        return self._deadline - time.monotonic()

    def _request_timeout(self) -> dict[str, float]:
        """Return the timeout of the next request of `acquire`, if the default is too long."""
        left = self._left
        return {} if left >= RETRY_INTERVAL else {"timeout": max(left, 0.0)}

    def _failed(self, error: Error) -> None:
        """Report that an attempt had no answer, unless the last one had the same error."""
        if type(error) is not type(self._failure):
            self._session.callbacks.report(error)
        self._failure = error

    def _start_renewal(self, lease: Lease) -> None:
        """Start the thread that renews a lease."""
        self._released = Latch(self._session.write_buffer)
        self._finished = Latch(self._session.write_buffer)
        with self._state_lock:
            self._lease = lease
            self._state.try_to(LockState.HELD)
        name = f"{self._session.name}-{self._bucket.bucket}-lock"
        self._session.thread_factory.start(name, lambda: self._renew_loop(lease))

    def _release_unclaimed(self, lease: Lease | None) -> None:
        """Release the lease of an `acquire` that ends by an exception."""
        with self._state_lock:
            if self._state.try_to(LockState.FREE):
                self._lease = None
        if self._lease is not None:
            self._finished.set()  # do not wait for the thread, which may not exist
            self.release()
        elif lease is not None:
            self._purge(lease.revision)
        else:
            self._discard_unanswered()

    def _start_thread(self, run: Callable[[], object]) -> None:
        name = f"{self._session.name}-{self._bucket.bucket}-lock"
        with contextlib.suppress(RuntimeError):  # no more threads: the entry expires
            self._session.thread_factory.start(name, run)

    def _discard_unanswered(self) -> None:
        """Have a create removed that `acquire` gives up without its answer.

        It may be stored later, for instance by a server that was frozen. The lock
        would have no holder until it expires.
        """
        unanswered, self._unanswered = self._unanswered, False
        if unanswered:
            self._start_discarding(self._owner)

    def _start_discarding(self, owner: bytes) -> None:
        self._start_thread(lambda: self._discard(owner))

    def _discard(self, owner: bytes) -> None:
        """Remove the entry of an `owner` that has given up, until it would expire."""
        ends = boottime() + self._ttl
        missing = 0
        while boottime() < ends:
            try:
                entry = self._bucket.get(self._key)
            except KeyNotFoundError:
                # A server that was frozen may answer before it stores the create.
                missing += 1
                if missing > 1:
                    return
            except ConnectionClosedError:
                return
            except Error:
                pass
            else:
                if entry.value == owner:
                    self._purge(entry.revision)
                return
            with contextlib.suppress(Error):
                self._session.sleep(ERROR_BACKOFF)

    def cancel(self) -> None:
        """End an `acquire` that waits on another thread. Later ones do not wait."""
        with self._state_lock:
            self._cancelled.set()
            watch = self._watch
        if watch is not None:
            watch.stop()

    def release(self) -> None:
        """Give the lock back. Does nothing if you do not hold it."""
        lease, owner = self._lease, self._owner
        if lease is None:
            return
        try:
            if not self._state.try_to(LockState.RELEASING):
                return
            self._released.set()
            if threading.current_thread() is not self._renew_thread:
                self._finished.wait(lease.ttl)
            with self._state_lock:
                self._state.try_to(LockState.FREE)
                self._lease = None
            self._purge(lease.revision)
        except BaseException:
            # After Ctrl-C the lock may be released again. If it is free here already, a
            # thread removes the entry, which others would wait for until it expires.
            if self._state.current is LockState.RELEASING:
                self._state.try_to(LockState.HELD)
            if self._state.current is not LockState.HELD:
                if self._lease is lease:
                    self._lease = None
                self._start_discarding(owner)
            raise

    def _purge(self, revision: int) -> None:
        # Without an answer, the entry expires later. If another holder has the lock, its
        # entry stays.
        with contextlib.suppress(Error):
            try:
                self._bucket.purge(self._key, ttl=MARKER_TTL, last=revision)
            except UnsupportedFeatureError:
                # An older server leads the bucket by now. Its marker does not expire, but
                # hinders no later holder.
                self._bucket.purge(self._key, last=revision)

    def _try(self) -> Lease | None:
        """Create the key. Return the lease, or None if another holder has the lock."""
        sent = boottime()
        before, self._unanswered = self._unanswered, True
        try:
            revision = self._bucket.create(
                self._key, self._owner, ttl=self._ttl, **self._request_timeout()
            )
        except KeyExistsError:
            # Perhaps by an earlier attempt of ours.
            self._failure, self._unanswered = None, before
        except TRANSIENT_ERRORS as error:
            self._failed(error)
        except Error:
            self._unanswered = before  # the server has refused it
            raise
        else:
            self._failure, self._unanswered = None, False
            return Lease(self._ttl, revision, sent)
        if self._left <= 0:
            return None
        # A create without an answer may have been stored.
        sent = boottime()
        with contextlib.suppress(Error):
            entry = self._bucket.get(self._key, **self._request_timeout())
            if entry.value == self._owner:
                self._unanswered = True
                seconds = min(self._ttl / 2, max(self._left, 0.0))
                revision = self._renew(self._owner, entry.revision, seconds)
                self._unanswered = False
                return Lease(self._ttl, revision, sent)
            self._unanswered = False
        return None

    def _await_release(self, seconds: float) -> None:
        """Wait until the key is deleted or expires, but at most for `seconds`."""
        deadline = time.monotonic() + seconds
        try:
            with self._bucket.watch(self._key, **self._request_timeout()) as watch:
                with self._state_lock:
                    self._watch = watch
                    if self._cancelled.is_set:
                        return
                while not watch.initial_done or watch.revision:
                    entry = watch.next(max(0.0, deadline - time.monotonic()))
                    if entry.operation != "PUT":
                        return
        except SubscriptionClosedError:
            pass  # cancelled
        except TRANSIENT_ERRORS:
            # Without a quorum a watch is refused immediately.
            left = deadline - time.monotonic()
            if left > 0:
                self._cancelled.wait(min(left, ERROR_BACKOFF))

    # The thread that renews the lease -------------------------------------------------

    def _renew_loop(self, lease: Lease) -> None:
        """Renew the lease until it is released or lost."""
        self._renew_thread = threading.current_thread()
        try:
            while lease.is_held(boottime()):
                wait = max(0.0, min(lease.renew_at, lease.ends) - boottime())
                try:
                    if self._session.sleep(wait, self._released):
                        return
                except ConnectionClosedError:
                    if self._released.is_set:
                        return
                    lease.lost = True
                    break
                if lease.is_held(boottime()) and boottime() >= lease.renew_at:
                    self._extend(lease)
        finally:
            self._finished.set()
        self._notify_lost(self._lost())

    def _extend(self, lease: Lease) -> None:
        sent = boottime()
        seconds = min(lease.ends - sent, lease.ttl / 3)
        try:
            revision = self._renew(self._owner, lease.revision, seconds)
        except WrongRevisionError:
            self._check_holder(lease)
        except ConnectionClosedError:
            lease.lost = True
        except Error:
            lease.failed(boottime())
        else:
            lease.renewed(revision, sent, boottime())

    def _check_holder(self, lease: Lease) -> None:
        """Read the changed key: the lock is lost, unless an unanswered renewal was stored."""
        try:
            entry = self._bucket.get(self._key)
        except KeyNotFoundError:
            lease.lost = True
        except Error:
            lease.failed(boottime())
        else:
            if entry.value == self._owner and entry.revision > lease.revision:
                lease.revision = entry.revision  # and renew the lease immediately
            elif entry.value != self._owner:
                lease.lost = True
            else:
                lease.failed(boottime())  # a lagging replica answered

    def _lost(self) -> LockLostError:
        return LockLostError(
            f"lock lost: {self._key!r} in bucket {self._bucket.bucket!r}; stop the work "
            "that it guards"
        )

    def _notify_lost(self, error: LockLostError) -> None:
        if self._on_lost is None:
            if not self._session.closed_by_user:
                self._session.callbacks.report(error)
            return
        try:
            self._on_lost(error)
        except BaseException as raised:  # noqa: BLE001 - user code
            self._session.callbacks.report(
                as_callback_error("on_lost of a lock", raised)
            )

    def __enter__(self) -> Self:
        if not self.acquire(self._timeout):
            why = (
                "not acquired: the wait was cancelled"
                if self._cancelled.is_set
                else f"not free within {format_seconds(self._timeout)}"
            )
            raise errors.TimeoutError(f"lock {self._key!r} {why}") from self._failure
        return self

    # After Ctrl-C, the caller may have no other reference to the lock.
    @ends_by(lambda self: self._start_thread(self.release))
    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        lost = self._lease is not None and not self.held
        self.release()
        if lost and error is None:
            raise self._lost()

    def __repr__(self) -> str:
        return f"<Lock {self._key!r} {'held' if self.held else 'not held'}>"
