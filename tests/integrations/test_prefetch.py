"""The prefetch count of a channel: which subqueue pulls, and what goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, strategies as st

from jsync.integrations.kombu import engine
from jsync.integrations.kombu.engine import (
    FRESH_SECONDS,
    Prefetch,
    Subqueue,
    SubqueuePull,
)

if TYPE_CHECKING:
    import pytest


class Message(NamedTuple):
    tag: str
    queue: str
    priority: int = 0
    can_return: bool = True


A, B = Subqueue("a", 0), Subqueue("b", 0)
HIGH, LOW = Subqueue("q", 9), Subqueue("q", 0)


def prefetch(limit: int, *subqueues: Subqueue) -> Prefetch[Message]:
    made: Prefetch[Message] = Prefetch()
    made.set_limit(limit, 0.0)
    made.join(subqueues)
    for subqueue in subqueues:
        made.mark_available(subqueue)
    return made


def parked(limit: int, *subqueues: Subqueue) -> Prefetch[Message]:
    """All subqueues were asked, were empty, and wait at the server."""
    made = prefetch(limit, *subqueues)
    while made.ready():
        for subqueue in made.ready():
            pull = made.pull(subqueue)
            if pull is not None and not pull.waits:
                made.ended(subqueue, 0, 0.0)
    assert all(made.pull(subqueue) is None for subqueue in subqueues)
    return made


def always(_: str) -> bool:
    return True


def test_unread_messages_without_a_stream_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example, the events of other workers while a task blocks the loop of Celery."""
    bound = 200
    monkeypatch.setattr(engine, "MAX_TRANSIENT", bound)
    one = prefetch(1, A)
    one.arrived(Message("stored", "a"))
    for number in range(3 * bound):
        one.arrived(Message(str(number), "events", can_return=False))
    assert 0 < len(one._waiting) - 1 <= bound
    assert one.dropped + len(one._waiting) - 1 == 3 * bound
    tags = []
    while (message := one.take(lambda queue: queue == "never")) is not None:
        tags.append(message.tag)
    assert tags[0] == "stored"
    assert tags[1:] == [str(n) for n in range(one.dropped, 3 * bound)]
    one.arrived(Message("next", "events", can_return=False))
    assert one.leave("events") == [Message("next", "events", can_return=False)]
    assert one._passing == 0


def test_one_subqueue_waits_for_as_many_as_fit() -> None:
    one = prefetch(4, A)
    assert one.pull(A) == SubqueuePull(4, waits=True)
    assert one.pull(A) is None
    assert one.arrived(Message("1", "a")) is None
    one.ended(A, 1, 0.0)
    assert one.pull(A) == SubqueuePull(3, waits=True)


def test_without_count_every_subqueue_waits_for_its_share() -> None:
    two = prefetch(0, A, B)
    assert two.pull(A) == two.pull(B) == SubqueuePull(250, waits=True)


def test_subqueues_take_turns_and_wait_when_all_empty() -> None:
    two = prefetch(2, A, B)
    assert two.ready() == [A]
    assert two.pull(A) == SubqueuePull(2, waits=False)
    assert two.pull(B) is None
    two.ended(A, 0, 0.0)
    assert two.pull(A) is None
    assert two.pull(B) == SubqueuePull(2, waits=False)
    two.ended(B, 0, 0.0)
    assert two.pull(A) == two.pull(B) == SubqueuePull(1, waits=True)


def test_the_highest_priority_is_asked_first() -> None:
    two = prefetch(1, LOW, HIGH)
    assert two.ready() == [HIGH]
    two.pull(HIGH)
    two.ended(HIGH, 0, 0.0)
    assert two.ready() == [LOW]


def test_queues_of_one_priority_are_served_in_turn() -> None:
    two = prefetch(1, A, B)
    served = []
    for number in range(4):
        (subqueue,) = two.ready()
        two.pull(subqueue)
        assert two.arrived(Message(str(number), subqueue.queue)) is None
        two.ended(subqueue, 1, 0.0)
        assert two.ready() == []
        assert two.take(always) is not None
        two.done(str(number), 1.0)
        served.append(subqueue.queue)
    assert served == ["a", "b", "a", "b"]


def test_no_subqueue_waits_at_the_server_without_room() -> None:
    two = parked(1, A, B)
    assert two.excess() == []
    assert two.arrived(Message("1", "a")) is None
    two.ended(A, 1, 0.0)
    assert two.excess() == [B]
    two.ended(B, 0, 0.0)
    assert two.excess() == two.ready() == []


