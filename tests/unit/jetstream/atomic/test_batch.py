"""Tests of the rules of a single atomic batch (ADR-50), without a server."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from jsync import errors
from jsync._fast import BatchMessage, WriteBuffer, parse_headers, write_entries
from jsync.jetstream.atomic.engine import (
    COMMIT,
    COMMIT_ALL_SENT,
    TRANSITIONS,
    AtomicEngine,
    BatchPosition,
    BatchState,
    affected_option,
    has_batch_fix,
    inconclusive_reason,
    is_applied,
    parse_batch_headers,
    search_steps,
)
from jsync.models import ClusterInfo, PeerInfo, StreamInfo, StreamState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_PAYLOAD = 1 << 20


def engine(**options: Any) -> AtomicEngine:
    return AtomicEngine("the-id", **options)


def add(
    batch: AtomicEngine, subject: str = "a.b", data: bytes = b"", **options: Any
) -> BatchMessage:
    return batch.add(subject, data, options, MAX_PAYLOAD)  # type: ignore[arg-type]


def read_frame(frame: bytes) -> tuple[str, str, dict[str, str], bytes]:
    """Return subject, reply, headers and payload of one HPUB. This parser is slow and strict."""
    line, _, rest = frame.partition(b"\r\n")
    verb, subject, *reply, headers, total = line.decode().split(" ")
    assert verb == "HPUB"
    assert len(rest) == int(total) + 2
    assert rest.endswith(b"\r\n")
    block, data = rest[: int(headers)], rest[int(headers) : -2]
    assert block.endswith(b"\r\n\r\n")
    found = parse_headers(block)[2]
    assert found is not None
    return subject, "".join(reply), dict(found.pairs()), data


# The messages of a batch ----------------------------------------------------------------


def test_messages_that_ask_nothing_are_written_as_frames() -> None:
    batch = engine()
    entries = [add(batch, f"a.{number}") for number in range(4)]
    write_buffer = WriteBuffer()
    write_buffer.open(-1, b"", direct=False)
    write_entries(
        write_buffer,
        entries,
        0,
        4,
        urgent=False,
        first_reply="r.1",
        reply="r.2",
        commit=COMMIT,
    )
    assert write_buffer.take(1 << 20) == b"".join(
        (
            entries[0].frame("r.1"),
            entries[1].frame(),
            entries[2].frame(),
            entries[3].frame("r.2", COMMIT),
        )
    )


def test_messages_carry_the_id_and_their_number() -> None:
    batch = engine()
    add(batch, "a.1", b"one", msg_id="m", headers={"Own": "x"})
    add(batch, "a.2", b"two")
    first, second = batch.due(last=True)
    assert read_frame(first.frame("reply.here")) == (
        "a.1",
        "reply.here",
        {
            "Own": "x",
            "Nats-Msg-Id": "m",
            "Nats-Batch-Id": "the-id",
            "Nats-Batch-Sequence": "1",
        },
        b"one",
    )
    assert read_frame(second.frame()) == (
        "a.2",
        "",
        {"Nats-Batch-Id": "the-id", "Nats-Batch-Sequence": "2"},
        b"two",
    )


class Subject(StrEnum):
    HERE = "a.here"


def test_a_subject_may_be_of_an_enumeration() -> None:
    batch = engine()
    add(batch, Subject.HERE)
    assert not batch.add_plain(iter([(Subject.HERE, b"")] * 2), MAX_PAYLOAD)
    entries = batch.due(last=True)
    assert [read_frame(entry.frame())[0] for entry in entries] == ["a.here"] * 3


def test_pairs_are_added_until_one_is_incomplete() -> None:
    batch = engine()
    rest: Iterator[object] = iter([("a", b"1"), ("b", b"2", {}), ("c", b"3"), None])
    assert batch.add_plain(rest, MAX_PAYLOAD) == (("b", b"2", {}),)
    assert batch.add_plain(rest, MAX_PAYLOAD) == (None,)
    assert batch.add_plain(rest, MAX_PAYLOAD) == ()
    assert [entry.subject for entry in batch.waiting] == ["a", "c"]


def test_the_last_message_commits_if_held_back() -> None:
    batch = engine()
    for data in (b"1", b"2", b"3"):
        add(batch, data=data)
        batch.due(last=False)
    before, last, header = batch.begin_commit()
    assert (before, last.data, header) == ([], b"3", COMMIT)
    headers = read_frame(last.frame("r", header))[2]
    assert headers["Nats-Batch-Commit"] == "1"
    assert headers["Nats-Batch-Sequence"] == "3"


def test_a_separate_commit_follows_when_everything_was_sent() -> None:
    batch = engine()
    add(batch, "a.1")
    add(batch, "a.2", b"data")
    batch.due(last=True)
    before, last, header = batch.begin_commit()
    assert (before, header) == ([], COMMIT_ALL_SENT)
    assert read_frame(last.frame("r", header)) == (
        "a.2",
        "r",
        {
            "Nats-Batch-Id": "the-id",
            "Nats-Batch-Sequence": "3",
            "Nats-Batch-Commit": "eob",
        },
        b"",
    )


def test_bytes_may_be_changed_once_they_are_added() -> None:
    batch, data = engine(), bytearray(b"before")
    batch.add("a.b", data, {}, MAX_PAYLOAD)
    data[:] = b"after!"
    assert batch.waiting[0].data == b"before"


def test_a_batch_that_ended_leaves_a_permanent_gap() -> None:
    batch = engine()
    for _ in range(3):
        add(batch)
    assert batch.gap_message().sequence == 5


def test_a_new_start_replaces_the_first_message() -> None:
    batch = engine()
    add(batch, "a.1", b"data")
    add(batch, "a.2")
    headers = {"Nats-Batch-Id": "the-id", "Nats-Batch-Sequence": "1"}
    assert read_frame(batch.opening_message().frame("r")) == ("a.2", "r", headers, b"")


OPERATIONS = st.lists(
    st.sampled_from(["add", "add with ack", "commit with a message"]), max_size=30
)


@given(OPERATIONS)
def test_any_calls_send_messages_in_order_then_commit(
    operations: Sequence[str],
) -> None:
    batch = engine()
    sent: list[tuple[BatchMessage, bytes]] = []
    for operation in operations:
        add(batch, data=b"%d" % len(batch.waiting))
        if operation == "commit with a message":
            break
        sent += [(entry, b"") for entry in batch.due(last=operation == "add with ack")]
        assert len(batch.waiting) == (0 if operation == "add with ack" else 1)
    if not batch.added:
        with pytest.raises(errors.ConfigError, match="empty"):
            batch.begin_commit()
        return
    before, last, header = batch.begin_commit()
    sent += [(entry, b"") for entry in before]
    sent.append((last, header))
    numbers = [entry.sequence for entry, _ in sent]
    assert numbers == list(range(1, len(sent) + 1))
    assert [bool(commit) for _, commit in sent] == [False] * (len(sent) - 1) + [True]
    assert len(sent) == batch.added + (header == COMMIT_ALL_SENT)
    for entry, commit in sent:
        headers = read_frame(entry.frame("r", commit))[2]
        assert headers["Nats-Batch-Sequence"] == str(entry.sequence)
        assert headers["Nats-Batch-Id"] == batch.id


@given(
    st.text(
        st.characters(codec="utf-8", exclude_characters=" \t\r\n.*>\0"), min_size=1
    ),
    st.binary(max_size=50),
    st.dictionaries(
        st.from_regex(r"[A-Z][a-z]{1,8}", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=9),
        max_size=3,
    ),
    st.sampled_from(["", "_INBOX.x.7"]),
    st.sampled_from([b"", COMMIT, COMMIT_ALL_SENT]),
)
def test_a_frame_reports_the_added_messages(
    subject: str, data: bytes, own: dict[str, str], reply: str, commit: bytes
) -> None:
    batch = engine()
    try:
        entry = add(batch, subject, data, headers=own)
    except errors.InvalidSubjectError:
        return
    frame = entry.frame(reply, commit)
    got = read_frame(frame)
    assert (got[0], got[1], got[3]) == (subject, reply, data)
    assert {n: v for n, v in got[2].items() if n in own} == {
        name: value.strip(" \t") for name, value in own.items()
    }
    line = frame[: frame.index(b"\r\n") + 2]
    assert len(frame) - len(line) - 2 == entry.size + len(commit)


# Errors before anything is sent ---------------------------------------------------------

REFUSED: dict[
    str, tuple[list[dict[str, Any]], dict[str, Any], type[Exception], str]
] = {
    "an id twice": (
        [{"msg_id": "m"}],
        {"msg_id": "m"},
        errors.ConfigError,
        "'m' is twice",
    ),
    "a late expected sequence": (
        [{}],
        {"expected_last_sequence": 0},
        errors.ConfigError,
        "only the first message",
    ),
    "an expectation of what the batch has written": (
        [{"subject": "a.b"}],
        {"subject": "a.b", "expected_last_subject_sequence": 3},
        errors.ConfigError,
        "'a.b' already",
    ),
    "such an expectation with a subject of its own": (
        [{"subject": "a.b"}],
        {
            "subject": "a.c",
            "expected_last_subject_sequence": 3,
            "expected_last_subject": "a.b",
        },
        errors.ConfigError,
        "'a.b' already",
    ),
    "an expected id": (
        [],
        {"expected_last_msg_id": "m"},
        errors.ConfigError,
        "no server checks it in a batch",
    ),
    "headers of the batch": (
        [],
        {"headers": {"Nats-Batch-Id": "mine"}},
        errors.ConfigError,
        "Nats-Batch-Id",
    ),
    "a wildcard": ([], {"subject": "a.*"}, errors.InvalidSubjectError, "wildcard"),
    "text": ([], {"data": "text"}, TypeError, "encode it first"),
    "a dict": ([], {"data": {}}, TypeError, r"not dict: encode it first, as in json"),
    "a number": ([], {"data": 5}, TypeError, "int"),
    "a header that cannot be": (
        [],
        {"headers": {"a b": "c"}},
        errors.InvalidHeaderError,
        "'a b'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_message_that_servers_refuse_is_not_added(case: str) -> None:
    before, refused, error, words = REFUSED[case]
    batch = engine()
    for message in before:
        add(batch, **message)
    with pytest.raises(error, match=words):
        add(batch, **refused)
    assert (batch.added, len(batch.waiting)) == (len(before), len(before))
    assert batch.state is BatchState.OPEN
    add(batch, "a.next", msg_id="other")
    assert batch.waiting[-1].sequence == len(before) + 1


def test_a_refused_message_is_not_remembered() -> None:
    batch = engine()
    with pytest.raises(errors.MaxPayloadError):
        batch.add("a.b", bytes(200), {"msg_id": "m"}, 150)
    add(batch, "a.b", msg_id="m", expected_last_subject_sequence=0)


def test_a_message_must_fit_with_its_commit_headers() -> None:
    sized = engine()
    add(sized)
    largest = 1000 - sized.waiting[0].size - len(COMMIT)
    engine().add("a.b", bytes(largest), {}, 1000)
    with pytest.raises(errors.MaxPayloadError, match="1001 bytes"):
        engine().add("a.b", bytes(largest + 1), {}, 1000)
    commit = engine().add("a.b", bytes(largest), {}, 1000).frame("", COMMIT)
    assert commit.startswith(b"HPUB a.b %d 1000\r\n" % (1000 - largest))


def test_the_limit_guards_unless_it_is_switched_off() -> None:
    batch = engine(max_messages=2)
    add(batch)
    add(batch)
    with pytest.raises(errors.ConfigError, match="max_messages=None"):
        add(batch)
    unlimited = engine(max_messages=None)
    for _ in range(1001):
        add(unlimited)
    assert unlimited.added == 1001
    with pytest.raises(errors.ConfigError, match="at least 1"):
        engine(max_messages=0)


# The states of a batch ------------------------------------------------------------------


@pytest.mark.parametrize("state", BatchState)
@pytest.mark.parametrize("then", BatchState)
def test_a_state_changes_only_by_the_table(state: BatchState, then: BatchState) -> None:
    batch = engine()
    batch._state.current = state
    if then in TRANSITIONS[state]:
        batch.transition(then)
        assert batch.state is then
    else:
        with pytest.raises(errors.AtomicBatchClosedError, match=state.value):
            batch.transition(then)
        assert batch.state is state


@pytest.mark.parametrize("state", [s for s in BatchState if s is not BatchState.OPEN])
def test_nothing_is_added_after_the_end(state: BatchState) -> None:
    batch = engine()
    add(batch)
    batch._state.current = state
    with pytest.raises(errors.AtomicBatchClosedError, match=state.value):
        add(batch)
    with pytest.raises(errors.AtomicBatchClosedError, match=state.value):
        batch.begin_commit()


# Answers --------------------------------------------------------------------------------

REFUSAL = (
    b'{"error":{"code":400,"err_code":10176,"description":"incomplete"},'
    b'"stream":"S","seq":0}'
)


def test_an_empty_answer_confirms_all_messages_before_it() -> None:
    batch = engine()
    batch.confirm(3, b"")
    batch.confirm(2, b"")
    assert batch.confirmed == 3


@pytest.mark.parametrize("of", ["confirm", "commit"])
def test_an_error_is_raised_as_its_class(of: str) -> None:
    batch = engine()
    with pytest.raises(errors.AtomicPublishIncompleteBatchError):
        batch.confirm(1, REFUSAL) if of == "confirm" else batch.committed(REFUSAL)


@pytest.mark.parametrize("of", ["confirm", "commit"])
def test_acks_of_plain_messages_reveal_an_old_server(
    of: str,
) -> None:
    batch = engine()
    plain = b'{"stream":"S", "seq":7}'
    with pytest.raises(errors.AtomicBatchUnsupportedError) as caught:
        batch.confirm(1, plain) if of == "confirm" else batch.committed(plain)
    assert (caught.value.stored.stream, caught.value.stored.seq) == ("S", 7)
    assert caught.value.since == "2.12"


def test_the_ack_of_the_batch_commits_it() -> None:
    batch = engine()
    add(batch)
    ack = batch.committed(b'{"stream":"S","seq":8,"batch":"the-id","count":1}')
    assert ack is batch.pub_ack
    assert (ack.seq, ack.count) == (8, 1)


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"?",
        b'{"stream":"S","seq":8,"batch":"other","count":1}',
        b'{"stream":"S","seq":8,"batch":"the-id","count":2}',
    ],
)
def test_any_other_answer_to_a_commit_commits_nothing(reply: bytes) -> None:
    batch = engine()
    add(batch)
    with pytest.raises(errors.JetStreamError) as caught:
        batch.committed(reply)
    assert type(caught.value) is errors.JetStreamError
    assert batch.pub_ack is None


# Servers that store wrongly -------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "rightly"),
    [
        ("2.12.0", False),
        ("2.12.11", False),
        ("2.12.12", True),
        ("2.12.13-RC.1", True),
        ("2.14.0", False),
        ("2.14.2", False),
        ("2.14.3", True),
        ("2.15.0-dev", True),
        ("3.0.0", True),
        ("", False),
        ("newest", False),
    ],
)
def test_the_engine_knows_which_servers_store_counters_correctly(
    version: str, rightly: bool
) -> None:
    assert has_batch_fix(version) is rightly


def test_old_servers_store_batched_counters_and_schedules_wrongly() -> None:
    assert affected_option({"incr": 1}) == "incr"
    assert affected_option({"schedule": "@hourly"}) == "schedule"
    assert affected_option({"msg_id": "m", "incr": None}) is None


# The result of a commit -----------------------------------------------------------------

HEADERS = {"Nats-Batch-Id": "the-id", "Nats-Batch-Sequence": "2"}


@pytest.mark.parametrize(
    ("headers", "placed"),
    [
        (HEADERS, BatchPosition(9, 2)),
        ({**HEADERS, "Nats-Batch-Id": "other"}, None),
        ({**HEADERS, "Nats-Scheduler": "a.b"}, None),
        ({"Nats-Batch-Id": "the-id"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_stored_message_tells_its_batch(
    headers: dict[str, str] | None, placed: BatchPosition | None
) -> None:
    assert parse_batch_headers(9, headers, "the-id") == placed


@given(
    floor=st.integers(0, 50),
    count=st.integers(1, 20),
    gap=st.integers(0, 30),
    after=st.integers(0, 30),
)
def test_the_steps_meet_a_batch_wherever_it_is(
    floor: int, count: int, gap: int, after: int
) -> None:
    first = floor + 1 + gap
    last = first + count - 1
    met = [
        step
        for step in search_steps(floor, last + after, count)
        if first <= step <= last
    ]
    assert len(met) == 1


def info(**state: Any) -> StreamInfo:
    return StreamInfo(state=StreamState(**state))


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"first_seq": 1, "last_seq": 20}, None),
        ({"first_seq": 11, "last_seq": 20}, None),
        ({"first_seq": 11, "last_seq": 10}, None),
        ({"first_seq": 12, "last_seq": 20}, "removed"),
        ({"first_seq": 21, "last_seq": 20}, "removed"),
        ({"first_seq": 1, "last_seq": 9}, "another stream"),
        ({"first_seq": 1, "last_seq": 20, "num_deleted": 1, "deleted": [10]}, None),
        (
            {"first_seq": 1, "last_seq": 20, "num_deleted": 1, "deleted": [11]},
            "deleted",
        ),
        ({"first_seq": 1, "last_seq": 20, "num_deleted": 1}, "deleted"),
    ],
)
def test_absence_proves_something_only_while_nothing_was_removed(
    state: dict[str, Any], reason: str | None
) -> None:
    found = inconclusive_reason(info(**state), 10)
    assert found is None if reason is None else re.search(reason, found or "")


@pytest.mark.parametrize(
    ("replicas", "settled"),
    [
        ([], True),
        ([(True, 0.5), (True, 0.5)], True),
        ([(True, 0.5), (True, 5.0)], True),
        ([(True, 5.0), (True, 5.0)], False),
        ([(False, 0.5), (False, 0.5)], False),
        ([(True, -1.0), (True, -1.0)], False),
        ([(True, 0.5), (False, 0.5), (False, 0.5), (False, 0.5)], False),
        ([(True, 0.5), (True, 0.5), (False, 0.5), (False, 0.5)], True),
    ],
)
def test_a_leader_has_stored_what_the_majority_has(
    replicas: list[tuple[bool, float]], settled: bool
) -> None:
    cluster = ClusterInfo(
        replicas=[
            PeerInfo(current=current, active=active) for current, active in replicas
        ]
    )
    assert is_applied(StreamInfo(cluster=cluster), 1.0) is settled
    assert is_applied(StreamInfo(), 1.0)


def test_only_the_leader_reports_the_stored_messages() -> None:
    replicas = [PeerInfo(current=True, active=0.1)] * 2
    cluster = ClusterInfo(
        raft_group="S-R3F-x", replicas=replicas, traffic_account="$SYS"
    )
    assert not is_applied(StreamInfo(cluster=cluster), 1.0)
    led = cluster.replace(leader_since=datetime.now(UTC))
    assert is_applied(StreamInfo(cluster=led), 1.0)
