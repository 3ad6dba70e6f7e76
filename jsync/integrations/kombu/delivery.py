"""Messages on their way from streams and subscriptions to a channel of kombu."""

from __future__ import annotations

import contextlib
import logging
import queue as queues
import threading
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from amqp.exceptions import ConsumerCancelled

import jsync
from jsync import errors
from jsync.errors import ConnectionClosedError, Error, ForkedProcessError

from .engine import Prefetch, Subqueue, SubqueuePull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .acks import DeliveryTracker
    from .self_pipe import SelfPipe

log = logging.getLogger("jsync.kombu")

PULL_SECONDS = 30.0
PROBE_SECONDS = 1.0
"""Seconds for the answer to a pull that does not wait, since other subqueues wait for it."""
PAUSE_SECONDS = 0.5
STOP_SECONDS = 5.0


class Delivery(NamedTuple):
    """A message and the queue that it came from."""

    tag: str
    queue: str
    priority: int
    msg: jsync.Msg

    @property
    def can_return(self) -> bool:
        """True for a message of a stream, which the server can deliver again."""
        return isinstance(self.msg, jsync.JetStreamMsg)

    @property
    def redelivered(self) -> bool:
        """True if the server delivered the message before."""
        msg = self.msg
        return isinstance(msg, jsync.JetStreamMsg) and msg.is_redelivered


