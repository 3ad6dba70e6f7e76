"""Tests of the requests and replies of direct gets, with a model of the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from jsync import errors
from jsync._fast import Mailbox, Msg, WriteBuffer
from jsync.jetstream.keyvalue.engine import BucketLayout, LastEntries
from jsync.jetstream.stored.engine import (
    MAX_EMPTY_REPLIES,
    LastPerSubjectReader,
    ReadAction,
    SubjectReader,
)
from jsync.jetstream.stream_end.engine import PendingMessages, end_in
from jsync.models import StoredMessage, StreamConfig, StreamInfo

from ....fuzz.fuzz_fast import SEEDS, answer_or_error, ask, read_answer
from ....support import reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.jetstream.stored.engine import PagedReader

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def time_of(sequence: int) -> datetime:
    return BEGINNING + timedelta(seconds=sequence)


def answer(sequence: int, subject: str, previous: int, pending: int) -> Msg:
    """Return a message as the reply to a direct get of several messages."""
    return Msg(
        "inbox",
        str(sequence).encode(),
        headers={
            "Nats-Stream": "S",
            "Nats-Subject": subject,
            "Nats-Sequence": str(sequence),
            "Nats-Time-Stamp": time_of(sequence).isoformat(),
            "Nats-Num-Pending": str(pending),
            "Nats-Last-Sequence": str(previous),
        },
    )


def status(line: str, **headers: int) -> Msg:
    """Return a status of the server."""
    lines = [f"NATS/1.0 {line}"]
    lines += [f"Nats-{name.replace('_', '-')}: {n}" for name, n in headers.items()]
    return parsed("\r\n".join([*lines, "", ""]).encode())


def parsed(block: bytes) -> Msg:
    from jsync._fast import Parser  # noqa: PLC0415

    size = len(block)
    ((_, (_, msg)),) = Parser().feed(
        b"HMSG inbox 1 %d %d\r\n%s\r\n" % (size, size, block)
    )
    assert isinstance(msg, Msg)
    return msg


def last_of_each(**options: Any) -> LastPerSubjectReader[StoredMessage]:
    return LastPerSubjectReader(">", StoredMessage.from_answer, **options)


def end(previous: int, pending: int) -> Msg:
    return status("204 EOB", Num_Pending=pending, Last_Sequence=previous)


@dataclass
class Server:
    """A stream, and the replies of nats-server to direct gets from it."""

    subjects: dict[int, str] = field(default_factory=dict)
    """The subject of each existing sequence."""
    miscounts: bool = False
    """Whether the end of a batch has a wrong count, as in nats-server 2.11."""

    def answers(self, request: dict[str, Any]) -> Iterator[Msg]:
        first = request.get("seq", 0)
        if "start_time" in request:
            start = datetime.fromisoformat(request["start_time"])
            first = next((s for s in sorted(self.subjects) if time_of(s) >= start), 99)
        if "multi_last" in request:
            bound = request.get("up_to_seq") or max(self.subjects, default=0)
            last = {subj: s for s, subj in sorted(self.subjects.items()) if s <= bound}
            matching = sorted(last.values())
            if not matching:
                yield status("404 No Results")
                return
        else:
            wanted = request["next_by_subj"]
            matching = [
                s for s, subj in sorted(self.subjects.items()) if wanted in (">", subj)
            ]
        found = [sequence for sequence in matching if sequence >= first]
        if not found and "multi_last" not in request:
            yield status("404 Message Not Found")
            return
        previous, size = 0, 0
        for sequence in found[: request["batch"]]:
            left = len(found) - found.index(sequence) - 1
            yield answer(sequence, self.subjects[sequence], previous, left)
            previous, size = sequence, size + 10
            if size >= request["max_bytes"]:
                break
        left = len([s for s in found if s > previous])
        if self.miscounts and "multi_last" in request:
            left = max(0, left - 1)
        yield end(previous, left)


def read(
    pages: PagedReader[StoredMessage],
    server: Server,
    losses: Iterator[str] = iter(()),  # noqa: B008
) -> list[int]:
    """Read to the end. `losses` gives the fate of each reply. Later replies arrive."""
    got: list[int] = []
    step = ReadAction.REQUEST
    while step not in (ReadAction.CONFIRM, ReadAction.END):
        step = ReadAction.WAIT
        answers = server.answers(pages.request())
        while step is ReadAction.WAIT:
            msg = next(answers, None)
            loss = next(losses, "")
            if loss == "message":  # this reply is lost, and later ones arrive
                continue
            if loss == "connection":
                taken: StoredMessage | ReadAction = pages.on_interrupt(
                    errors.ConnectionLostError("lost")
                )
            elif msg is None:
                taken = pages.on_interrupt(errors.TimeoutError("late"))
            else:
                taken = pages.take(msg)
            if isinstance(taken, StoredMessage):
                got.append(taken.sequence)
                if pages.done:
                    return got
            else:
                step = taken
    return got


SUBJECTS = st.dictionaries(st.integers(1, 40), st.sampled_from("abc"), max_size=30)
BATCH = st.integers(1, 8)
MAX_BYTES = st.integers(1, 60)


@given(SUBJECTS, BATCH, MAX_BYTES, st.sampled_from([">", "a", "b"]), st.data())
def test_a_range_holds_all_matches_in_order(
    subjects: dict[int, str],
    batch: int,
    max_bytes: int,
    subject: str,
    data: st.DataObject,
) -> None:
    first = data.draw(st.integers(1, 45))
    up_to = data.draw(st.none() | st.integers(1, 45))
    before = data.draw(st.none() | st.integers(1, 45))
    most = data.draw(st.none() | st.integers(1, 20))
    by_time = data.draw(st.booleans())
    pages = SubjectReader(
        subject,
        sequence=None if by_time else first,
        start_time=time_of(first) if by_time else None,
        up_to_sequence=up_to,
        up_to_time=None if before is None else time_of(before),
        max_messages=most,
        batch=batch,
        max_bytes=max_bytes,
    )
    wanted = [
        sequence
        for sequence in sorted(subjects)
        if subject in (">", subjects[sequence])
        and first <= sequence <= (up_to or 99)
        and sequence < (before or 99)
    ]
    assert read(pages, Server(subjects)) == wanted[:most]


@given(SUBJECTS, BATCH, MAX_BYTES, st.none() | st.integers(1, 45), st.booleans())
def test_the_last_of_each_subject_comes_once(
    subjects: dict[int, str],
    batch: int,
    max_bytes: int,
    up_to: int | None,
    miscounts: bool,
) -> None:
    pages = last_of_each(up_to_sequence=up_to, batch=batch, max_bytes=max_bytes)
    last = {
        subject: sequence
        for sequence, subject in sorted(subjects.items())
        if sequence <= (up_to or 99)
    }
    assert read(pages, Server(subjects, miscounts)) == sorted(last.values())


@given(
    SUBJECTS,
    BATCH,
    st.lists(st.sampled_from(["", "", "", "message", "connection"]), max_size=40),
    st.booleans(),
)
def test_no_loss_makes_a_read_skip_or_repeat(
    subjects: dict[int, str], batch: int, losses: list[str], last: bool
) -> None:
    pages: PagedReader[StoredMessage] = (
        last_of_each(batch=batch) if last else SubjectReader(batch=batch)
    )
    wanted = read(last_of_each() if last else SubjectReader(), Server(subjects))
    try:
        assert read(pages, Server(subjects), iter(losses)) == wanted
    except errors.Error as error:
        # The read gives up only if all replies to several requests in a row were lost.
        lost = [loss for loss in losses if loss]
        assert isinstance(error, errors.TimeoutError) or len(lost) >= MAX_EMPTY_REPLIES  # noqa: PT017


def test_a_request_asks_for_only_the_wanted_messages() -> None:
    pages = SubjectReader(sequence=5, up_to_sequence=8, max_messages=100, batch=50)
    assert pages.request() == {
        "next_by_subj": ">",
        "seq": 5,
        "batch": 4,
        "max_bytes": 8 << 20,
    }
    pages.take(answer(6, "a", 0, 10))
    assert pages.request()["seq"] == 7
    assert pages.request()["batch"] == 2
    pages.take(answer(7, "a", 0, 10))
    done_before = pages.done
    pages.take(answer(8, "a", 7, 10))
    assert (done_before, pages.done) == (False, True)
    pages = SubjectReader(max_messages=3, batch=2)
    assert pages.request()["batch"] == 2
    for sequence in (1, 2):
        pages.take(answer(sequence, "a", sequence - 1, 10))
    assert pages.request()["batch"] == 1


def test_a_subject_updated_between_pages_is_not_repeated() -> None:
    server = Server({1: "a", 2: "b", 3: "c"})
    pages = last_of_each(batch=1)
    (first, _) = server.answers(pages.request())
    taken = pages.take(first)
    assert isinstance(taken, StoredMessage)
    assert taken.subject == "a"
    server.subjects = {3: "c", 4: "a", 5: "b"}
    assert read(pages, server) == [3, 5]


def test_silence_is_a_timeout_unless_something_has_come() -> None:
    late = errors.TimeoutError("late")
    pages = SubjectReader()
    pages.request()
    with pytest.raises(errors.TimeoutError):
        pages.on_interrupt(late)
    pages.take(answer(1, "a", 0, 5))
    assert pages.on_interrupt(late) is ReadAction.REQUEST
    pages.request()
    with pytest.raises(errors.TimeoutError):
        pages.on_interrupt(late)


def test_a_connection_lost_repeatedly_is_given_up() -> None:
    lost = errors.ConnectionLostError("lost")
    pages = SubjectReader()
    for _ in range(MAX_EMPTY_REPLIES - 1):
        pages.request()
        assert pages.on_interrupt(lost) is ReadAction.REQUEST
    # After one message, it can be lost as often as before.
    pages.request()
    pages.take(answer(1, "a", 0, 5))
    assert pages.on_interrupt(lost) is ReadAction.REQUEST
    for _ in range(MAX_EMPTY_REPLIES - 1):
        pages.request()
        assert pages.on_interrupt(lost) is ReadAction.REQUEST
    pages.request()
    with pytest.raises(errors.ConnectionLostError):
        pages.on_interrupt(lost)


def test_a_message_gone_after_lookup_is_requested_again() -> None:
    gone = status("404 Message Not Found")
    pages = last_of_each()
    pages.request()
    pages.take(answer(1, "a", 0, 5))
    assert pages.take(gone) is ReadAction.REQUEST
    for _ in range(MAX_EMPTY_REPLIES - 1):
        pages.request()
        assert pages.take(gone) is ReadAction.REQUEST
    pages.request()
    with pytest.raises(errors.MessageNotFoundError):
        pages.take(gone)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("408 Empty Request", errors.InvalidRequestError),
        ("408 Malformed Request", errors.InvalidRequestError),
        ("408 Bad Request", errors.InvalidRequestError),
        ("412 Required Api Level", errors.RequiredAPILevelError),
        ("413 Too Many Results", errors.TooManyResultsError),
        ("500 something broke", errors.DirectGetError),
        ("503", errors.DirectGetNotAllowedError),
        ("999 of a newer server", errors.DirectGetError),
    ],
)
def test_every_status_has_its_own_error(line: str, kind: type[errors.Error]) -> None:
    with pytest.raises(kind) as raised:
        SubjectReader().take(status(line))
    assert type(raised.value) is kind


def test_a_server_answering_one_by_one_is_outdated() -> None:
    headers = {"Nats-Stream": "S", "Nats-Subject": "a", "Nats-Sequence": "1"}
    headers["Nats-Time-Stamp"] = "2026-01-01T00:00:00Z"
    with pytest.raises(errors.UnsupportedFeatureError, match=r"2\.11"):
        SubjectReader().take(Msg("inbox", b"", headers=headers))


def test_a_reply_that_is_no_stored_message_raises() -> None:
    for headers in (
        {"Nats-Stream": "S", "Nats-Subject": "a", "Nats-Sequence": "1"},
        {"Nats-Num-Pending": "1"},
        {"Nats-Num-Pending": "1", "Nats-Subject": "a", "Nats-Sequence": "x"},
    ):
        with pytest.raises(errors.JetStreamError, match="not a stored message"):
            SubjectReader().take(Msg("inbox", b"", headers=headers))
    with pytest.raises(errors.JetStreamError, match="not a stored message"):
        StoredMessage.from_api("S", {"seq": 1})
    with pytest.raises(errors.JetStreamError, match="not a stored message"):
        StoredMessage.from_api("S", {"subject": "a", "seq": 1, "data": 5, "time": ""})


@pytest.mark.parametrize(
    ("first", "has_all"), [(9, False), (10, False), (11, True), (None, True)]
)
def test_a_read_includes_the_leaders_last_message(
    first: int | None, has_all: bool
) -> None:
    state = {"messages": 10, "first_seq": 1, "last_seq": 10}
    info = StreamInfo.from_wire({"config": {"name": "S"}, "state": state})
    assert last_of_each().confirmed(PendingMessages(end_in(info), first)) is has_all


def test_the_repr_of_a_read_shows_its_place() -> None:
    pages = SubjectReader()
    assert repr(pages) == "<SubjectReader at the beginning>"
    pages.take(answer(1, "a", 0, 5))
    assert repr(pages) == "<SubjectReader at 2>"


ANSWERED = [
    ("Nats-Stream", st.sampled_from(["S", "é", ""])),
    ("Nats-Subject", st.sampled_from(["a.b", "é", ""])),
    ("Nats-Sequence", st.sampled_from(["7", "0", "-1", "+1", "x", str(2**64)])),
    (
        "Nats-Time-Stamp",
        st.one_of(
            st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
            st.builds(
                "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{}{}".format,
                st.sampled_from([0, 1, 1900, 1969, 1970, 2000, 2024, 2026, 9999]),
                *(st.integers(0, most) for most in (13, 32, 24, 60, 60)),
                st.sampled_from(["", ".", ".1", ".123456789", ".9999999", ".1x"]),
                st.sampled_from(["Z", "z", "", "+00:00", "-23:59", "+24:00", "+01:60"]),
            ),
        ),
    ),
    ("Nats-Num-Pending", st.sampled_from(["3", "0", "x", ""])),
    ("Nats-Last-Sequence", st.sampled_from(["5", "0", "x", ""])),
    ("KV-Operation", st.sampled_from(["DEL", "PUT"])),
    ("Other", st.just("")),
]


@st.composite
def answer_blocks(draw: st.DrawFn) -> bytes:
    """Make the headers of a reply, with some that are missing, strange or repeated."""
    lines = [f"{name}: {draw(value)}" for name, value in ANSWERED[:6]]
    for _ in range(draw(st.integers(0, 2))):
        lines.pop(draw(st.integers(0, len(lines) - 1)))
    for _ in range(draw(st.integers(0, 2))):
        name, value = draw(st.sampled_from(ANSWERED))
        lines.insert(draw(st.integers(0, len(lines))), f"{name}: {draw(value)}")
    return "\r\n".join(["NATS/1.0", *lines, "", ""]).encode()


@given(st.one_of(answer_blocks(), st.binary(max_size=40)), st.booleans())
def test_the_obvious_reading_gives_the_same_answer(block: bytes, batched: bool) -> None:
    assert answer_or_error(read_answer, block, batched=batched) == answer_or_error(
        reference.direct_answer, block, batched=batched
    )


def test_the_oracle_reads_fuzzer_seeds_the_same_way() -> None:
    for seed in SEEDS:
        ask(seed)


def taken(answers: list[Msg], pages: LastEntries) -> list[tuple[str, bytes]]:
    """Return the keys and values that are taken at once from the received replies."""
    mailbox = Mailbox(WriteBuffer(), 1)
    mailbox.put_back(answers)
    return [(entry.key, entry.value) for entry in pages.take_ready(mailbox)]


def entries() -> LastEntries:
    layout: BucketLayout = BucketLayout(StreamConfig(name="KV_B"), "$JS.API")
    pages = LastEntries(layout, ["$KV.B.>"])
    pages.request()
    return pages


def test_the_entries_that_are_here_are_taken_together() -> None:
    pages = entries()
    answers = [answer(3, "$KV.B.a", 0, 2), answer(5, "$KV.B.b", 3, 0), end(5, 0)]
    assert taken(answers, pages) == [("a", b"3"), ("b", b"5")]
    assert pages.take(end(5, 0)) is ReadAction.CONFIRM


def test_entries_after_a_lost_one_are_requested_again() -> None:
    pages = entries()
    assert taken([answer(3, "$KV.B.a", 0, 2), answer(6, "$KV.B.c", 5, 0)], pages) == [
        ("a", b"3")
    ]
    assert pages.take(answer(6, "$KV.B.c", 5, 0)) is ReadAction.REQUEST
    assert pages.request()["seq"] == 4


def test_entries_repeated_on_a_later_page_are_skipped() -> None:
    pages = entries()
    assert taken([answer(3, "$KV.B.a", 0, 2)], pages) == [("a", b"3")]
    assert pages.take(end(3, 2)) is ReadAction.REQUEST
    pages.request()
    answers = [answer(4, "$KV.B.b", 0, 1), answer(6, "$KV.B.a", 4, 0)]
    assert taken(answers, pages) == [("b", b"4")]
    assert pages.take(end(6, 0)) is ReadAction.CONFIRM
