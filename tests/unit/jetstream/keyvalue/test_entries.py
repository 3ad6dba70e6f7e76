"""Tests of reading messages of a bucket as entries, compared with the slow oracle."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from jsync._fast import (
    EntryIterator,
    EntryReader,
    InitialState,
    IOLoop,
    JetStreamMailbox,
    WriteBuffer,
)
from jsync.errors import CodecError, NotJetStreamMessageError
from jsync.jetstream.keyvalue.engine import Entry

from ....fuzz.fuzz_fast import ask, entry_frame, read_entries
from ....support import reference
from ....support.reference import Message, outcome

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "$KV.B."
NO_HEADERS = b"NATS/1.0\r\n\r\n"
DELETE = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"


def ack(revision: int, delta: int, consumer: str = "c") -> str:
    return (
        f"$JS.ACK.KV_B.{consumer}.1.{revision}.{revision}.1760000000123456789.{delta}"
    )


class Bucket:
    """A mailbox with its entries, and a method that plays the I/O thread."""

    def __init__(self, initial: InitialState | None = None, **options: Any) -> None:
        write_buffer = WriteBuffer()
        self.io_loop = IOLoop(write_buffer, -1)
        self.mailbox = JetStreamMailbox(write_buffer, 1)
        self.io_loop.subscribe(1, self.mailbox)
        self.initial = initial or InitialState(0)
        self.entries: EntryReader[Entry] = EntryReader(
            *(self.mailbox, self.initial, Entry, "B", PREFIX), **options
        )
        self.waits = 0

    def bring(
        self,
        key: str,
        revision: int,
        delta: int = 9,
        block: bytes = NO_HEADERS,
    ) -> None:
        message = Message(PREFIX + key, ack(revision, delta), block, b"v")
        self.io_loop.decrypted(entry_frame(message))

    def wait(self) -> Entry:
        self.waits += 1
        entry = self.entries.get(0.0)
        if entry is None:
            raise StopIteration
        assert isinstance(entry, Entry)
        return entry

    def iterate(self, **options: bool) -> EntryIterator[Any]:
        return EntryIterator(self.entries, self.wait, **options)


def test_an_entry_has_the_fields_of_its_message() -> None:
    bucket = Bucket()
    bucket.bring("a.b", 7, 3)
    [entry] = bucket.iterate()
    assert entry == Entry(
        bucket="B",
        key="a.b",
        value=b"v",
        revision=7,
        timestamp_us=1760000000123456,
        delta=3,
    )
    assert pickle.loads(pickle.dumps(entry)) == entry
    assert bucket.entries.revision == 7


WORDS = st.sampled_from(
    ["DEL", "PURGE", "PUT", "MaxAge", "Purge", "Remove", "del", "", " DEL ", "ü"]
)
NAMES = st.sampled_from(
    ["KV-Operation", "Nats-Marker-Reason", "kv-operation", "KV-Operation ", "Other", ""]
)
LINES = st.lists(st.tuples(NAMES, st.sampled_from([": ", ":", " "]), WORDS), max_size=4)
FIRST = st.sampled_from(["NATS/1.0", "NATS/1.0 404 No Messages", "NATS/1.1", ""])
ENDS = st.sampled_from(["\r\n", "\n"])


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    lines = [draw(FIRST), *("".join(line) for line in draw(LINES)), "", ""]
    return draw(st.one_of(st.just(end.join(lines).encode()), st.binary(max_size=60)))


NUMBER = st.one_of(
    st.integers(0, 2**64 + 1).map(str), st.sampled_from(["", "x", "-1", "007", "+1"])
)
ACKS = st.builds(
    "$JS.ACK.{}.{}.{}.{}.{}.{}.{}{}".format,
    *(
        st.sampled_from(["KV_B", "é", "hub.hash.KV_B"]),
        st.sampled_from(["c", "d" * 140]),
    ),
    *(NUMBER,) * 5,
    st.sampled_from(["", ".more", ".more.too", "."]),
)
TEXT = st.text(
    st.characters(min_codepoint=33, exclude_categories=["Z", "C"]), min_size=1
)
MESSAGES = st.lists(
    st.builds(
        Message,
        st.one_of(TEXT.map(PREFIX.__add__), TEXT),
        st.one_of(ACKS, TEXT),
        blocks(),
        st.binary(max_size=9),
    ),
    max_size=4,
)


@given(MESSAGES)
def test_entries_are_those_of_the_obvious_reading(messages: list[Message]) -> None:
    assert read_entries(messages, PREFIX) == [
        outcome(reference.entry_of, message, "B", PREFIX) for message in messages
    ]


@given(st.binary(max_size=200))
def test_the_oracle_reads_any_bytes_the_same_way(data: bytes) -> None:
    ask(b"\3" + data)


def test_unreadable_headers_are_those_of_a_value() -> None:
    """Any publisher can write such headers, and they must not end the watches of others."""
    bucket = Bucket()
    bucket.bring("a", 1, block=b"GARBAGE\r\nKV-Operation: DEL\r\n\r\n")
    assert [entry.operation for entry in bucket.iterate()] == ["PUT"]


def test_a_message_of_no_consumer_is_refused() -> None:
    bucket = Bucket()
    message = Message(PREFIX + "a", "elsewhere", b"NATS/1.0\r\n\r\n", b"")
    bucket.io_loop.decrypted(entry_frame(message))
    with pytest.raises(NotJetStreamMessageError):
        next(bucket.iterate())


def test_entries_and_keys_can_leave_out_markers() -> None:
    for keys in (False, True):
        bucket = Bucket(ignore_deletes=True)
        bucket.bring("a", 1)
        bucket.bring("b", 2, block=DELETE)
        bucket.bring("c", 3)
        given = list(bucket.iterate(keys=keys))
        assert [item if keys else item.key for item in given] == ["a", "c"]
        assert bucket.entries.revision == 3


def test_keys_alone_are_those_of_the_entries() -> None:
    bucket = Bucket()
    for number in range(1, 4):
        bucket.bring(f"key.{number}", number)
    assert list(bucket.iterate(keys=True)) == ["key.1", "key.2", "key.3"]


def test_iteration_returns_the_values_of_the_decoder() -> None:
    def decoded(entry: Entry) -> Entry[str]:
        if entry.key == "bad":
            raise CodecError("no", key=entry.key, revision=entry.revision)
        return Entry(
            bucket="B", key=entry.key.upper(), value="v", revision=1, timestamp_us=0
        )

    for keys in (False, True):
        bucket = Bucket(decoded=decoded)
        bucket.bring("a", 1)
        bucket.bring("bad", 2)
        bucket.bring("c", 3)
        items = bucket.iterate(keys=keys)
        item: Callable[[], Any] = lambda: next(items)  # noqa: B023, E731
        first = item()
        with pytest.raises(CodecError):
            item()
        last = item()
        assert [i if keys else i.key for i in (first, last)] == ["A", "C"]


def test_the_server_decides_the_last_initial_entry() -> None:
    initial = InitialState(3)
    bucket = Bucket(initial)
    for number, delta in ((1, 2), (2, 1), (3, 0), (4, 0)):
        bucket.bring("a", number, delta)
    items = bucket.iterate(initial=True)
    assert [next(items).revision for _ in range(2)] == [1, 2]
    assert (bucket.waits, initial.done) == (0, False)
    entry = next(items)
    assert (entry.revision, bucket.waits) == (3, 1)
    assert not initial.on_entry(entry.revision, entry.delta)
    assert initial.done
    assert list(items) == []  # although another entry has arrived
    assert [entry.revision for entry in bucket.iterate()] == [4]


def test_after_enough_entries_each_may_be_the_last() -> None:
    initial = InitialState(2)
    bucket = Bucket(initial)
    for number in range(1, 5):
        bucket.bring("a", number, 5)
    items = bucket.iterate(initial=True)
    assert next(items).revision == 1
    assert initial.on_entry(next(items).revision, 5)
    initial.set_end(4)
    assert not initial.on_entry(next(items).revision, 5)
    assert not initial.on_entry(next(items).revision, 5)
    assert initial.done
    assert bucket.waits == 3


def test_no_initial_entries_are_done_at_once() -> None:
    assert InitialState(0).done
    assert not InitialState(1).done


def came(initial: InitialState, *entries: tuple[int, int]) -> list[str]:
    """Return what follows from each entry, given by its revision and its delta."""
    outcomes = []
    for revision, delta in entries:
        asks = initial.on_entry(revision, delta)
        outcomes.append("done" if initial.done else "ask" if asks else "more")
    return outcomes


def test_a_single_server_ends_initial_entries_by_count() -> None:
    initial = InitialState(3, end=9)
    assert came(initial, (1, 2), (4, 1), (9, 0)) == ["more", "more", "done"]


def test_nothing_pending_does_not_end_the_initial_entries() -> None:
    """The server counts an entry that is being replaced one too few."""
    initial = InitialState(3, end=3)
    assert came(initial, (1, 1), (2, 0)) == ["more", "ask"]
    initial.set_end(4)
    assert came(initial, (3, 1), (4, 0)) == ["more", "done"]


def test_a_replica_does_not_end_the_initial_entries() -> None:
    initial = InitialState(3, end=9, exact=False)
    assert came(initial, (1, 2), (4, 1), (9, 0)) == ["more", "more", "ask"]
    assert not InitialState(0, end=7, exact=False).done
    assert InitialState(0, end=0, exact=False).done


def test_replaced_entries_come_until_the_end_is_reached() -> None:
    initial = InitialState(2, end=2)
    assert came(initial, (1, 4), (5, 7)) == ["more", "ask"]
    initial.set_end(8)
    assert came(initial, (6, 9), (7, 6), (8, 9)) == ["more", "more", "done"]


def test_an_entry_replaced_again_moves_the_end_again() -> None:
    initial = InitialState(2, end=2)
    assert came(initial, (5, 7)) == ["ask"]
    initial.set_end(8)
    assert came(initial, (6, 9), (8, 9)) == ["more", "ask"], "7 was replaced by then"
    initial.set_end(9)
    assert came(initial, (9, 9)) == ["done"]


def test_a_leader_that_stays_silent_is_asked_again() -> None:
    initial = InitialState(1, end=1)
    assert came(initial, (2, 4), (3, 4)) == ["ask", "ask"]
    initial.set_end(3)
    assert initial.done


def test_all_keys_of_the_leader_may_come_early() -> None:
    bucket = Bucket(InitialState(3, end=3))
    for revision, key in enumerate("abc", 4):
        bucket.bring(key, revision, block=DELETE if key == "b" else NO_HEADERS)
        next(bucket.iterate())
    assert bucket.initial.seen(["a", "b", "c"])
    assert not bucket.initial.seen(["a", "d"])
    assert bucket.initial.seen([])


def test_many_keys_are_remembered_each_once() -> None:
    bucket = Bucket(InitialState(1 << 40))
    bucket.entries.once = True
    for number in range(5000):
        bucket.bring(f"key.{number % 2500}", number + 1)
    given = [entry.key for entry in bucket.iterate()]
    assert given == [f"key.{number}" for number in range(2500)]
    assert bucket.initial.seen(given)


def test_all_revisions_end_where_the_leader_ended() -> None:
    initial = InitialState(3, end=9, exact=False, latest=False)
    assert came(initial, (1, 2), (5, 0)) == ["more", "ask"]
    initial.set_end(9)
    assert came(initial, (6, 0), (9, 4)) == ["more", "done"]
    assert InitialState(5, end=9, after=9, latest=False).done
    whole = InitialState(3, end=3, exact=False, latest=False)
    assert came(whole, (1, 2), (2, 1), (3, 0)) == ["more", "more", "done"]
    counted = InitialState(2, end=9, latest=False)
    assert came(counted, (1, 4), (3, 3)) == ["more", "done"]


def test_the_server_may_have_nothing_left_to_send() -> None:
    initial = InitialState(5)
    initial.on_entry(1, 4)
    initial.finish()
    assert initial.done


def test_errors_in_a_callback_do_not_end_iteration() -> None:
    bucket = Bucket()
    for number in range(1, 4):
        bucket.bring("a", number)
    given: list[int] = []
    errors: list[tuple[int, str]] = []

    def callback(entry: Entry) -> None:
        given.append(entry.revision)
        if entry.revision == 2:
            raise ValueError("two")

    bucket.entries.hand_over(
        callback, lambda entry, error: errors.append((entry.revision, str(error)))
    )
    assert (given, errors) == ([1, 2, 3], [(2, "two")])


def test_a_count_proves_nothing_after_the_consumer_moved() -> None:
    initial = InitialState(2, end=9)
    exact = [initial.exact]
    initial.on_server_changed()
    assert [*exact, initial.exact] == [True, False]
    assert not initial.on_entry(1, 1)
    assert initial.on_entry(2, 0)
    assert not initial.done