class DeliveryBuffer:
    """The messages of a channel: those that wait for kombu, and those that it holds.

    A message of a stream is held from its delivery to its ack, reject or requeue.
    """

    def __init__(self, self_pipe: SelfPipe, tracker: DeliveryTracker) -> None:
        self._self_pipe = self_pipe
        self._tracker = tracker
        self._lock = threading.Lock()
        self._prefetch: Prefetch[Delivery] = Prefetch()
        self._pullers: dict[Subqueue, SubqueuePuller] = {}
        self._read: set[str] = set()
        """The queues that a consumer reads."""
        self.failure: Exception | None = None

    # Arrival --------------------------------------------------------------------------

    def put(self, subqueue: Subqueue, msg: jsync.Msg) -> bool:
        """Accept a message. Return False if the queue has no consumer any more."""
        if isinstance(msg, jsync.JetStreamMsg) and not self._tracker.begin(msg):
            return True  # this process has the message already
        delivery = Delivery(uuid4().hex, subqueue.queue, subqueue.priority, msg)
        with self._lock:
            if subqueue.queue not in self._read:
                return False
            before = self._prefetch.dropped
            back = self._prefetch.arrived(delivery)
            begins_to_drop = not before and self._prefetch.dropped
            excess = [
                self._pullers[x] for x in self._prefetch.excess() if x != subqueue
            ]
        self._self_pipe.wake()
        if begins_to_drop:
            log.warning(
                "queue %s: its consumer does not read, so the oldest messages are dropped",
                subqueue.queue,
            )
        if back is not None:
            self._tracker.nak(back.msg)
        for puller in excess:
            puller.retract()
        return True

    def fail(self, error: Exception) -> None:
        """Record the error because of which no more messages can come."""
        self.failure = error
        self._self_pipe.wake()

    @property
    def has_subqueues(self) -> bool:
        """True if the channel reads a stream."""
        with self._lock:
            return bool(self._pullers)

    @property
    def is_readable(self) -> bool:
        """True if a message, or a failure, waits for kombu."""
        return self._prefetch.has_waiting or self.failure is not None

    # Pulls ----------------------------------------------------------------------------

    def pull(self, subqueue: Subqueue) -> SubqueuePull | None:
        """Begin a pull of a subqueue. None if the subqueue has to wait until it is woken."""
        with self._lock:
            return self._prefetch.pull(subqueue)

    def is_excess(self, subqueue: Subqueue) -> bool:
        """Return whether a subqueue waits at the server although there is no more room."""
        with self._lock:
            return subqueue in self._prefetch.excess()

    def ended(self, subqueue: Subqueue, count: int) -> None:
        """Record the end of a pull."""
        with self._lock:
            self._prefetch.ended(subqueue, count, monotonic())
        self._wake()

    def mark_unavailable(self, subqueue: Subqueue) -> None:
        """Leave out a subqueue that has failed, until `mark_available`."""
        with self._lock:
            self._prefetch.mark_unavailable(subqueue)
        self._wake()

    def mark_available(self, subqueue: Subqueue) -> None:
        """Let a subqueue pull."""
        with self._lock:
            self._prefetch.mark_available(subqueue)

    def _wake(self) -> None:
        with self._lock:
            ready = [self._pullers[subqueue] for subqueue in self._prefetch.ready()]
        for puller in ready:
            puller.wake()

    # Messages of kombu ----------------------------------------------------------------

    @property
    def limit(self) -> int:
        """The prefetch count. 0: no limit."""
        return self._prefetch.limit

    def set_limit(self, limit: int) -> None:
        """Set the prefetch count."""
        with self._lock:
            self._prefetch.set_limit(limit, monotonic())
        self._changed()

    def take(self, holds: Callable[[str], bool]) -> Delivery | None:
        """Return the next message that kombu may have, the highest priority first."""
        with self._lock:
            delivery = self._prefetch.take(holds)
        if delivery is not None:
            self._wake()
        return delivery

    def hold(self, queue: str, msg: jsync.Msg) -> Delivery:
        """Record a message that kombu got by `basic_get`."""
        delivery = Delivery(uuid4().hex, queue, 0, msg)
        with self._lock:
            self._prefetch.hold(delivery)
        return delivery

    def done(self, tag: str) -> Delivery | None:
        """Forget a message that kombu has finished."""
        with self._lock:
            delivery = self._prefetch.done(tag, monotonic())
        self._changed()
        return delivery

    def done_until(self, tag: str) -> list[Delivery]:
        """Forget a message, and all messages that kombu got before it."""
        with self._lock:
            found = self._prefetch.done_until(tag, monotonic())
        self._changed()
        return found

    def release(self) -> list[Delivery]:
        """Forget all held messages, and return them for other consumers."""
        with self._lock:
            held = self._prefetch.release(monotonic())
        self._changed()
        return held

    def _changed(self) -> None:
        """Wake subqueues and the self-pipe, since there may be room for a pull or a message."""
        self._wake()
        if self._prefetch.has_waiting:
            self._self_pipe.wake()

    # Consumers ------------------------------------------------------------------------

    def read(self, queue: str, pullers: list[SubqueuePuller]) -> None:
        """Begin to read a queue."""
        with self._lock:
            self._read.add(queue)
            self._prefetch.join(puller.subqueue for puller in pullers)
            self._pullers |= {puller.subqueue: puller for puller in pullers}
        for puller in pullers:
            puller.start()

    def leave(self, queue: str) -> tuple[list[SubqueuePuller], list[Delivery]]:
        """Stop reading a queue. Return its pullers and its waiting messages.

        Messages that kombu holds stay held.
        """
        with self._lock:
            self._read.discard(queue)
            left = self._prefetch.leave(queue)
            pullers = [
                p for subqueue, p in self._pullers.items() if subqueue.queue == queue
            ]
            for puller in pullers:
                del self._pullers[puller.subqueue]
        self._wake()
        return pullers, left


