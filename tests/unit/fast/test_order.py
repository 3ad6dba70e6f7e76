"""Tests of the order of an ordered consumer: the mailbox accepts messages only in order."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jsync._fast import IOLoop, JetStreamMailbox, SequenceChecker, WriteBuffer

SID = 7


class Consumer:
    """A mailbox with an order, and a method that plays the I/O thread."""

    def __init__(self, order: SequenceChecker) -> None:
        write_buffer = WriteBuffer()
        self.io_loop = IOLoop(write_buffer, -1)
        self.mailbox = JetStreamMailbox(write_buffer, SID)
        self.mailbox.order = order
        self.io_loop.subscribe(SID, self.mailbox)
        self.events: list[str] = []

    def bring(self, consumer_sequence: int, stream_sequence: int, pending: int) -> None:
        self.bring_from(
            f"$JS.ACK.S.c.1.{stream_sequence}.{consumer_sequence}.1700.{pending}"
        )

    def bring_from(self, reply: str, data: bytes = b"x") -> None:
        head = f"MSG s.a {SID} {reply} {len(data)}\r\n".encode()
        events = self.io_loop.decrypted(head + data + b"\r\n")
        self.events += [name for name, _ in events]

    @property
    def taken(self) -> list[int]:
        """Return the stream sequences in the mailbox."""
        return [
            int((msg.reply or "").split(".")[-4]) for msg in self.mailbox.take_rest()
        ]


def test_messages_in_order_are_taken() -> None:
    order = SequenceChecker(0)
    consumer = Consumer(order)
    for number in range(1, 4):
        consumer.bring(number, number * 10, 3 - number)
    assert consumer.taken == [10, 20, 30]
    assert (order.consumer_sequence, order.stream_sequence) == (3, 30)
    assert order.stopped is None
    assert consumer.events == []


def test_a_gap_ends_the_order() -> None:
    order = SequenceChecker(5)
    consumer = Consumer(order)
    consumer.bring(1, 6, 9)
    consumer.bring(3, 8, 7)
    consumer.bring(2, 7, 8)
    assert consumer.taken == [6]
    assert order.stopped == "gap"
    assert order.stream_sequence == 6
    assert consumer.events == ["ORDER"]


def test_a_message_that_comes_twice_is_a_gap() -> None:
    order = SequenceChecker(0)
    consumer = Consumer(order)
    consumer.bring(1, 1, 1)
    consumer.bring(1, 1, 1)
    assert consumer.taken == [1]
    assert order.stopped == "gap"


def test_messages_read_before_are_skipped_and_counted() -> None:
    order = SequenceChecker(7)
    consumer = Consumer(order)
    consumer.bring(1, 3, 9)
    consumer.bring(2, 7, 8)
    consumer.bring(3, 8, 7)
    assert consumer.taken == [8]
    assert consumer.events == ["ORDER"]
    count, size = order.take_passed_over()
    assert count == 2
    assert size > 2 * len("s.a$JS.ACK.S.c.1.3.1.1700.9")
    assert order.take_passed_over() == (0, 0)
    consumer.bring(4, 6, 6)
    assert consumer.events == ["ORDER", "ORDER"]


@pytest.mark.parametrize(
    ("sequences", "taken"),
    [([1, 2, 3], [1, 2, 3]), ([1, 2, 4], [1, 2]), ([4], []), ([2, 3, 4], [2, 3])],
)
def test_the_order_never_goes_beyond_its_last_sequence(
    sequences: list[int], taken: list[int]
) -> None:
    order = SequenceChecker(0, last=3, to_end=True)
    consumer = Consumer(order)
    for number, sequence in enumerate(sequences, 1):
        consumer.bring(number, sequence, 100)
    assert consumer.taken == taken
    assert order.stopped == "last"
    assert consumer.events == ["ORDER"]


def test_the_order_notes_when_the_server_ran_dry() -> None:
    order = SequenceChecker(0, last=10, to_end=True)
    consumer = Consumer(order)
    consumer.bring(1, 1, 1)
    assert not order.take_ran_dry()
    consumer.bring(2, 4, 0)
    assert order.take_ran_dry()
    assert not order.take_ran_dry()
    consumer.bring(3, 5, 0)
    assert consumer.taken == [1, 4, 5]
    assert order.stopped is None
    assert consumer.events == ["ORDER"]


def test_the_order_continues_while_more_messages_may_come() -> None:
    order = SequenceChecker(0)
    consumer = Consumer(order)
    consumer.bring(1, 1, 0)
    consumer.bring(2, 2, 0)
    assert consumer.taken == [1, 2]
    assert order.stopped is None


@pytest.mark.parametrize(
    "reply", ["", "elsewhere", "$JS.ACK.S.c.1.2.3", "$JS.ACK.S.c.1.x.1.1700.0"]
)
def test_a_message_from_no_consumer_is_not_taken(reply: str) -> None:
    order = SequenceChecker(0)
    consumer = Consumer(order)
    consumer.bring_from(reply)
    consumer.bring(1, 1, 0)
    assert consumer.taken == [1]
    assert order.stopped is None


def test_ack_subjects_of_version_2_are_understood() -> None:
    order = SequenceChecker(0, last=10_000, to_end=True)
    consumer = Consumer(order)
    for number, pending in ((1, 2), (2, 1), (3, 0)):
        consumer.bring_from(
            f"$JS.ACK.hub.ACCHASH.S.c.1.{number + 41}.{number}.1700.{pending}.more"
        )
    assert order.stream_sequence == 44
    assert order.take_ran_dry()


@pytest.mark.parametrize("beginning", ["$JS.ACK.S.c.1", f"$JS.ACK.{'S' * 200}.c.1"])
@pytest.mark.parametrize(
    "rest", ["2.2.1700", "2.2.1700.", "2..1700.0", "2.x.1700.0", ".2.1700.0", "", "2"]
)
def test_similar_ack_subjects_are_not_confused(beginning: str, rest: str) -> None:
    order = SequenceChecker(0)
    consumer = Consumer(order)
    consumer.bring_from(f"{beginning}.1.1.1700.9")
    consumer.bring_from(f"{beginning}.{rest}")
    consumer.bring_from(f"{beginning}.18446744073709551614.2.1700.9")
    assert consumer.taken == [1, 18446744073709551614]
    assert order.stopped is None


def test_a_consumer_that_has_already_sent_messages_continues() -> None:
    consumer = Consumer(SequenceChecker(7, consumer_sequence=7))
    consumer.bring(8, 8, 0)
    assert consumer.taken == [8]


def test_a_second_order_starts_fresh_in_one_mailbox() -> None:
    consumer = Consumer(SequenceChecker(0))
    consumer.bring(1, 1, 9)
    consumer.bring(3, 3, 7)
    assert consumer.mailbox.order is not None
    consumer.mailbox.order = SequenceChecker(consumer.mailbox.order.stream_sequence)
    consumer.bring(1, 2, 8)
    consumer.bring(2, 3, 7)
    assert consumer.taken == [1, 2, 3]


def test_skipped_messages_do_not_count_towards_the_end() -> None:
    consumer = Consumer(SequenceChecker(5))
    consumer.mailbox.end_after(2)
    for number, sequence in enumerate([4, 5, 6, 7, 8], 1):
        consumer.bring(number, sequence, 0)
    assert consumer.taken == [6, 7]
    assert consumer.mailbox.closed
    assert consumer.mailbox.order is not None
    assert consumer.mailbox.order.stream_sequence == 7


@given(
    drops=st.sets(st.integers(1, 40)),
    doubles=st.sets(st.integers(1, 40)),
    after=st.integers(0, 45),
)
def test_the_taken_messages_end_at_the_first_fault(
    drops: set[int], doubles: set[int], after: int
) -> None:
    order = SequenceChecker(after)
    consumer = Consumer(order)
    for number in range(1, 41):
        if number not in drops:
            consumer.bring(number, number, 40 - number)
            if number in doubles:
                consumer.bring(number, number, 40 - number)
    trouble = min([41, *drops, *(n + 1 for n in doubles - drops)])
    assert consumer.taken == [n for n in range(1, trouble) if n > after]
