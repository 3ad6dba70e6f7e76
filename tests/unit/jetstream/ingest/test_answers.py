"""Tests of interpreting the replies of a server to a fast ingest."""

from __future__ import annotations

import json

import pytest

from jsync import PubAck, errors
from jsync.jetstream.ingest.flow_messages import FlowKind, parse_flow_message

from ....support.ingest_answers import APPEND, COMMIT, END, answer, refused, rejection


@pytest.mark.parametrize(
    ("body", "kind", "fields"),
    [
        ('{"type":"ack","seq":20,"msgs":10}', FlowKind.ACK, {"seq": 20, "msgs": 10}),
        (
            '{"type":"gap","last_seq":3,"seq":5}',
            FlowKind.GAP,
            {"last_seq": 3, "seq": 5},
        ),
        ('{"stream":"S","seq":9,"batch":"x","count":7}', FlowKind.ENDED, {}),
        ('{"stream":"S","seq":0,"batch":"x","count":0}', FlowKind.ENDED, {}),
        ('{"stream":"S", "seq":1}', FlowKind.STORED, {}),
        ('{"stream":"S","domain":"hub","seq":1}', FlowKind.STORED, {}),
    ],
)
def test_an_answer_is_recognised_by_type_and_batch(
    body: str, kind: FlowKind, fields: dict[str, int]
) -> None:
    found = parse_flow_message("_INBOX.id.10.ok.4.1.$FI", None, body.encode())
    assert (found.kind, found.sequence, found.operation) == (kind, 4, APPEND)
    for name, value in fields.items():
        assert getattr(found, name) == value


def test_the_final_answer_is_a_pub_ack() -> None:
    body = (
        b'{"stream":"S","domain":"hub","seq":9,"batch":"x","count":7,"duplicate":true}'
    )
    found = parse_flow_message("_INBOX.id.10.ok.7.2.$FI", None, body)
    assert found.operation is COMMIT
    assert found.ack == PubAck(
        stream="S", seq=9, batch="x", count=7, domain="hub", duplicate=True
    )


@pytest.mark.parametrize(
    ("err_code", "kind"),
    [
        (10205, errors.BatchPublishDisabledError),
        (10206, errors.BatchPublishInvalidPatternError),
        (10207, errors.BatchPublishInvalidBatchIDError),
        (10208, errors.BatchPublishUnknownBatchIDError),
        (10211, errors.BatchPublishTooManyInflightError),
        (10185, errors.RequiredAPILevelError),
        (10071, errors.WrongLastSequenceError),
        (10054, errors.MessageTooLargeError),
        (99999, errors.APIError),
    ],
)
def test_errors_are_typed_in_every_shape(
    err_code: int, kind: type[errors.APIError]
) -> None:
    plain = answer(3, APPEND, refused(err_code))
    typed = answer(3, APPEND, rejection(3, err_code))
    assert (plain.kind, plain.sequence) == (FlowKind.REJECTED, 3)
    assert (typed.kind, typed.seq) == (FlowKind.ERROR, 3)
    for found in (plain, typed):
        assert type(found.error) is kind
        assert found.error.err_code == err_code


def test_an_answer_without_a_body_means_no_responders() -> None:
    subject = "_INBOX.id.10.ok.4.1.$FI"
    assert parse_flow_message(subject, 503, b"").kind is FlowKind.NO_STREAM
    body = json.dumps(refused(10167, 429)).encode()
    found = parse_flow_message(subject, 429, body)
    assert found.kind is FlowKind.REJECTED
    assert found.error is not None
    assert found.error.err_code == 10167


@pytest.mark.parametrize("prefix", ["p", "_INBOX", "a.b.c.d.e.f.g.h.i.j.k"])
def test_the_reply_subject_is_read_from_its_end(prefix: str) -> None:
    found = parse_flow_message(f"{prefix}.id.10.ok.12.3.$FI", 503, b"")
    assert (found.sequence, found.operation) == (12, END)


@pytest.mark.parametrize("subject", ["", "a.b", "a.id.10.ok.x.1.$FI", "a.1.9.$FI"])
def test_a_subject_of_another_form_is_refused(subject: str) -> None:
    with pytest.raises(errors.JetStreamError):
        parse_flow_message(subject, None, b"{}")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"type":"new"}', b'{"seq":"1"}', b"\xff"]
)
def test_a_body_of_another_form_is_refused(body: bytes) -> None:
    with pytest.raises(errors.JetStreamError):
        parse_flow_message("_INBOX.id.10.ok.4.1.$FI", None, body)
