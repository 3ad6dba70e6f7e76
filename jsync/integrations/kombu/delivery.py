"""Messages on their way from streams and subscriptions to a channel of kombu."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import queue as queues
import threading
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import jsync
from jsync.errors import (
    ConnectionClosedError,
    ConnectionError as LostError,
    Error,
    ForkedProcessError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("jsync.kombu")

PULL_SECONDS = 30.0
MOST_WAITING = 500
"""Messages that wait here when kombu sets no prefetch count."""
PAUSE_SECONDS = 0.5


class Delivery(NamedTuple):
    """A message and the queue that it came from."""

    tag: str
    queue: str
    priority: int
    msg: jsync.Msg

    @property
    def redelivered(self) -> bool:
        """Whether somebody had the message before."""
        msg = self.msg
        return isinstance(msg, jsync.JetStreamMsg) and msg.metadata.num_delivered > 1

    def give_back(self) -> None:
        """Have the server deliver the message again, to anybody."""
        if isinstance(self.msg, jsync.JetStreamMsg):
            self.msg.nak()


class Bell:
    """Wakes the thread that waits, or the event loop that watches `fileno`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung = False
        self._tokens: queues.SimpleQueue[None] = queues.SimpleQueue()
        self._pipe: tuple[int, int] | None = None

    def ring(self) -> None:
        """Wake it. A second ring before `clear` does nothing."""
        with self._lock:
            if self._rung:
                return
            self._rung = True
            self._tokens.put(None)
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def wait(self, timeout: float | None) -> bool:
        """Wait for a ring. False: none came in time."""
        try:
            self._tokens.get(timeout=timeout)
        except queues.Empty:
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Hear the next ring."""
        with self._lock:
            self._rung = False
            while not self._tokens.empty():
                self._tokens.get_nowait()
            if self._pipe is not None:
                try:
                    os.read(self._pipe[0], 4096)
                except BlockingIOError:
                    return

    def fileno(self) -> int:
        """A descriptor that can be read after each ring."""
        with self._lock:
            if self._pipe is None:
                self._pipe = os.pipe()
                for end in self._pipe:
                    os.set_blocking(end, False)
                if self._rung:
                    os.write(self._pipe[1], b"!")
            return self._pipe[0]

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)


class Arrivals:
    """The messages of a channel: those that wait for kombu, and those that it holds.

    A message of a stream is held from its delivery to its ack, reject or requeue.
    """

    def __init__(self, bell: Bell) -> None:
        self._bell = bell
        self._lock = threading.Lock()
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, Delivery]] = []
        self._held: dict[str, Delivery] = {}
        self._lanes: dict[str, list[Lane]] = {}
        self._read: set[str] = set()
        """Queues that a consumer reads."""
        self.limit = 0
        """The prefetch count. 0: none."""
        self.failure: Exception | None = None

    # What comes -----------------------------------------------------------------------

    def put(self, queue: str, priority: int, msg: jsync.Msg) -> bool:
        """Take a message in. False: nobody reads the queue any more."""
        delivery = Delivery(uuid4().hex, queue, priority, msg)
        with self._lock:
            if queue not in self._read:
                return False
            heapq.heappush(self._waiting, (-priority, next(self._order), delivery))
        self._bell.ring()
        return True

    def fail(self, error: Exception) -> None:
        """No more messages can come."""
        self.failure = error
        self._bell.ring()

    @property
    def has_lanes(self) -> bool:
        """Whether a stream is read."""
        return any(self._lanes.values())

    @property
    def has_news(self) -> bool:
        """Whether a message waits for kombu, or a failure."""
        return bool(self._waiting) or self.failure is not None

    def room(self, lane: Lane) -> int:
        """How many messages a lane may ask for now."""
        with self._lock:
            lanes = sum(map(len, self._lanes.values()))
            waiting = len(self._waiting)
            if lanes > 1 and any(
                (found.queue, found.priority) == (lane.queue, lane.priority)
                for _, _, found in self._waiting
            ):
                return 0
            free = self._free(waiting)
            # Pull one at a time from several lanes, so that none takes all the room.
            return free if lanes == 1 else 1

    def more(self) -> int:
        """How many messages a lane may ask for that has just found one."""
        with self._lock:
            return self._free(len(self._waiting))

    def _free(self, waiting: int) -> int:
        if not self.limit:
            return max(0, MOST_WAITING - waiting)
        return max(0, self.limit - len(self._held) - waiting)

    # What kombu takes -----------------------------------------------------------------

    def take(self, *, hold: Callable[[str], bool]) -> Delivery | None:
        """The next message that kombu may have, the highest priority first."""
        with self._lock:
            if not self._waiting or (self.limit and len(self._held) >= self.limit):
                return None
            _, _, delivery = heapq.heappop(self._waiting)
            if hold(delivery.queue):
                self._held[delivery.tag] = delivery
        self._wake()
        return delivery

    def hold(self, queue: str, msg: jsync.Msg) -> Delivery:
        """Note a message that kombu got by asking for one."""
        delivery = Delivery(uuid4().hex, queue, 0, msg)
        with self._lock:
            self._held[delivery.tag] = delivery
        return delivery

    def done(self, tag: str) -> Delivery | None:
        """Forget a message that kombu is done with."""
        with self._lock:
            delivery = self._held.pop(tag, None)
            more = bool(self._waiting)
        self._wake()
        if more:
            self._bell.ring()
        return delivery

    def done_until(self, tag: str) -> list[Delivery]:
        """Forget a message, and all that kombu got before it."""
        with self._lock:
            before = list(self._held) if tag in self._held else []
            tags = before[: before.index(tag) + 1] if before else []
        found = [self.done(each) for each in tags]
        return [delivery for delivery in found if delivery is not None]

    def set_limit(self, limit: int) -> None:
        """Set the prefetch count."""
        with self._lock:
            self.limit = limit
        self._wake()
        self._bell.ring()

    def _wake(self) -> None:
        with self._lock:
            lanes = [lane for found in self._lanes.values() for lane in found]
        for lane in lanes:
            lane.wake()

    # Who reads ------------------------------------------------------------------------

    def read(self, queue: str, lanes: list[Lane]) -> None:
        """Begin to read a queue."""
        with self._lock:
            self._read.add(queue)
            self._lanes[queue] = lanes
        for lane in lanes:
            lane.start()

    def leave(self, queue: str) -> None:
        """Read a queue no more, and give back what waits. Held messages stay held."""
        with self._lock:
            self._read.discard(queue)
            lanes = self._lanes.pop(queue, [])
            left = [entry[2] for entry in self._waiting if entry[2].queue == queue]
            self._waiting = [e for e in self._waiting if e[2].queue != queue]
            heapq.heapify(self._waiting)
        for lane in lanes:
            lane.stop()
        for delivery in left:
            delivery.give_back()
        for lane in lanes:
            lane.join(5)

    def release(self) -> list[Delivery]:
        """Forget all that is held, for somebody else to have it."""
        with self._lock:
            held = list(self._held.values())
            self._held.clear()
        self._wake()
        return held

    def keep(self) -> None:
        """Tell the server that the messages here are being worked on."""
        with self._lock:
            here = [*self._held.values(), *(entry[2] for entry in self._waiting)]
        for delivery in here:
            if isinstance(delivery.msg, jsync.JetStreamMsg):
                delivery.msg.in_progress()


class Lane(threading.Thread):
    """Pulls the messages of one priority of a queue, as many as there is room for."""

    def __init__(
        self,
        arrivals: Arrivals,
        queue: str,
        priority: int,
        make: Callable[[], jsync.Consumer],
    ) -> None:
        super().__init__(name=f"jsync-kombu-{queue}-{priority}", daemon=True)
        self.queue = queue
        self.priority = priority
        self._arrivals = arrivals
        self._make = make
        self._tokens: queues.SimpleQueue[None] = queues.SimpleQueue()
        self._lock = threading.Lock()
        self._batch: jsync.Batch | None = None
        self._stopped = False

    def wake(self) -> None:
        """There may be room."""
        if self._tokens.empty():
            self._tokens.put(None)

    def stop(self) -> None:
        """End at once. Messages that have not been read go back to the server."""
        with self._lock:
            self._stopped = True
            batch = self._batch
        self._tokens.put(None)
        if batch is not None:
            batch.close()

    def run(self) -> None:
        """Pull until stopped."""
        consumer: jsync.Consumer | None = None
        while not self._stopped:
            room = self._arrivals.room(self)
            if not room:
                self._pause(PULL_SECONDS)
                continue
            try:
                consumer = consumer or self._make()
                if self._pull(consumer.fetch(room, timeout=PULL_SECONDS)):
                    more = self._arrivals.more()
                    if more and not self._stopped:
                        self._pull(consumer.fetch_nowait(more))
            except (ConnectionClosedError, ForkedProcessError) as error:
                self._arrivals.fail(error)
                return
            except (LostError, TimeoutError) as error:
                self._failed(error, logging.INFO)
            except Error as error:
                consumer = None  # the consumer or its stream may have been deleted
                self._failed(error, logging.WARNING)

    def _pull(self, batch: jsync.Batch) -> int:
        """Hand over what comes, and say how many came."""
        with self._lock:
            self._batch = batch
            stopped = self._stopped
        came = 0
        with batch:
            if stopped:
                return 0
            for msg in batch:
                came += 1
                if not self._arrivals.put(self.queue, self.priority, msg):
                    msg.nak()
        return came

    def _failed(self, error: Exception, grade: int) -> None:
        if not self._stopped:
            log.log(grade, "queue %s: %s; trying again", self.queue, error)
            self._pause(PAUSE_SECONDS)

    def _pause(self, seconds: float) -> None:
        try:
            self._tokens.get(timeout=seconds)
        except queues.Empty:
            return


class Keeper(threading.Thread):
    """Tells the server now and then that the messages of a channel are worked on."""

    def __init__(self, arrivals: Arrivals, ack_wait: float) -> None:
        super().__init__(name="jsync-kombu-keeper", daemon=True)
        self._arrivals = arrivals
        self._seconds = ack_wait / 3
        self._ending: queues.SimpleQueue[None] = queues.SimpleQueue()

    def run(self) -> None:
        """Until `stop`, or until the connection is closed."""
        while True:
            try:
                self._ending.get(timeout=self._seconds)
            except queues.Empty:
                try:
                    self._arrivals.keep()
                except ConnectionClosedError:
                    return
                except Error as error:
                    log.info("cannot keep messages: %s", error)
            else:
                return

    def stop(self) -> None:
        """End it."""
        self._ending.put(None)
        self.join(5)
