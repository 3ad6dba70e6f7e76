"""Tests of messages as their reader sees them."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from typing import Any

import pytest

from jsync import testing
from jsync._fast import JetStreamMsg, Msg, Parser, encode_headers
from jsync.errors import (
    ConfigError,
    Error,
    InvalidHeaderError,
    InvalidSubjectError,
    NoReplySubjectError,
    NotJetStreamMessageError,
)
from jsync.headers import Headers

BLOCK = b"NATS/1.0 100 Idle Heartbeat\r\nA: 1\r\nA: 2\r\n\r\n"
READ_ONLY = ["subject", "reply", "data", "headers", "status", "status_text", "size"]


def received(frame: bytes) -> Msg:
    [(_, (_, msg))] = Parser().feed(frame)
    assert isinstance(msg, Msg)
    return msg


def with_headers(block: bytes) -> Msg:
    return received(b"HMSG a 1 %d %d\r\n%b\r\n" % (len(block), len(block), block))


# Made by hand ---------------------------------------------------------------------


def test_a_subject_is_all_that_a_message_needs() -> None:
    msg = Msg("a.b")
    assert (msg.subject, msg.reply, msg.data) == ("a.b", None, b"")
    assert (msg.headers, msg.status, msg.status_text) == (None, None, "")
    assert msg.size == 3


def test_a_message_can_be_made_whole() -> None:
    headers = {"A": ["1", "2"], "B": "é"}
    msg = Msg("a.b", b"hello", reply="r.s", headers=headers)
    assert (msg.subject, msg.reply, msg.data) == ("a.b", "r.s", b"hello")
    assert msg.headers == Headers(headers)
    assert (msg.status, msg.status_text) == (None, "")
    assert msg.size == 3 + 3 + 5 + len(encode_headers(headers))


def test_created_and_received_messages_have_the_same_size() -> None:
    frame = b"HMSG a.b 1 r 18 23\r\nNATS/1.0\r\nA: b\r\n\r\nhello\r\n"
    made = Msg("a.b", b"hello", reply="r", headers={"A": "b"})
    assert made.size == received(frame).size == 27


@pytest.mark.parametrize("arguments", [(), (None,), (b"a",), (5,), ("a", "text")])
def test_a_message_is_made_of_the_right_types(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Msg(*arguments)


def test_reply_and_headers_are_given_by_name() -> None:
    make: Any = Msg
    with pytest.raises(TypeError):
        make("a", b"", "reply")
    with pytest.raises(TypeError):
        make("a", reply=5)


def test_a_message_refuses_unsendable_headers_and_subjects() -> None:
    with pytest.raises(InvalidHeaderError):
        Msg("a", headers={"a b": "c"})
    with pytest.raises(InvalidSubjectError):
        Msg("a b")
    with pytest.raises(InvalidSubjectError):
        Msg("a", reply="")


def test_a_message_can_be_made_again() -> None:
    """`__init__` may be called twice, and must free the first long subject."""
    msg = Msg("a" * 200, b"hello", reply="r" * 200, headers={"A": "b"})
    assert [msg.subject, msg.reply, msg.headers] == ["a" * 200, "r" * 200, {"A": "b"}]
    Msg.__init__(msg, "b" * 300)
    assert (msg.subject, msg.reply, msg.data, msg.headers) == (
        "b" * 300,
        None,
        b"",
        None,
    )


# Received -------------------------------------------------------------------------


def test_a_received_message_equals_the_sent_one() -> None:
    msg = received(b"MSG a.b 7 r.s 5\r\nhello\r\n")
    assert (msg.subject, msg.reply, msg.data) == ("a.b", "r.s", b"hello")
    assert (msg.headers, msg.status, msg.status_text) == (None, None, "")
    assert msg.size == 11


def test_headers_and_status_are_read_when_asked_for() -> None:
    msg = with_headers(BLOCK)
    assert msg.status == 100
    assert msg.status_text == "Idle Heartbeat"
    assert msg.headers is not None
    assert msg.headers.get_all("A") == ["1", "2"]
    assert msg.headers is msg.headers
    assert msg.size == 1 + len(BLOCK)


def test_the_order_of_asking_does_not_matter() -> None:
    for attributes in (READ_ONLY, READ_ONLY[::-1]):
        msg = with_headers(BLOCK)
        seen = {name: getattr(msg, name) for name in attributes}
        again = {name: getattr(msg, name) for name in attributes}
        assert seen == again
        assert seen["status_text"] == "Idle Heartbeat"


@pytest.mark.parametrize(
    "block", [b"NATS/1.0 503\r\n\r\n", b"NATS/1.0 404 No Messages\r\n\r\n"]
)
def test_a_bare_status_has_no_user_headers(block: bytes) -> None:
    msg = with_headers(block)
    assert msg.status in (503, 404)
    assert not msg.headers
    assert msg.data == b""


def test_a_size_counts_the_bytes_of_utf8() -> None:
    assert received("MSG é.☃ 1 é 2\r\nhi\r\n".encode()).size == 6 + 2 + 2
    assert Msg("é.☃", b"hi", reply="é").size == 6 + 2 + 2


def test_bytes_that_are_not_utf8_stop_nothing() -> None:
    msg = received(b"MSG \xff 1 \xfe 0\r\n\r\n")
    assert (msg.subject, msg.reply) == ("\udcff", "\udcfe")
    assert msg.size == 2
    repr(msg)


# Operations that a message does not support ---------------------------------------


@pytest.mark.parametrize("name", READ_ONLY)
def test_a_message_is_not_changed(name: str) -> None:
    for msg in (Msg("a"), received(b"MSG a 1 0\r\n\r\n")):
        with pytest.raises(AttributeError):
            setattr(msg, name, getattr(msg, name))


def test_a_message_takes_no_attributes_of_yours() -> None:
    msg: Any = Msg("a")
    with pytest.raises(AttributeError):
        msg.mine = 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling_a_message_raises(protocol: int) -> None:
    """Spark pickles all objects that it can reach, but a connection cannot be moved."""
    for msg in (Msg("a"), received(b"MSG a 1 0\r\n\r\n")):
        with pytest.raises(TypeError, match="Msg"):
            pickle.dumps(msg, protocol)


def test_a_message_cannot_be_copied_either() -> None:
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="Msg"):
            copied(Msg("a"))


def test_a_jetstream_message_is_a_message() -> None:
    assert issubclass(JetStreamMsg, Msg)
    with pytest.raises(TypeError):
        type("Mine", (JetStreamMsg,), {})


def test_a_message_without_reply_subject_cannot_be_answered() -> None:
    for msg in (Msg("a"), received(b"MSG a 1 0\r\n\r\n")):
        with pytest.raises(NoReplySubjectError):
            msg.respond(b"hi")


def test_a_handmade_message_has_no_connection_for_responses() -> None:
    with pytest.raises(Error):
        Msg("a", reply="r").respond(b"hi")


@pytest.mark.parametrize("length", [1, 51, 52, 53, 103, 104, 105, 106, 2000, 30000])
def test_subjects_of_any_length_are_kept(length: int) -> None:
    """Short subjects are stored inside the message, long ones outside."""
    subject, reply = "s" * length, "r" * length
    frame = f"MSG {subject} 1 {reply} 2\r\nhi\r\n".encode()
    made = [received(frame)]
    if length <= 4000:  # longer subjects are not sent
        made.append(Msg(subject, b"hi", reply=reply))
    for msg in made:
        assert (msg.subject, msg.reply, msg.data) == (subject, reply, b"hi")
        assert msg.size == 2 * length + 2


def test_repr_shows_the_received_message() -> None:
    assert repr(Msg("a.b", b"hello")) == "<Msg 'a.b', 5 bytes>"
    assert repr(Msg("a", reply="r")) == "<Msg 'a', reply='r', 0 bytes>"
    assert repr(with_headers(BLOCK)) == "<Msg 'a', status=100 Idle Heartbeat, 0 bytes>"


@pytest.mark.parametrize("kind", [Msg, JetStreamMsg])
def test_an_uninitialised_message_is_empty(kind: type[Msg]) -> None:
    """Anyone can call `__new__`, for example by a subclass that does not call `super()`."""
    msg = kind.__new__(kind)
    assert (msg.subject, msg.reply, msg.data) == ("", None, b"")
    assert (msg.headers, msg.status, msg.status_text, msg.size) == (None, None, "", 0)
    assert type(msg).__name__ in repr(msg)


# Acknowledging --------------------------------------------------------------------

ACK = "$JS.ACK.ORDERS.worker.1.20.3.1760000000123456789.42"


def test_metadata_comes_from_the_reply_subject() -> None:
    msg = JetStreamMsg("orders.new", b"hi", reply=ACK)
    assert msg.metadata.stream == "ORDERS"
    assert msg.metadata.stream_sequence == 20


@pytest.mark.parametrize("reply", [None, "_INBOX.a", "$JS.ACK.x"])
def test_a_message_from_elsewhere_has_no_metadata(reply: str | None) -> None:
    with pytest.raises(NotJetStreamMessageError):
        _ = JetStreamMsg("a", reply=reply).metadata
    with pytest.raises(NotJetStreamMessageError):
        _ = JetStreamMsg("a", reply=reply).is_redelivered


@pytest.mark.parametrize("domain", [None, "hub"])
@pytest.mark.parametrize("delivered", [1, 2, 1000])
def test_a_message_shows_whether_it_was_redelivered(
    delivered: int, domain: str | None
) -> None:
    msg = testing.message("a", num_delivered=delivered, domain=domain)
    assert msg.metadata.num_delivered == delivered
    assert msg.is_redelivered == (delivered > 1)


@pytest.mark.parametrize("reply", [None, "_INBOX.a"])
@pytest.mark.parametrize("word", ["ack", "nak", "term", "in_progress", "ack_sync"])
def test_a_message_without_consumer_is_not_acknowledged(
    word: str, reply: str | None
) -> None:
    msg = JetStreamMsg("a", reply=reply)
    with pytest.raises(NotJetStreamMessageError):
        getattr(msg, word)()
    assert not msg.is_acked


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf"), 1e300])
def test_a_delay_is_one_that_servers_can_count(delay: float) -> None:
    with pytest.raises(ConfigError, match="delay"):
        JetStreamMsg("a", reply=ACK).nak(delay)


def test_a_reason_is_text_that_can_be_sent() -> None:
    with pytest.raises(ConfigError, match="Unicode"):
        JetStreamMsg("a", reply=ACK).term("\ud800")


# The cost of a message ------------------------------------------------------------


def test_messages_do_not_leak() -> None:
    """Every object that a message made is freed with the message."""
    stream = b"HMSG a.b 1 r %d %d\r\n%b\r\n" % (len(BLOCK), len(BLOCK), BLOCK)

    def use() -> None:
        for _, (_, msg) in Parser().feed(stream * 100):
            for name in READ_ONLY:
                getattr(msg, name)

    use()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        use()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100
