"""Tests of the ack subject, which holds the origin of a message (ADR-15)."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st
from nats.aio.msg import Msg as NatsPyMsg

from jsync._fast import parse_ack_subject
from jsync.errors import JetStreamError, NotJetStreamMessageError

from ...support import reference
from ...support.reference import outcome, shown_metadata

V1 = "$JS.ACK.ORDERS.worker.1.20.3.1760000000123456789.42"
V2 = "$JS.ACK.hub.ABCDEF.ORDERS.worker.1.20.3.1760000000123456789.42"


def test_nine_tokens_are_version_1() -> None:
    metadata = parse_ack_subject(V1)
    assert metadata.stream == "ORDERS"
    assert metadata.consumer == "worker"
    assert metadata.num_delivered == 1
    assert metadata.stream_sequence == 20
    assert metadata.consumer_sequence == 3
    assert metadata.timestamp == datetime(2025, 10, 9, 8, 53, 20, 123456, tzinfo=UTC)
    assert metadata.timestamp_ns == 1760000000123456789
    assert metadata.num_pending == 42
    assert metadata.domain is None


@pytest.mark.parametrize(
    "more", ["", ".random", ".random.and.more", ".1.2.3.4.5.6.7.8"]
)
def test_eleven_tokens_and_more_are_version_2(more: str) -> None:
    metadata = parse_ack_subject(V2 + more)
    assert metadata.domain == "hub"
    without_domain = parse_ack_subject(V2.replace("hub", "_") + more)
    assert shown_metadata(without_domain) == shown_metadata(parse_ack_subject(V1))


@pytest.mark.parametrize("subject", [V1, V2, V2.replace("ORDERS", "\udcff")])
def test_metadata_survives_pickling_and_copying(subject: str) -> None:
    metadata = parse_ack_subject(subject)
    for other in (pickle.loads(pickle.dumps(metadata)), copy.deepcopy(metadata)):
        assert shown_metadata(other) == shown_metadata(metadata)


def test_an_underscore_is_no_domain() -> None:
    assert parse_ack_subject(V2.replace("hub", "_")).domain is None
    assert parse_ack_subject(V2.replace("hub", "__")).domain == "__"


def test_names_may_be_utf8() -> None:
    metadata = parse_ack_subject(V2.replace("ORDERS", "é☃").replace("worker", "𝄞"))
    assert (metadata.stream, metadata.consumer) == ("é☃", "𝄞")


def test_a_name_that_is_not_utf8_stays_unchanged() -> None:
    """As in `Msg.reply`, invalid bytes become lone surrogates, and these become bytes again."""
    assert parse_ack_subject(V1.replace("ORDERS", "\udcff")).stream == "\udcff"


@pytest.mark.parametrize(
    "subject",
    [
        "",
        ".",
        "orders.new",
        "_INBOX.a.b",
        "$JS",
        "$JS.ACK",
        "$JS.ACK.",
        "$JS.API.ORDERS.worker.1.20.3.1760000000123456789.42",
        "$js.ack.ORDERS.worker.1.20.3.1760000000123456789.42",
        "$JS.ACKS.ORDERS.worker.1.20.3.1760000000123456789.42",
        "$JS.FC.ORDERS.worker.1.20.3.1760000000123456789.42",
        "x" + V1,
        " " + V1,
        V1.rpartition(".")[0],
        V1 + ".10th",
        "$JS.ACK.3.4.5.6.7.8.9.10",
        V1 + ".",
        V2.rpartition(".")[0],
        "........",
        "$JS.ACK.......",
        "$JS.ACK.........",
        *(V1.replace(".1.20.", f".{bad}.20.") for bad in ("x", "-1", "+1", "", " 1")),
        *(V1.replace(".20.", f".{bad}.") for bad in ("x", "1_0", "0x1", "1e3", "²")),
        *(
            V1.replace(".3.", f".{bad}.")
            for bad in ("x", "\u0663", "\uff13", "3 ", "3\0")
        ),
        V1.replace("1760000000123456789", "now"),
        V1.replace("1760000000123456789", "-1"),
        V1 + "x",
        V1[:-2] + "-1",
        V1[:-2] + "\udcff",
        V1.replace("ORDERS", "\ud800"),
    ],
)
def test_anything_else_is_no_ack_subject(subject: str) -> None:
    with pytest.raises(NotJetStreamMessageError) as refused:
        parse_ack_subject(subject)
    assert isinstance(refused.value, JetStreamError)


@pytest.mark.parametrize("subject", [None, V1.encode(), 5])
def test_a_subject_is_text(subject: Any) -> None:
    with pytest.raises(TypeError):
        parse_ack_subject(subject)


@pytest.mark.parametrize("position", range(4, 9))
def test_numbers_above_64_bits_are_refused_not_wrapped(position: int) -> None:
    tokens = V1.split(".")
    for value in (2**64, 2**64 + 1, 2**65, 10**20, 10**300):
        tokens[position] = str(value)
        with pytest.raises(NotJetStreamMessageError):
            parse_ack_subject(".".join(tokens))


def test_sequences_may_have_64_bits() -> None:
    largest = 2**64 - 1
    metadata = parse_ack_subject(
        f"$JS.ACK.s.c.{largest}.{largest}.{largest}.0.{largest}"
    )
    assert metadata.num_delivered == largest
    assert metadata.stream_sequence == largest
    assert metadata.consumer_sequence == largest
    assert metadata.num_pending == largest


@pytest.mark.parametrize(
    "ns",
    [
        *(0, 1, 999, 1000, 999_999_999, 1_000_000_000, 1760000000123456789),
        *(1760000000999999999, 4_102_444_800_000_000_000, 2**63 - 1),
    ],
)
def test_a_timestamp_keeps_its_microseconds(ns: int) -> None:
    metadata = parse_ack_subject(f"$JS.ACK.s.c.1.1.1.{ns}.0")
    assert metadata.timestamp_ns == ns
    seconds, rest = divmod(ns, 10**9)
    expected = datetime.fromtimestamp(seconds, UTC) + timedelta(
        microseconds=rest // 1000
    )
    assert metadata.timestamp == expected
    assert metadata.timestamp.tzinfo is UTC


def test_metadata_is_not_changed() -> None:
    metadata: Any = parse_ack_subject(V1)
    for field in ("stream", "num_delivered", "timestamp", "timestamp_ns", "domain"):
        with pytest.raises(AttributeError):
            setattr(metadata, field, 1)


names = st.text(
    st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1
)
numbers = st.integers(0, 2**64 - 1)
times = st.integers(0, 2**63 - 1)


@st.composite
def ack_subjects(draw: st.DrawFn) -> str:
    version_2 = [draw(st.sampled_from(["_", "hub"])), "hash"]
    extra = draw(st.lists(names, max_size=3)) if draw(st.booleans()) else None
    counts = [draw(numbers) for _ in range(3)]
    tail = [draw(names), draw(names), *counts, draw(times), draw(numbers)]
    middle = [] if extra is None else version_2
    return ".".join(["$JS", "ACK", *middle, *map(str, tail), *(extra or [])])


@given(ack_subjects())
def test_ack_subjects_read_as_the_oracle_reads_them(subject: str) -> None:
    expected = shown_metadata(reference.parse_ack_subject(subject))
    assert shown_metadata(parse_ack_subject(subject)) == expected


@given(
    st.lists(
        st.sampled_from(["$JS", "ACK", "_", "0", "1", "18446744073709551616", "", "x"])
        | st.text(max_size=3),
        max_size=14,
    ).map(lambda tokens: ".".join(["$JS.ACK", *tokens]))
)
def test_the_oracle_reads_near_ack_subjects_equally(subject: str) -> None:
    expected = outcome(lambda: shown_metadata(reference.parse_ack_subject(subject)))
    assert outcome(lambda: shown_metadata(parse_ack_subject(subject))) == expected


@given(ack_subjects())
def test_ack_subjects_read_as_nats_py_reads_them(subject: str) -> None:
    ours, theirs = parse_ack_subject(subject), NatsPyMsg.Metadata._from_reply(subject)
    assert ours.stream == theirs.stream
    assert ours.consumer == theirs.consumer
    assert ours.num_delivered == theirs.num_delivered
    assert ours.stream_sequence == theirs.sequence.stream
    assert ours.consumer_sequence == theirs.sequence.consumer
    assert ours.num_pending == theirs.num_pending
    assert (ours.domain or "") == (theirs.domain or "")
    # nats-py uses a float, whose 53 bits do not hold all nanoseconds.
    assert abs(ours.timestamp - theirs.timestamp) < timedelta(milliseconds=1)
