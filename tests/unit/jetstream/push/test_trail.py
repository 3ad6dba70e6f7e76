"""Tests of finding lost messages of a push consumer by its consumer sequences (ADR-15)."""

from __future__ import annotations

import random

import pytest

from jsync._fast import GapTracker, IOLoop, JetStreamMailbox, WriteBuffer

Gap = tuple[int, int, int, int]


class Desk:
    """A mailbox with a trail, and an I/O loop that delivers to it."""

    def __init__(self) -> None:
        write_buffer = WriteBuffer()
        self.io_loop = IOLoop(write_buffer, -1)
        self.mailbox = JetStreamMailbox(write_buffer, 1)
        self.mailbox.on_control = lambda msg: None
        self.trail = self.mailbox.trail = GapTracker()
        self.io_loop.subscribe(1, self.mailbox)

    def send(self, *messages: tuple[int, int]) -> bool:
        """Deliver messages with these consumer and stream sequences.

        Returns:
            Whether there was a gap.
        """
        frames = b"".join(
            b"MSG to 1 $JS.ACK._.acc.S.C.1.%d.%d.1700000000000000000.5 1\r\nx\r\n"
            % (stream, consumer)
            for consumer, stream in messages
        )
        events = self.io_loop.feed(frames)
        return any(name == "ORDER" for name, _ in events)

    def step(self, *sequences: int) -> list[Gap]:
        self.send(*((sequence, sequence * 10) for sequence in sequences))
        return self.trail.take_gaps()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def begun(desk: Desk) -> Desk:
    desk.trail.start(0, 0)
    return desk


def test_message_gaps_none_is_missing(begun: Desk) -> None:
    assert begun.step(*range(1, 100)) == []
    assert (begun.trail.consumer_sequence, begun.trail.stream_sequence) == (99, 990)


def test_message_gaps_a_missing_step_is_named(begun: Desk) -> None:
    assert begun.step(1, 2, 6, 7, 9) == [(3, 5, 20, 60), (8, 8, 70, 90)]
    assert begun.step(10) == []


def test_message_gaps_are_reported_as_they_arrive(begun: Desk) -> None:
    assert not begun.send((1, 1), (2, 2))
    assert begun.send((4, 4))


def test_message_gaps_the_first_is_missing(begun: Desk) -> None:
    assert begun.step(2) == [(1, 1, 0, 20)]


def test_message_gaps_a_heartbeat_tells_of_the_last(begun: Desk) -> None:
    begun.step(1, 2)
    assert begun.trail.on_heartbeat(4, 45)
    assert begun.trail.take_gaps() == [(3, 4, 20, 46)]
    assert not begun.trail.on_heartbeat(4, 45)
    assert begun.step(5) == []


def test_message_gaps_a_heartbeat_alone_tells_of_them(begun: Desk) -> None:
    assert begun.trail.on_heartbeat(2, 2)
    assert begun.trail.take_gaps() == [(1, 2, 0, 3)]


def test_message_gaps_an_outdated_heartbeat_tells_nothing(
    begun: Desk,
) -> None:
    begun.step(1, 2, 3)
    assert not begun.trail.on_heartbeat(2, 20)
    assert begun.step(4) == []


def test_message_gaps_a_step_back_is_none(begun: Desk) -> None:
    assert begun.step(1, 2, 3, 4, 2, 3, 4, 5, 1, 2) == []


def test_message_gaps_a_consumer_that_was_used_before(desk: Desk) -> None:
    assert not desk.trail.start(7, 70)
    assert desk.step(8, 9) == []
    assert desk.step(11) == [(10, 10, 90, 110)]


def test_message_gaps_before_the_known_place_are_found(
    desk: Desk,
) -> None:
    assert not desk.send((3, 30), (4, 40), (6, 60))
    assert desk.trail.start(1, 10)
    assert sorted(desk.trail.take_gaps()) == [(2, 2, 10, 30), (5, 5, 40, 60)]


def test_message_gaps_none_when_everything_sent_has_come(desk: Desk) -> None:
    desk.send((1, 10), (2, 20))
    # The info comes from a server that had already sent these messages.
    assert not desk.trail.start(2, 20)
    assert desk.step(3) == []


def test_message_gaps_messages_of_no_consumer_are_skipped(
    begun: Desk,
) -> None:
    begun.step(1)
    begun.io_loop.feed(b"MSG to 1 1\r\nx\r\n" + b"MSG to 1 $JS.ACK.S.C.1.9 1\r\nx\r\n")
    assert begun.step(2) == []


