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

from .engine import Lane, LaneRequest, Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .acks import DeliveryTracker
    from .self_pipe import SelfPipe

log = logging.getLogger("jsync.kombu")

PULL_SECONDS = 30.0
PROBE_SECONDS = 1.0
"""Seconds for the answer to a pull that does not wait, since other lanes wait for it."""
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
        self._pullers: dict[Lane, LanePuller] = {}
        self._read: set[str] = set()
        """The queues that a consumer reads."""
        self.failure: Exception | None = None

    # Arrival --------------------------------------------------------------------------

    def put(self, lane: Lane, msg: jsync.Msg) -> bool:
        """Accept a message. Return False if the queue has no consumer any more."""
        if isinstance(msg, jsync.JetStreamMsg) and not self._tracker.begin(msg):
            return True  # this process has the message already
        delivery = Delivery(uuid4().hex, lane.queue, lane.priority, msg)
        with self._lock:
            if lane.queue not in self._read:
                return False
            before = self._prefetch.dropped
            back = self._prefetch.arrived(delivery)
            begins_to_drop = not before and self._prefetch.dropped
            excess = [self._pullers[x] for x in self._prefetch.excess() if x != lane]
        self._self_pipe.wake()
        if begins_to_drop:
            log.warning(
                "queue %s: its consumer does not read, so the oldest messages are dropped",
                lane.queue,
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
    def has_lanes(self) -> bool:
        """True if the channel reads a stream."""
        with self._lock:
            return bool(self._pullers)

    @property
    def is_readable(self) -> bool:
        """True if a message, or a failure, waits for kombu."""
        return self._prefetch.has_waiting or self.failure is not None

    # Pulls ----------------------------------------------------------------------------

    def pull(self, lane: Lane) -> LaneRequest | None:
        """Begin a pull of a lane. None if the lane has to wait until it is woken."""
        with self._lock:
            return self._prefetch.pull(lane)

    def is_excess(self, lane: Lane) -> bool:
        """Return whether a lane waits at the server although there is no more room."""
        with self._lock:
            return lane in self._prefetch.excess()

    def ended(self, lane: Lane, count: int) -> None:
        """Record the end of a pull."""
        with self._lock:
            self._prefetch.ended(lane, count, monotonic())
        self._wake()

    def mark_unavailable(self, lane: Lane) -> None:
        """Leave out a lane that has failed, until `mark_available`."""
        with self._lock:
            self._prefetch.mark_unavailable(lane)
        self._wake()

    def mark_available(self, lane: Lane) -> None:
        """Let a lane pull."""
        with self._lock:
            self._prefetch.mark_available(lane)

    def _wake(self) -> None:
        with self._lock:
            ready = [self._pullers[lane] for lane in self._prefetch.ready()]
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
        """Wake lanes and the self-pipe, since there may be room for a pull or a message."""
        self._wake()
        if self._prefetch.has_waiting:
            self._self_pipe.wake()

    # Consumers ------------------------------------------------------------------------

    def read(self, queue: str, pullers: list[LanePuller]) -> None:
        """Begin to read a queue."""
        with self._lock:
            self._read.add(queue)
            self._prefetch.join(puller.lane for puller in pullers)
            self._pullers |= {puller.lane: puller for puller in pullers}
        for puller in pullers:
            puller.start()

    def leave(self, queue: str) -> tuple[list[LanePuller], list[Delivery]]:
        """Stop reading a queue. Return its pullers and its waiting messages.

        Messages that kombu holds stay held.
        """
        with self._lock:
            self._read.discard(queue)
            left = self._prefetch.leave(queue)
            pullers = [p for lane, p in self._pullers.items() if lane.queue == queue]
            for puller in pullers:
                del self._pullers[puller.lane]
        self._wake()
        return pullers, left


class LanePuller(threading.Thread):
    """A thread that pulls the messages of one lane, as many as there is room for."""

    def __init__(
        self,
        buffer: DeliveryBuffer,
        tracker: DeliveryTracker,
        lane: Lane,
        make_consumer: Callable[[], jsync.Consumer],
    ) -> None:
        super().__init__(name=f"jsync-kombu-{lane.queue}-{lane.priority}", daemon=True)
        self.lane = lane
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
            log.exception("queue %s: cannot be read any more", self.lane.queue)
            self._buffer.fail(error)

    def _work(self) -> None:
        consumer: jsync.Consumer | None = None
        unavailable = True
        while not self._over.is_set():
            try:
                if consumer is None:
                    consumer = self._make_consumer()
                if unavailable:
                    self._buffer.mark_available(self.lane)
                    unavailable = False
                pull = self._buffer.pull(self.lane)
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

    def _pull(self, consumer: jsync.Consumer, pull: LaneRequest) -> None:
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
                if stopped or self._buffer.is_excess(self.lane):
                    return
                for msg in batch:
                    count += 1
                    if not self._buffer.put(self.lane, msg):
                        self._tracker.nak(msg)
            if batch.error is not None:  # the pull was interrupted
                raise batch.error
        finally:
            with self._lock:
                self._batch = None
            self._buffer.ended(self.lane, count)

    def _failed(self, error: Exception, grade: int) -> None:
        if self._over.is_set():
            return
        log.log(grade, "queue %s: %s; trying again", self.lane.queue, error)
        self._buffer.mark_unavailable(self.lane)
        # A token does not end the pause, because the end of each pull wakes all lanes.
        self._over.wait(PAUSE_SECONDS)


def stop_all(pullers: Iterable[LanePuller]) -> None:
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
