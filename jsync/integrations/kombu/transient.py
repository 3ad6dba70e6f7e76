"""Temporary queues on core NATS, without a stream: control, replies, events."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from jsync.errors import ConnectionClosedError

from .codec import delivery_info, pack, unpack
from .names import (
    binding_subject,
    encode_token,
    exchange_subject,
    first_match,
    queue_subject,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import jsync

log = logging.getLogger("jsync.kombu")

MAX_WAITING = 10_000
"""The most messages that wait for a consumer. Beyond it, the oldest are dropped."""


class TransientBinding(NamedTuple):
    """A binding of a temporary queue."""

    exchange: str
    kind: str
    pattern: str


CATCH_UP_SECONDS = 1.0
"""The longest wait in seconds until the callbacks of subscriptions have run."""
_POLL_SECONDS = 0.0005


class QueueSubscription:
    """A subscription of a queue, and the number of messages that were handled."""

    def __init__(self, bound: TransientBinding | None) -> None:
        self.binding = bound
        self.subscription: jsync.Subscription | None = None
        self.taken = 0
        """The number of handled messages. Only the thread of the callback changes it."""

    @property
    def is_caught_up(self) -> bool:
        """True if the callback has handled all messages that have arrived."""
        of = self.subscription
        return of is None or not of.is_active or of.delivered <= self.taken + of.dropped

    def close(self) -> None:
        """Unsubscribe."""
        if self.subscription is not None:
            with contextlib.suppress(ConnectionClosedError):
                self.subscription.unsubscribe()


class TransientQueue:
    """The messages of a queue since this process declared it. They have no acks."""

    def __init__(self, nc: jsync.Connection, prefix: str, name: str) -> None:
        self.name = name
        self._nc = nc
        self._prefix = prefix
        self._lock = threading.Lock()
        self._bound: list[TransientBinding] = []
        self._subscriptions: list[QueueSubscription] = []
        self._waiting: deque[jsync.Msg] = deque()
        self._overflows = False
        self.owners: set[object] = set()
        """The connections of kombu that have declared the queue."""
        self._reader: Callable[[str, jsync.Msg], object] | None = None
        self._subscribe(queue_subject(prefix, name, "*"), None)

    def bind(self, bound: TransientBinding) -> None:
        """Subscribe to the messages of an exchange as well."""
        with self._lock:
            if bound in self._bound:
                return
            self._bound.append(bound)
        self._subscribe(self._subject(bound), bound)

    def _subject(self, bound: TransientBinding) -> str:
        return binding_subject(self._prefix, bound.kind, bound.exchange, bound.pattern)

    def unbind(self, exchange: str, pattern: str) -> None:
        """Unsubscribe from the messages of a binding."""
        with self._lock:
            ended = {
                b for b in self._bound if (b.exchange, b.pattern) == (exchange, pattern)
            }
            self._bound = [bound for bound in self._bound if bound not in ended]
            subscriptions = [
                subscription
                for subscription in self._subscriptions
                if subscription.binding in ended
            ]
            self._subscriptions = [
                subscription
                for subscription in self._subscriptions
                if subscription not in subscriptions
            ]
        for subscription in subscriptions:
            subscription.close()

    def _subscribe(self, subject: str, bound: TransientBinding | None) -> None:
        subscription = QueueSubscription(bound)

        def arrived(msg: jsync.Msg) -> None:
            try:
                if bound is None or self._is_for(msg, bound):
                    self._arrived(msg)
            finally:
                subscription.taken += 1

        # Each queue needs its own group: of two subscriptions in one group, even to two
        # subjects, the server serves only one.
        group = f"{encode_token(self.name)}-{hashlib.sha256(subject.encode()).hexdigest()[:16]}"
        subscription.subscription = self._nc.subscribe(
            subject, queue=group, callback=arrived
        )
        with self._lock:
            self._subscriptions.append(subscription)

    def _is_for(self, msg: jsync.Msg, bound: TransientBinding) -> bool:
        """Return whether this is the first binding that matches a message.

        Several bindings can bring the same message, but only the first one counts.
        """
        info = delivery_info(unpack(msg).properties)
        with self._lock:
            mine = [other for other in self._bound if other.exchange == bound.exchange]
        patterns = [(other.kind, other.pattern) for other in mine]
        place = first_match(patterns, str(info.get("routing_key") or ""))
        return place is not None and mine[place] == bound

    def _arrived(self, msg: jsync.Msg) -> None:
        with self._lock:
            reader = self._reader
            if reader is None:
                self._waiting.append(msg)
                self._drop_oldest()
        if reader is not None:
            reader(self.name, msg)

    def _drop_oldest(self) -> None:
        if len(self._waiting) <= MAX_WAITING:
            self._overflows = self._overflows and len(self._waiting) > MAX_WAITING / 2
            return
        self._waiting.popleft()
        if not self._overflows:
            self._overflows = True
            log.warning(
                "queue %s has no consumer and %d messages: the oldest are dropped",
                *(self.name, MAX_WAITING),
            )

    def read(self, reader: Callable[[str, jsync.Msg], object] | None) -> None:
        """Pass waiting and new messages to a reader. Without a reader, keep them here."""
        while True:
            with self._lock:
                if reader is None or not self._waiting:
                    self._reader = reader
                    return
                msg = self._waiting.popleft()
            reader(self.name, msg)

    def take(self) -> jsync.Msg | None:
        """Return the next waiting message, or None."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def put_back(self, messages: list[jsync.Msg]) -> None:
        """Deliver messages again in this process, before the waiting messages."""
        with self._lock:
            reader = self._reader
            if reader is None:
                self._waiting.extendleft(reversed(messages))
                return
        for msg in messages:
            reader(self.name, msg)

    def purge(self) -> int:
        """Drop the waiting messages, and return their number."""
        with self._lock:
            count = len(self._waiting)
            self._waiting.clear()
            return count

    @property
    def size(self) -> int:
        """The number of waiting messages."""
        return len(self._waiting)

    @property
    def is_caught_up(self) -> bool:
        """True if kombu can find every message that has arrived."""
        with self._lock:
            return all(
                subscription.is_caught_up for subscription in self._subscriptions
            )

    def close(self) -> None:
        """End all subscriptions."""
        with self._lock:
            ending, self._subscriptions = self._subscriptions, []
        for subscription in ending:
            subscription.close()


