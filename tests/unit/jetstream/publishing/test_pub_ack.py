"""Tests of reading the ack of a publish, and of rejecting other replies."""

from __future__ import annotations

import pickle

import pytest

from jsync.errors import JetStreamError
from jsync.models import PubAck, decode_pub_ack


@pytest.mark.parametrize(
    ("data", "ack"),
    [
        (b'{"stream":"A", "seq":1}', PubAck(stream="A", seq=1)),
        (
            b'{"stream":"A","domain":"hub","seq":18446744073709551615,"duplicate": true}',
            PubAck(stream="A", domain="hub", seq=(1 << 64) - 1, duplicate=True),
        ),
        (
            b'{"stream":"A","seq":4,"batch":"id","count":4,"new":[{}]}',
            PubAck(stream="A", seq=4, batch="id", count=4),
        ),
        (
            b'{"stream":"A","seq":0,"batch":"id","count":0}',
            PubAck(stream="A", seq=0, batch="id", count=0),
        ),
        (b'{"stream":"A","seq":4,"val":"-7"}', PubAck(stream="A", seq=4, val="-7")),
        (b'{"error":null,"stream":"A","seq":4}', PubAck(stream="A", seq=4)),
        (
            b'{"error":{"code":400,"err_code":10071,"description":"x"},"stream":"A","seq":0}',
            {"code": 400, "err_code": 10071, "description": "x"},
        ),
    ],
)
def test_a_publish_ack_or_an_error_is_read(data: bytes, ack: object) -> None:
    read = decode_pub_ack(data)
    assert read == ack
    assert type(read) is type(ack)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"+OK", b"{}", b"[]", b"null", b'{"seq":1}', b'{"stream":"","seq":1}'),
        *(
            b'{"stream":1,"seq":1}',
            b'{"error":"no"}',
            b'{"error":{}}',
            b'{"error":{"code":503,"new":1}}',
            b'{"stream":"\xff"}',
            b"[" * 9999,
        ),
    ],
)
def test_a_reply_that_is_no_ack_is_rejected(data: bytes) -> None:
    with pytest.raises(JetStreamError, match="not a publish ack"):
        decode_pub_ack(data)


def test_a_counter_may_be_arbitrarily_large() -> None:
    large = 1 << 200
    ack = decode_pub_ack(b'{"stream":"A","seq":1,"val":"%d"}' % large)
    assert isinstance(ack, PubAck)
    assert ack.value == large
    assert PubAck(stream="A", seq=1).value is None


def test_acks_survive_pickling() -> None:
    ack = PubAck(stream="A", seq=1, val="7")
    assert pickle.loads(pickle.dumps(ack)) == ack
