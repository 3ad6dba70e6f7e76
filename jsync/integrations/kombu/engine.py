"""The prefetch count of a channel: which subqueues may pull, and which messages return. Pure.

A channel reads subqueues. A subqueue is one priority of one queue. The prefetch count limits
the messages that kombu holds, and the messages that wait for kombu, over all subqueues
together, so with a count the subqueues take turns. One after another pulls the messages that
its queue has now, the highest priority first. Empty subqueues wait at the server for one
message each. If two queues get a message at the same moment, more messages than the count may
come, and the excess message returns to its queue.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_WAITING = 500
"""The most messages that wait for kombu if there is no prefetch count."""
MAX_TRANSIENT = 10_000
"""The most messages without a stream that wait for kombu. Beyond it, the oldest are dropped."""
FRESH_SECONDS = 0.02
"""Seconds before an empty subqueue is tried again when the channel has room again."""


class Subqueue(NamedTuple):
    """One priority of a queue."""

    queue: str
    priority: int


class SubqueuePull(NamedTuple):
    """A request of a subqueue for messages."""

    messages: int
    """The most messages."""
    waits: bool
    """False: only the messages that the queue has now."""


class PrefetchedMessage(Protocol):
    """A message, as the engine sees it."""

    @property
    def tag(self) -> str:
        """The delivery tag."""

    @property
    def queue(self) -> str:
        """The name of the queue."""

    @property
    def priority(self) -> int:
        """The priority. The highest is first."""

    @property
    def can_return(self) -> bool:
        """True if the message can return to its queue."""


H = TypeVar("H", bound=PrefetchedMessage)


class Prefetch(Generic[H]):
    """The messages of a channel, and the pulls of its subqueues. The caller holds a lock."""

    def __init__(self) -> None:
        self.limit = 0
        """The prefetch count. 0: no limit."""
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, H]] = []
        self._passing = 0
        """The number of waiting messages that cannot return to their queue."""
        self.dropped = 0
        """The number of messages that were dropped."""
        self._held: dict[str, H] = {}
        self._pulls: dict[Subqueue, SubqueuePull | None] = {}
        """The running pull of each subqueue."""
        self._empty: dict[Subqueue, float] = {}
        """The times at which subqueues were found empty."""
        self._unavailable: set[Subqueue] = set()
        """Subqueues that cannot pull, since their consumer does not exist yet or has failed."""
        self._served: dict[str, int] = {}
        """A number for each queue: the queue that was served last has the highest."""

    # Subqueues ------------------------------------------------------------------------

    def join(self, subqueues: Iterable[Subqueue]) -> None:
        """Add subqueues. Each is unavailable until `mark_available`."""
        for subqueue in subqueues:
            self._pulls[subqueue] = None
            self._unavailable.add(subqueue)

    def leave(self, queue: str) -> list[H]:
        """Remove the subqueues of a queue. Return its waiting messages, in their order."""
        for subqueue in [
            subqueue for subqueue in self._pulls if subqueue.queue == queue
        ]:
            del self._pulls[subqueue]
            self._empty.pop(subqueue, None)
            self._unavailable.discard(subqueue)
        self._served.pop(queue, None)
        left = sorted(entry for entry in self._waiting if entry[2].queue == queue)
        self._waiting = [entry for entry in self._waiting if entry[2].queue != queue]
        heapq.heapify(self._waiting)
        self._passing -= sum(not entry[2].can_return for entry in left)
        return [message for *_, message in left]

    @property
    def subqueues(self) -> list[Subqueue]:
        """The subqueues."""
        return list(self._pulls)

    @property
    def has_waiting(self) -> bool:
        """True if a message waits for kombu."""
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """True if the prefetch count is reached."""
        return self.limit > 0 and self._capacity <= 0

    @property
    def _capacity(self) -> int:
        waiting = sum(entry[2].can_return for entry in self._waiting)
        if not self.limit:
            return MAX_WAITING - waiting
        return self.limit - len(self._held) - waiting

    # Pulls ----------------------------------------------------------------------------

    def ready(self) -> list[Subqueue]:
        """Return the subqueues that may pull now."""
        capacity = self._capacity
        idle = [
            subqueue
            for subqueue, pull in self._pulls.items()
            if pull is None and subqueue not in self._unavailable
        ]
        if capacity <= 0 or not self.limit or len(self._pulls) == 1:
            return idle if capacity > 0 else []
        if any(pull is not None and not pull.waits for pull in self._pulls.values()):
            return []  # another subqueue has its turn
        due = [subqueue for subqueue in idle if subqueue not in self._empty]
        if not due:
            return idle
        if any(
            pull and subqueue not in self._empty
            for subqueue, pull in self._pulls.items()
        ):
            return []  # a subqueue that waited has got a message: its pull ends
        return [min(due, key=self._rank)]

    def _rank(self, subqueue: Subqueue) -> tuple[int, int]:
        return -subqueue.priority, self._served.get(subqueue.queue, -1)

    def pull(self, subqueue: Subqueue) -> SubqueuePull | None:
        """Begin a pull of a subqueue. Return None if the subqueue has to wait for its turn."""
        if subqueue not in self.ready():
            return None
        capacity = self._capacity
        if not self.limit:
            pull = SubqueuePull(max(1, capacity // len(self._pulls)), waits=True)
        elif len(self._pulls) == 1:
            pull = SubqueuePull(capacity, waits=True)
        elif subqueue in self._empty:
            pull = SubqueuePull(1, waits=True)
        else:
            expected = sum(other is not None for other in self._pulls.values())
            pull = SubqueuePull(max(1, capacity - expected), waits=False)
        self._pulls[subqueue] = pull
        return pull

    def ended(self, subqueue: Subqueue, count: int, now: float) -> None:
        """Record the end of a pull, and the number of its messages."""
        if subqueue not in self._pulls:
            return
        self._pulls[subqueue] = None
        if count:
            self._empty.pop(subqueue, None)
        else:
            self._empty[subqueue] = now

    def mark_unavailable(self, subqueue: Subqueue) -> None:
        """Leave out a subqueue that has failed, so that no other subqueue waits for its turn."""
        if subqueue in self._pulls:
            self._unavailable.add(subqueue)

    def mark_available(self, subqueue: Subqueue) -> None:
        """Let a subqueue pull."""
        self._unavailable.discard(subqueue)
        self._empty.pop(subqueue, None)

    def excess(self) -> list[Subqueue]:
        """Return the subqueues that wait at the server although there is no more room."""
        if not self.is_full or len(self._pulls) == 1:
            return []
        return [
            subqueue for subqueue, pull in self._pulls.items() if pull and pull.waits
        ]

    # Messages -------------------------------------------------------------------------

    def arrived(self, message: H) -> H | None:
        """Accept a message. Return the message that has to return to its queue, or None."""
        subqueue = Subqueue(message.queue, message.priority)
        if subqueue in self._pulls:
            self._empty.pop(subqueue, None)
            self._served[message.queue] = next(self._order)
        heapq.heappush(self._waiting, (-message.priority, next(self._order), message))
        if not message.can_return:
            self._passing += 1
            if self._passing > MAX_TRANSIENT:
                self._drop_oldest()
        if not self.limit or self._capacity >= 0:
            return None
        rest = [entry for entry in self._waiting if entry[2].can_return]
        if not rest:
            return None
        last = max(rest)
        self._waiting.remove(last)
        heapq.heapify(self._waiting)
        return last[2]

    def _drop_oldest(self) -> None:
        """Drop a part of the messages without a stream, which nobody reads."""
        passing = [entry for entry in self._waiting if not entry[2].can_return]
        oldest = {
            order
            for _, order, _ in heapq.nsmallest(
                max(1, MAX_TRANSIENT // 100), passing, key=lambda entry: entry[1]
            )
        }
        self._waiting = [entry for entry in self._waiting if entry[1] not in oldest]
        heapq.heapify(self._waiting)
        self._passing -= len(oldest)
        self.dropped += len(oldest)

    def take(self, holds: Callable[[str], bool]) -> H | None:
        """Return the next message that kombu may have, the highest priority first."""
        if not self._waiting or (self.limit and len(self._held) >= self.limit):
            return None
        *_, message = heapq.heappop(self._waiting)
        self._passing -= not message.can_return
        if holds(message.queue):
            self._held[message.tag] = message
        return message

    def hold(self, message: H) -> None:
        """Record a message that kombu got by `basic_get`."""
        self._held[message.tag] = message

    def done(self, tag: str, now: float) -> H | None:
        """Forget a message that kombu has finished."""
        with _CapacityChange(self, now):
            return self._held.pop(tag, None)

    def done_until(self, tag: str, now: float) -> list[H]:
        """Forget a message, and all messages that kombu got before it."""
        if tag not in self._held:
            return []
        tags = list(self._held)
        with _CapacityChange(self, now):
            return [self._held.pop(held) for held in tags[: tags.index(tag) + 1]]

    def release(self, now: float) -> list[H]:
        """Forget all messages that kombu holds."""
        with _CapacityChange(self, now):
            held = list(self._held.values())
            self._held.clear()
            return held

    def set_limit(self, limit: int, now: float) -> None:
        """Set the prefetch count."""
        with _CapacityChange(self, now):
            self.limit = limit

    def forget_old_emptiness(self, now: float) -> None:
        """Let subqueues pull without wait again that were empty before the channel was full."""
        self._empty = {
            subqueue: when
            for subqueue, when in self._empty.items()
            if now - when < FRESH_SECONDS or self._pulls.get(subqueue) is not None
        }


class _CapacityChange(Generic[H]):
    """A context for a change that may make room in a full channel."""

    def __init__(self, prefetch: Prefetch[H], now: float) -> None:
        self._prefetch = prefetch
        self._now = now

    def __enter__(self) -> None:
        self._was_full = self._prefetch.is_full

    def __exit__(self, *_: object) -> None:
        if self._was_full and not self._prefetch.is_full:
            self._prefetch.forget_old_emptiness(self._now)