def test_a_message_in_excess_goes_back() -> None:
    two = parked(1, A, B)
    two.arrived(Message("1", "a"))
    assert two.take(always) is not None
    late = Message("2", "b")
    assert two.arrived(late) == late


def test_the_lowest_priority_in_excess_goes_back() -> None:
    two = parked(1, HIGH, LOW)
    low, high = Message("1", "q", 0), Message("2", "q", 9)
    assert two.arrived(low) is None
    assert two.arrived(high) == low
    assert two.take(always) == high


def test_a_message_without_a_stream_never_goes_back() -> None:
    one = prefetch(1, A)
    one.arrived(Message("1", "a"))
    assert one.arrived(Message("2", "control", can_return=False)) is None


def test_recently_empty_subqueues_are_not_asked_again() -> None:
    for later, asked in ((FRESH_SECONDS / 2, False), (FRESH_SECONDS * 2, True)):
        two = parked(1, A, B)
        two.arrived(Message("1", "a"))
        two.ended(A, 1, 0.0)
        two.ended(B, 0, 0.0)
        two.take(always)
        two.done("1", later)
        assert two.ready() == ([B] if asked else [A])


def test_a_failed_subqueue_does_not_block_other_subqueues() -> None:
    two = prefetch(1, A, B)
    two.pull(A)
    two.ended(A, 0, 0.0)
    two.mark_unavailable(A)
    assert two.pull(B) == SubqueuePull(1, waits=False)
    two.ended(B, 0, 0.0)
    assert two.ready() == [B]
    assert two.pull(B) == SubqueuePull(1, waits=True)
    two.mark_available(A)
    assert two.pull(A) == SubqueuePull(1, waits=False)


def test_leaving_a_queue_returns_its_messages_in_order() -> None:
    one = prefetch(0, A)
    messages = [Message(str(number), "a") for number in range(5)]
    for message in messages:
        one.arrived(message)
    assert one.leave("a") == messages
    assert one.subqueues == []
    assert not one.has_waiting


SUBQUEUES = [Subqueue(queue, priority) for queue in "ab" for priority in (9, 0)]


@given(st.data(), st.integers(1, 4))
def test_the_count_is_kept_and_nothing_stays_behind(
    data: st.DataObject, limit: int
) -> None:
    """Play a server that has messages, and pulls that end at any time."""
    channel = prefetch(limit, *SUBQUEUES)
    stored: dict[Subqueue, list[str]] = {subqueue: [] for subqueue in SUBQUEUES}
    pulls: dict[Subqueue, list[int]] = {}  # how many it may still bring, how many came
    held: list[str] = []
    done, published, now = 0, 0, 0.0

    def end(subqueue: Subqueue) -> None:
        channel.ended(subqueue, pulls.pop(subqueue)[1], now)

    def serve(subqueue: Subqueue) -> None:
        while pulls[subqueue][0] and stored[subqueue]:
            message = Message(stored[subqueue].pop(0), *subqueue)
            pulls[subqueue][0] -= 1
            pulls[subqueue][1] += 1
            back = channel.arrived(message)
            if back is not None:
                stored[Subqueue(back.queue, back.priority)].insert(0, back.tag)
            here = published - done - sum(map(len, stored.values()))
            assert here <= limit
            for other in channel.excess():
                if other != subqueue:
                    end(other)
        if not pulls[subqueue][0]:
            end(subqueue)

    def pull() -> None:
        for subqueue in channel.ready():
            wanted = channel.pull(subqueue)
            if wanted is None:
                continue
            pulls[subqueue] = [wanted.messages, 0]
            serve(subqueue)
            if subqueue in pulls and not wanted.waits:
                end(subqueue)

    def settle() -> None:
        for _ in range(4 * len(SUBQUEUES)):
            pull()
            while (message := channel.take(always)) is not None:
                held.append(message.tag)

    for _ in range(data.draw(st.integers(1, 30))):
        now += data.draw(st.sampled_from([0.0, 0.001, 1.0]))
        match data.draw(st.sampled_from(["publish", "done", "expire", "settle"])):
            case "publish":
                subqueue = data.draw(st.sampled_from(SUBQUEUES))
                published += 1
                stored[subqueue].append(str(published))
                if subqueue in pulls:
                    serve(subqueue)
            case "done" if held:
                channel.done(held.pop(0), now)
                done += 1
            case "expire" if pulls:
                end(data.draw(st.sampled_from(sorted(pulls))))
            case "settle":
                settle()
    while done < published:
        settle()
        assert held, "messages are stored, there is room, and no subqueue pulls"
        while held:
            channel.done(held.pop(0), now)
            done += 1
        now += 1.0