class TransientQueues:
    """The temporary queues of this process. Any thread may use it."""

    def __init__(self, nc: jsync.Connection, prefix: str) -> None:
        self._nc = nc
        self._prefix = prefix
        self._lock = threading.Lock()
        self._queues: dict[str, TransientQueue] = {}

    def declare(self, name: str, owner: object) -> TransientQueue:
        """Return the queue of this name. The first call creates it."""
        with self._lock:
            if name not in self._queues:
                self._queues[name] = TransientQueue(self._nc, self._prefix, name)
            self._queues[name].owners.add(owner)
            return self._queues[name]

    def release(self, owner: object) -> None:
        """End the queues that no other connection of kombu has declared."""
        with self._lock:
            for queue in self._queues.values():
                queue.owners.discard(owner)
            unused = [name for name, queue in self._queues.items() if not queue.owners]
        for name in unused:
            self.delete(name)

    def get(self, name: str) -> TransientQueue | None:
        """Return the queue of this name, or None if this process has not declared it."""
        with self._lock:
            return self._queues.get(name)

    def delete(self, name: str) -> None:
        """End a queue. It need not exist."""
        with self._lock:
            queue = self._queues.pop(name, None)
        if queue is not None:
            queue.close()

    def wait_delivered(self) -> None:
        """Wait until kombu can find every message that has arrived.

        The callbacks of subscriptions run on separate threads, which may be slower than the
        threads that read streams.
        """
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not self._is_caught_up and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    @property
    def _is_caught_up(self) -> bool:
        with self._lock:
            queues = list(self._queues.values())
        return all(queue.is_caught_up for queue in queues)

    def publish_to_queue(self, queue: str, message: dict[str, Any]) -> None:
        """Send a message to a queue without a stream."""
        data, headers = pack(message)
        self._nc.publish(queue_subject(self._prefix, queue, 0), data, headers=headers)

    def publish_to_exchange(
        self, exchange: str, routing_key: str, message: dict[str, Any]
    ) -> None:
        """Send a message to the temporary queues of all processes that match it."""
        data, headers = pack(message)
        subject = exchange_subject(self._prefix, exchange, routing_key)
        self._nc.publish(subject, data, headers=headers)

    def close(self) -> None:
        """End all queues."""
        with self._lock:
            ending = list(self._queues.values())
            self._queues.clear()
        for queue in ending:
            queue.close()