class SubqueuePuller(threading.Thread):
    """A thread that pulls the messages of one subqueue, as many as there is room for."""

    def __init__(
        self,
        buffer: DeliveryBuffer,
        tracker: DeliveryTracker,
        subqueue: Subqueue,
        make_consumer: Callable[[], jsync.Consumer],
    ) -> None:
        super().__init__(
            name=f"jsync-kombu-{subqueue.queue}-{subqueue.priority}", daemon=True
        )
        self.subqueue = subqueue
        self._buffer = buffer
        self._tracker = tracker
        self._make_consumer = make_consumer
        self._tokens: queues.SimpleQueue[None] = queues.SimpleQueue()
        self._lock = threading.Lock()
        self._batch: jsync.Batch | None = None
        self._over = threading.Event()

    # From other threads ---------------------------------------------------------------

    def wake(self) -> None:
        """Wake the thread to check for room."""
        if self._tokens.empty():
            self._tokens.put(None)

    def retract(self) -> None:
        """End a pull that waits at the server. Its unread messages return to the server."""
        with self._lock:
            batch = self._batch
        if batch is not None:
            batch.close()

    def stop(self) -> None:
        """End immediately. Unread messages return to the server."""
        with self._lock:
            self._over.set()
        self._tokens.put(None)
        self.retract()

    # The thread -----------------------------------------------------------------------

    def run(self) -> None:
        """Pull until stopped."""
        try:
            self._work()
        except ConsumerCancelled as error:
            self._buffer.fail(error)
        except Exception as error:  # a silent end of the thread would stop the queue
            log.exception("queue %s: cannot be read any more", self.subqueue.queue)
            self._buffer.fail(error)

    def _work(self) -> None:
        consumer: jsync.Consumer | None = None
        unavailable = True
        while not self._over.is_set():
            try:
                if consumer is None:
                    consumer = self._make_consumer()
                if unavailable:
                    self._buffer.mark_available(self.subqueue)
                    unavailable = False
                pull = self._buffer.pull(self.subqueue)
                if pull is None:
                    with contextlib.suppress(queues.Empty):
                        self._tokens.get(timeout=PULL_SECONDS)
                else:
                    self._pull(consumer, pull)
            except (ConnectionClosedError, ForkedProcessError) as error:
                self._buffer.fail(error)
                return
            except (errors.ConnectionError, TimeoutError) as error:
                unavailable = True
                self._failed(error, logging.INFO)
            except Error as error:
                unavailable = True
                consumer = None  # the consumer or its stream may have been deleted
                self._failed(error, logging.WARNING)

    def _pull(self, consumer: jsync.Consumer, pull: SubqueuePull) -> None:
        """Send a pull request, and hand over its messages."""
        count = 0
        limits = consumer.config  # also those that the server has for all consumers
        messages = min(pull.messages, limits.max_batch or pull.messages)
        try:
            if pull.waits:
                seconds = min(PULL_SECONDS, limits.max_expires or PULL_SECONDS)
                batch = consumer.fetch(messages, timeout=seconds)
            else:
                batch = consumer.fetch_nowait(messages, timeout=PROBE_SECONDS)
            with self._lock:
                self._batch = batch
                stopped = self._over.is_set()
            with batch:
                if stopped or self._buffer.is_excess(self.subqueue):
                    return
                for msg in batch:
                    count += 1
                    if not self._buffer.put(self.subqueue, msg):
                        self._tracker.nak(msg)
            if batch.error is not None:  # the pull was interrupted
                raise batch.error
        finally:
            with self._lock:
                self._batch = None
            self._buffer.ended(self.subqueue, count)

    def _failed(self, error: Exception, grade: int) -> None:
        if self._over.is_set():
            return
        log.log(grade, "queue %s: %s; trying again", self.subqueue.queue, error)
        self._buffer.mark_unavailable(self.subqueue)
        # A token does not end the pause, because the end of each pull wakes all subqueues.
        self._over.wait(PAUSE_SECONDS)


def stop_all(pullers: Iterable[SubqueuePuller]) -> None:
    """Stop all pullers at the same time. Blocks for `STOP_SECONDS` at most."""
    pullers = list(pullers)
    deadline = monotonic() + STOP_SECONDS
    stopping = []
    for puller in pullers[1:]:
        thread = threading.Thread(
            target=puller.stop, name=f"{puller.name}-stop", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            puller.stop()
        else:
            stopping.append(thread)
    for puller in pullers[:1]:
        puller.stop()
    for thread in [*stopping, *pullers]:
        thread.join(max(0.0, deadline - monotonic()))