def test_message_gaps_are_found_after_every_loss() -> None:
    rng = random.Random(11)
    for _ in range(50):
        sent = [n for n in range(1, 200) if rng.random() > 0.2]
        desk = Desk()
        desk.trail.start(0, 0)
        found = desk.step(*sent)
        missing = {n for first, last, *_ in found for n in range(first, last + 1)}
        assert missing == set(range(1, max(sent))) - set(sent)


# Flow control in its place ------------------------------------------------------------


def frames(*parts: int | str) -> bytes:
    made = []
    for part in parts:
        if isinstance(part, str):
            block = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
            size = len(block)
            made.append(b"HMSG to 1 %s %d %d\r\n" % (part.encode(), size, size) + block)
        else:
            reply = b"$JS.ACK._.acc.S.C.1.%d.%d.1.5" % (part, part)
            made.append(b"MSG to 1 %s 1\r\nx" % reply)
        made.append(b"\r\n")
    return b"".join(made)


def test_flow_control_keeps_its_place_among_the_messages(desk: Desk) -> None:
    places: list[str | None] = []
    desk.mailbox.on_control = lambda msg: places.append(msg.reply)
    desk.io_loop.feed(frames(1, 2, "fc.a", 3, "fc.b", "fc.c", 4))
    assert len(desk.mailbox) == 4
    for _ in range(4):
        desk.mailbox.next(0)
        places.append("message")
    assert places == [
        *("message", "message", "fc.a", "message", "fc.b", "fc.c", "message"),
    ]
    assert not len(desk.mailbox)


def test_flow_control_is_neither_pending_nor_delivered(desk: Desk) -> None:
    desk.io_loop.feed(frames("fc.a"))
    assert (len(desk.mailbox), desk.mailbox.bytes, desk.mailbox.delivered) == (0, 0, 0)
    assert desk.mailbox.holds_control
    assert desk.mailbox.get(0) is None
    assert not desk.mailbox.holds_control


def test_flow_control_survives_a_full_backlog(desk: Desk) -> None:
    desk.mailbox.max_messages = 2
    asked: list[object] = []
    desk.mailbox.on_control = asked.append
    desk.io_loop.feed(frames(1, 2, "fc.a", 3))
    assert desk.mailbox.dropped == 1
    assert [desk.mailbox.get(0) is not None for _ in range(3)] == [True, True, False]
    assert len(asked) == 1


def test_flow_control_messages_are_absent_from_the_rest(desk: Desk) -> None:
    desk.io_loop.feed(frames(1, "fc.a", 2))
    assert len(desk.mailbox.take_rest()) == 2
    assert not desk.mailbox.holds_control


def test_stored_messages_that_resemble_statuses_are_messages(desk: Desk) -> None:
    block = b"NATS/1.0 503\r\n\r\n"
    size = len(block)
    reply = b"$JS.ACK._.acc.S.C.1.1.1.1.5"
    desk.io_loop.feed(b"HMSG to 1 %s %d %d\r\n" % (reply, size, size) + block + b"\r\n")
    assert len(desk.mailbox) == 1
    assert not desk.mailbox.holds_control


def test_a_backlog_error_is_raised_in_its_turn(desk: Desk) -> None:
    def refuse(msg: object) -> None:
        raise ValueError("in its turn")

    desk.mailbox.on_control = refuse
    desk.io_loop.feed(frames(1, "fc.a", 2))
    assert desk.mailbox.next(0) is not None
    with pytest.raises(ValueError, match="in its turn"):
        desk.mailbox.next(0)
    assert desk.mailbox.next(0) is not None


def test_a_mailbox_without_acks_marks_no_message_acked(desk: Desk) -> None:
    desk.io_loop.feed(frames(1, "fc.a"))
    desk.mailbox.need_no_acks()
    desk.io_loop.feed(frames(2))
    for _ in range(2):
        msg = desk.mailbox.next(0)
        msg.ack()  # type: ignore[attr-defined]
        assert not msg.is_acked  # type: ignore[attr-defined]


def test_the_end_is_reported_once(desk: Desk) -> None:
    told: list[bool] = []
    desk.mailbox.on_end = lambda: told.append(True)
    desk.io_loop.feed(frames(1))
    desk.mailbox.close()
    assert not told
    assert desk.mailbox.get(0) is not None
    assert not told
    assert [desk.mailbox.get(0) for _ in range(3)] == [None, None, None]
    assert told == [True]
