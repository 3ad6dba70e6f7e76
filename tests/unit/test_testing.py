"""Tests of messages made by hand, which record the acks of a handler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jsync import JetStreamMsg
from jsync.errors import (
    ConfigError,
    InvalidSubjectError,
    NoReplySubjectError,
    NotJetStreamMessageError,
)
from jsync.testing import Ack, message

if TYPE_CHECKING:
    from collections.abc import Callable

ACK = "$JS.ACK.ORDERS.worker.1.20.3.1760000000123456789.42"


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (lambda msg: msg.ack(), Ack("ack")),
        (lambda msg: msg.ack_sync(), Ack("ack_sync")),
        (lambda msg: msg.nak(), Ack("nak")),
        (lambda msg: msg.nak(0), Ack("nak", delay=0)),
        (lambda msg: msg.nak(2.5), Ack("nak", delay=2.5)),
        (lambda msg: msg.nak(timedelta(minutes=1)), Ack("nak", delay=60)),
        (lambda msg: msg.term(), Ack("term")),
        (lambda msg: msg.term("nicht möglich"), Ack("term", reason="nicht möglich")),
    ],
)
def test_a_test_message_records_acks_of_its_handler(
    handler: Callable[[JetStreamMsg], None], told: Ack
) -> None:
    msg = message("orders.new", b"{}")
    assert (msg.acks, msg.is_acked) == ([], False)
    handler(msg)
    assert (msg.acks, msg.is_acked) == ([told], True)


def test_acks_keep_call_order_until_a_terminal_one() -> None:
    msg = message("orders.new")
    msg.in_progress()
    assert not msg.is_acked
    msg.in_progress()
    msg.nak(5)
    msg.ack()
    msg.in_progress()
    assert msg.acks == [Ack("in_progress"), Ack("in_progress"), Ack("nak", delay=5)]


def test_acks_is_a_copy() -> None:
    msg = message("orders.new")
    msg.acks.append(Ack("ack"))
    assert msg.acks == []


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("nak", [-1]),
        ("nak", ["5"]),
        ("nak", [True]),
        ("term", ["\ud800"]),
        ("ack_sync", ["5"]),
        ("ack_sync", [float("nan")]),
    ],
)
def test_a_wrong_argument_fails_as_with_real_messages(
    call: str, arguments: list[Any]
) -> None:
    msg = message("orders.new")
    with pytest.raises(ConfigError):
        getattr(msg, call)(*arguments)
    assert (msg.acks, msg.is_acked) == ([], False)


def test_messages_with_own_ack_subjects_record_acks_too() -> None:
    msg = JetStreamMsg("orders.new", b"hi", reply=ACK)
    msg.ack()
    assert msg.acks == [Ack("ack")]


def test_a_message_not_made_by_hand_records_nothing() -> None:
    msg = JetStreamMsg.__new__(JetStreamMsg)
    with pytest.raises(AttributeError, match="not recorded"):
        _ = msg.acks
    with pytest.raises(NotJetStreamMessageError):
        msg.ack()


def test_a_message_made_by_hand_cannot_respond() -> None:
    with pytest.raises(NoReplySubjectError, match="did not come from a connection"):
        message("orders.new").respond(b"hi")


def test_metadata_has_the_given_values() -> None:
    stored = datetime(2026, 11, 22, 15, 30, 0, 123456, tzinfo=UTC)
    msg = message(
        "orders.new",
        b"{}",
        headers={"Nats-Msg-Id": "7"},
        stream="ORDERS",
        consumer="billing",
        num_delivered=5,
        stream_sequence=20,
        consumer_sequence=24,
        timestamp=stored,
        num_pending=3,
        domain="hub",
    )
    assert (msg.subject, msg.data) == ("orders.new", b"{}")
    assert msg.headers == {"Nats-Msg-Id": "7"}
    told = msg.metadata
    assert (told.stream, told.consumer, told.domain) == ("ORDERS", "billing", "hub")
    assert (told.num_delivered, told.num_pending, told.timestamp) == (5, 3, stored)
    assert (told.stream_sequence, told.consumer_sequence) == (20, 24)


def test_metadata_describes_a_first_delivery_by_default() -> None:
    before = datetime.now(UTC)
    told = message("orders.new").metadata
    assert (told.num_delivered, told.num_pending, told.domain) == (1, 0, None)
    assert before <= told.timestamp + timedelta(microseconds=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"stream": "A.B"},
        {"consumer": ""},
        {"domain": "a b"},
        {"num_delivered": 0},
        {"num_pending": -1},
        {"stream_sequence": 1 << 64},
        {"consumer_sequence": True},
        {"timestamp": datetime(2026, 1, 1)},  # noqa: DTZ001 (what is refused)
        {"timestamp": "now"},
    ],
)
def test_metadata_that_no_message_has_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        message("orders.new", **wrong)


@pytest.mark.parametrize("year", [1950, 2600])
def test_an_uncountable_timestamp_names_the_possible_years(
    year: int,
) -> None:
    with pytest.raises(ConfigError, match="timestamp has to be from 1970 to 2554, not"):
        message("orders.new", timestamp=datetime(year, 1, 1, tzinfo=UTC))


def test_a_subject_unfit_for_publishing_is_rejected() -> None:
    with pytest.raises(InvalidSubjectError):
        message("orders.*")
