"""The prefetch count of a channel over several lanes: which lane pulls, and what goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, strategies as st

from jsync.integrations.kombu import engine
from jsync.integrations.kombu.engine import (
    FRESH_SECONDS,
    Lane,
    LaneRequest,
    Prefetch,
)

if TYPE_CHECKING:
    import pytest


class Message(NamedTuple):
    tag: str
    queue: str
    priority: int = 0
    can_return: bool = True


A, B = Lane("a", 0), Lane("b", 0)
HIGH, LOW = Lane("q", 9), Lane("q", 0)


def prefetch(limit: int, *lanes: Lane) -> Prefetch[Message]:
    made: Prefetch[Message] = Prefetch()
    made.set_limit(limit, 0.0)
    made.join(lanes)
    for lane in lanes:
        made.mark_available(lane)
    return made


def parked(limit: int, *lanes: Lane) -> Prefetch[Message]:
    """All lanes were asked, were empty, and wait at the server."""
    made = prefetch(limit, *lanes)
    while made.ready():
        for lane in made.ready():
            pull = made.pull(lane)
            if pull is not None and not pull.waits:
                made.ended(lane, 0, 0.0)
    assert all(made.pull(lane) is None for lane in lanes)
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


def test_one_lane_waits_for_as_many_as_fit() -> None:
    one = prefetch(4, A)
    assert one.pull(A) == LaneRequest(4, waits=True)
    assert one.pull(A) is None
    assert one.arrived(Message("1", "a")) is None
    one.ended(A, 1, 0.0)
    assert one.pull(A) == LaneRequest(3, waits=True)


def test_without_count_every_lane_waits_for_its_share() -> None:
    two = prefetch(0, A, B)
    assert two.pull(A) == two.pull(B) == LaneRequest(250, waits=True)


def test_lanes_take_turns_and_wait_when_all_empty() -> None:
    two = prefetch(2, A, B)
    assert two.ready() == [A]
    assert two.pull(A) == LaneRequest(2, waits=False)
    assert two.pull(B) is None
    two.ended(A, 0, 0.0)
    assert two.pull(A) is None
    assert two.pull(B) == LaneRequest(2, waits=False)
    two.ended(B, 0, 0.0)
    assert two.pull(A) == two.pull(B) == LaneRequest(1, waits=True)


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
        (lane,) = two.ready()
        two.pull(lane)
        assert two.arrived(Message(str(number), lane.queue)) is None
        two.ended(lane, 1, 0.0)
        assert two.ready() == []
        assert two.take(always) is not None
        two.done(str(number), 1.0)
        served.append(lane.queue)
    assert served == ["a", "b", "a", "b"]


def test_no_lane_waits_at_the_server_without_room() -> None:
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


def test_recently_empty_lanes_are_not_asked_again() -> None:
    for later, asked in ((FRESH_SECONDS / 2, False), (FRESH_SECONDS * 2, True)):
        two = parked(1, A, B)
        two.arrived(Message("1", "a"))
        two.ended(A, 1, 0.0)
        two.ended(B, 0, 0.0)
        two.take(always)
        two.done("1", later)
        assert two.ready() == ([B] if asked else [A])


def test_a_failed_lane_does_not_block_other_lanes() -> None:
    two = prefetch(1, A, B)
    two.pull(A)
    two.ended(A, 0, 0.0)
    two.mark_unavailable(A)
    assert two.pull(B) == LaneRequest(1, waits=False)
    two.ended(B, 0, 0.0)
    assert two.ready() == [B]
    assert two.pull(B) == LaneRequest(1, waits=True)
    two.mark_available(A)
    assert two.pull(A) == LaneRequest(1, waits=False)


def test_leaving_a_queue_returns_its_messages_in_order() -> None:
    one = prefetch(0, A)
    messages = [Message(str(number), "a") for number in range(5)]
    for message in messages:
        one.arrived(message)
    assert one.leave("a") == messages
    assert one.lanes == []
    assert not one.has_waiting


LANES = [Lane(queue, priority) for queue in "ab" for priority in (9, 0)]


@given(st.data(), st.integers(1, 4))
def test_the_count_is_kept_and_nothing_stays_behind(
    data: st.DataObject, limit: int
) -> None:
    """Play a server that has messages, and pulls that end at any time."""
    channel = prefetch(limit, *LANES)
    stored: dict[Lane, list[str]] = {lane: [] for lane in LANES}
    pulls: dict[Lane, list[int]] = {}  # how many it may still bring, how many came
    held: list[str] = []
    done, published, now = 0, 0, 0.0

    def end(lane: Lane) -> None:
        channel.ended(lane, pulls.pop(lane)[1], now)

    def serve(lane: Lane) -> None:
        while pulls[lane][0] and stored[lane]:
            message = Message(stored[lane].pop(0), *lane)
            pulls[lane][0] -= 1
            pulls[lane][1] += 1
            back = channel.arrived(message)
            if back is not None:
                stored[Lane(back.queue, back.priority)].insert(0, back.tag)
            here = published - done - sum(map(len, stored.values()))
            assert here <= limit
            for other in channel.excess():
                if other != lane:
                    end(other)
        if not pulls[lane][0]:
            end(lane)

    def pull() -> None:
        for lane in channel.ready():
            wanted = channel.pull(lane)
            if wanted is None:
                continue
            pulls[lane] = [wanted.messages, 0]
            serve(lane)
            if lane in pulls and not wanted.waits:
                end(lane)

    def settle() -> None:
        for _ in range(4 * len(LANES)):
            pull()
            while (message := channel.take(always)) is not None:
                held.append(message.tag)

    for _ in range(data.draw(st.integers(1, 30))):
        now += data.draw(st.sampled_from([0.0, 0.001, 1.0]))
        match data.draw(st.sampled_from(["publish", "done", "expire", "settle"])):
            case "publish":
                lane = data.draw(st.sampled_from(LANES))
                published += 1
                stored[lane].append(str(published))
                if lane in pulls:
                    serve(lane)
            case "done" if held:
                channel.done(held.pop(0), now)
                done += 1
            case "expire" if pulls:
                end(data.draw(st.sampled_from(sorted(pulls))))
            case "settle":
                settle()
    while done < published:
        settle()
        assert held, "messages are stored, there is room, and no lane pulls"
        while held:
            channel.done(held.pop(0), now)
            done += 1
        now += 1.0
