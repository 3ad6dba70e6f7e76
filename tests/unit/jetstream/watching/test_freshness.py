"""When a watch is current: only as of a moment before which nothing can be missing."""

from __future__ import annotations

from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from jsync.jetstream.stream_end.engine import PendingMessages, StreamEnd
from jsync.jetstream.watching.freshness import Applied, Freshness
from jsync.models import StreamInfo

CREATED = "2026-11-26T00:00:00Z"


def end(sequence: int) -> StreamEnd:
    info = StreamInfo.from_wire(
        {
            "config": {"name": "S"},
            "created": CREATED,
            "state": {"messages": 1, "first_seq": 1, "last_seq": sequence},
        }
    )
    return StreamEnd(sequence, 1, 0.0, info)


class Watched:
    """A watch that was current long ago, and what it has applied."""

    def __init__(self) -> None:
        self.applied = Applied(10, 0)
        timer: Any = SimpleNamespace(cancel=lambda: None)
        session = SimpleNamespace(call_later=lambda seconds, call: timer)
        factory: Any = SimpleNamespace(
            cursor=SimpleNamespace(filters=None, position=0),
            api=SimpleNamespace(session=session),
            end=None,
            stream="S",
        )
        pull: Any = SimpleNamespace(
            closed=False, leave_if_behind=lambda rest, after: None
        )
        self.current = Freshness(factory, pull, lambda: self.applied)
        self.current._since = 0.0
        self.asked_at = monotonic()

    def told(self, after: int, last: int, first: int | None) -> None:
        """The leader was asked for what is behind `after`."""
        self.current._on_reply(
            0, self.asked_at, after, PendingMessages(end(last), first)
        )

    @property
    def is_known(self) -> bool:
        return self.current.since == self.asked_at


def test_nothing_behind_the_last_change_is_current() -> None:
    watched = Watched()
    watched.told(after=10, last=10, first=None)
    assert watched.is_known


@pytest.mark.parametrize(
    ("applied", "known"),
    [
        (Applied(19, 0), False),
        (Applied(20, 0), True),
        (Applied(25, 10), True),
        # A change that is left out may be replaced behind the end.
        (Applied(20, 15), False),
        (Applied(25, 24), False),
    ],
)
def test_a_busy_watch_is_current_without_gaps(applied: Applied, known: bool) -> None:
    watched = Watched()
    watched.told(after=10, last=20, first=11)
    assert not watched.is_known
    watched.applied = applied
    assert watched.is_known is known


def test_a_sequence_outside_the_filter_delays_nothing() -> None:
    watched = Watched()
    watched.applied = Applied(1, 0)
    watched.told(after=0, last=2, first=1)
    watched.told(after=1, last=2, first=None)
    assert watched.is_known


def test_an_end_comes_after_every_earlier_change() -> None:
    """What the stream has dropped may have a replacement that is still to come."""
    watched = Watched()
    watched.told(after=10, last=20, first=11)
    early = watched.current.reached
    watched.applied = Applied(20, 10)
    reached = watched.current.reached
    assert early is None
    assert reached is not None
    assert reached.sequence == 20
