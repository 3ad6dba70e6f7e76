"""Tests of encoding PUB and HPUB: the bytes, the valid subjects and the sizes."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from nats.protocol.command import hpub_cmd, pub_cmd

from jsync._fast import (
    Msg,
    Parser,
    check_publish_subject,
    check_subscribe_subject,
    encode_headers,
    encode_publish,
    message_size,
)
from jsync.errors import InvalidHeaderError, InvalidSubjectError
from jsync.headers import Headers

from ...support import reference
from ...support.reference import outcome

if TYPE_CHECKING:
    from collections.abc import Callable


# Subjects -------------------------------------------------------------------------

PLAIN = ["a", "a.b", "a.b.c", "$JS.API.INFO", "_INBOX.x", "a-b_c/d", "é.☃.𝄞", "a:b"]
WILDCARDS = ["*", ">", "a.*", "*.a", "a.*.b", "*.*", "a.>", "*.>", "a.*.>"]
MISPLACED = ["a.>.b", ">.a", "a*", "*a", "a.b*", "**", ">>", "a>", ">a", "*>", "a.*b.c"]
BROKEN = [
    *("", ".", "..", ".a", "a.", "a..b", "a...b", ".a.", "*.", ".>", ">."),
    *(" ", "a b", " a", "a ", "a. ", "\t", "a\tb", "a\rb", "a\nb", "a\r\nb"),
    *("\0", "a\0", "a\0b", "a.\0"),
    *("a 5\r\nhello\r\nPUB b", "a\r\nPING\r\n"),
    *("\ud800", "a.\udfff.b"),
]


@pytest.mark.parametrize("subject", PLAIN)
def test_a_plain_subject_can_be_published_and_subscribed(subject: str) -> None:
    check_publish_subject(subject)
    check_subscribe_subject(subject)
    encode_publish(subject)
    encode_publish("a", reply=subject)


@pytest.mark.parametrize("subject", WILDCARDS)
def test_wildcards_are_for_subscriptions(subject: str) -> None:
    check_subscribe_subject(subject)
    with pytest.raises(InvalidSubjectError):
        check_publish_subject(subject)


@pytest.mark.parametrize("subject", MISPLACED)
def test_a_misplaced_wildcard_is_refused(
    subject: str,
) -> None:
    with pytest.raises(InvalidSubjectError):
        check_subscribe_subject(subject)


@pytest.mark.parametrize("subject", BROKEN)
@pytest.mark.parametrize("check", [check_publish_subject, check_subscribe_subject])
def test_a_broken_subject_is_refused(
    check: Callable[[str], None], subject: str
) -> None:
    with pytest.raises(InvalidSubjectError):
        check(subject)


@pytest.mark.parametrize("subject", [*BROKEN, *WILDCARDS])
def test_nothing_is_published_to_an_invalid_subject(subject: str) -> None:
    with pytest.raises(InvalidSubjectError):
        encode_publish(subject)
    with pytest.raises(InvalidSubjectError):
        encode_publish("a", b"", subject)
    with pytest.raises(InvalidSubjectError):
        encode_publish(subject, headers={"A": "b"})


@pytest.mark.parametrize("subject", [None, b"a", 5])
@pytest.mark.parametrize("check", [check_publish_subject, check_subscribe_subject])
def test_a_subject_is_text(check: Callable[[Any], None], subject: Any) -> None:
    with pytest.raises(TypeError):
        check(subject)


class Name(StrEnum):
    """Subjects and header names as many programs define them."""

    ORDERS = "orders.new"
    ID = "Nats-Msg-Id"


def test_a_str_enum_member_is_a_str() -> None:
    check_publish_subject(Name.ORDERS)
    check_subscribe_subject(Name.ORDERS)
    assert encode_headers({Name.ID: Name.ORDERS}) == encode_headers(
        {"Nats-Msg-Id": "orders.new"}
    )
    assert (
        encode_publish(Name.ORDERS, b"hi", Name.ORDERS)
        == b"PUB orders.new orders.new 2\r\nhi\r\n"
    )
    assert Msg(Name.ORDERS, reply=Name.ORDERS).reply == "orders.new"


subjects = st.lists(
    st.sampled_from(["a", "b", "é", ".", ".", "*", ">", " ", "\t", "\r", "\n", "\0"])
    | st.characters(),
    max_size=8,
).map("".join)


@given(subjects)
def test_subjects_are_judged_as_the_oracle_judges_them(subject: str) -> None:
    for check, expected in (
        (check_publish_subject, reference.check_publish_subject),
        (check_subscribe_subject, reference.check_subscribe_subject),
    ):
        assert outcome(check, subject) == outcome(expected, subject)


# Commands -------------------------------------------------------------------------


def test_a_publish_is_one_line_and_the_payload() -> None:
    assert encode_publish("a") == b"PUB a 0\r\n\r\n"
    assert encode_publish("a.b", b"hello") == b"PUB a.b 5\r\nhello\r\n"
    assert encode_publish("a", b"hi", "r.s") == b"PUB a r.s 2\r\nhi\r\n"
    assert encode_publish("é", b"\r\n\0") == "PUB é 3\r\n\r\n\0\r\n".encode()


def test_headers_come_before_the_payload_and_count() -> None:
    block = b"NATS/1.0\r\nA: b\r\n\r\n"
    assert (
        encode_publish("a", b"hi", headers={"A": "b"})
        == b"HPUB a 18 20\r\n" + block + b"hi\r\n"
    )
    assert (
        encode_publish("a", b"", "r", Headers({"A": "b"}))
        == b"HPUB a r 18 18\r\n" + block + b"\r\n"
    )


def test_no_headers_at_all_need_no_block() -> None:
    assert encode_publish("a", headers=None) == b"PUB a 0\r\n\r\n"
    assert encode_publish("a", headers={}) == b"PUB a 0\r\n\r\n"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_is_any_buffer(kind: Callable[[bytes], bytes]) -> None:
    assert encode_publish("a", kind(b"hello")) == b"PUB a 5\r\nhello\r\n"
    assert encode_publish("a", kind(b"")) == b"PUB a 0\r\n\r\n"


def test_a_payload_is_counted_in_bytes() -> None:
    wide = memoryview(b"12345678").cast("I")
    assert encode_publish("a", wide) == b"PUB a 8\r\n12345678\r\n"


def test_a_payload_that_is_lent_is_given_back() -> None:
    payload = bytearray(b"hello")
    encode_publish("a", payload)
    payload.clear()  # raises BufferError while the buffer is still in use
    assert payload == b""


@pytest.mark.parametrize("payload", ["text", None, 5, [1]])
def test_text_is_no_payload(payload: Any) -> None:
    with pytest.raises(TypeError):
        encode_publish("a", payload)


@pytest.mark.parametrize("bad", [{"a b": "c"}, {"": "c"}, {"A": "b\r\nC: d"}])
def test_headers_that_would_break_the_block_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidHeaderError):
        encode_publish("a", headers=bad)


names = st.text(
    st.characters(codec="ascii", min_codepoint=33, exclude_characters=":\x7f"),
    min_size=1,
)
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))
headers_to_send = st.none() | st.dictionaries(
    names, values | st.lists(values, min_size=1, max_size=3), min_size=1, max_size=3
)
sendable = st.lists(
    st.text(
        st.characters(exclude_characters=".*> \x7f", exclude_categories=["Cs", "Cc"]),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=4,
).map(".".join)
payloads = st.binary(max_size=200)


@given(sendable, payloads, st.none() | sendable, headers_to_send)
def test_the_oracle_writes_a_publish_the_same_way(
    subject: str, data: bytes, reply: str | None, headers: dict[str, str] | None
) -> None:
    expected = reference.encode_publish(subject, data, reply, headers)
    assert encode_publish(subject, data, reply, headers) == expected


@given(sendable, payloads, st.none() | sendable, headers_to_send)
def test_a_publish_means_the_same_in_nats_py(
    subject: str, data: bytes, reply: str | None, headers: dict[str, str] | None
) -> None:
    """nats-py writes two blanks if there is no reply, which the server accepts."""
    written = encode_publish(subject, data, reply, headers)
    if headers is None:
        theirs = pub_cmd(subject, reply or "", data)
    else:
        theirs = hpub_cmd(subject, reply or "", encode_headers(headers), data)
    line, _, body = written.partition(b"\r\n")
    their_line, _, their_body = theirs.partition(b"\r\n")
    assert line.split(b" ") == [word for word in their_line.split(b" ") if word]
    assert body == their_body


def delivered(published: bytes) -> bytes:
    """Return the frame that the server makes of a publish for the subscription with sid 1."""
    line, _, body = published.partition(b"\r\n")
    op, subject, *rest = line.split(b" ")
    ours = {b"PUB": b"MSG", b"HPUB": b"HMSG"}[op]
    return b" ".join([ours, subject, b"1", *rest]) + b"\r\n" + body


@given(sendable, payloads, st.none() | sendable, headers_to_send)
def test_a_published_message_arrives_unchanged(
    subject: str, data: bytes, reply: str | None, headers: dict[str, str] | None
) -> None:
    published = encode_publish(subject, data, reply, headers)
    [(op, (sid, msg))] = Parser().feed(delivered(published))
    assert (op, sid) == ("MSG", 1)
    assert (msg.subject, msg.reply, msg.data) == (subject, reply, data)
    assert_same_headers(msg, headers)


def assert_same_headers(msg: Msg, headers: dict[str, str] | None) -> None:
    if headers is None:
        assert msg.headers is None
        return
    assert msg.headers is not None
    for name in headers:
        stripped = [value.strip(" \t") for value in Headers(headers).get_all(name)]
        assert msg.headers.get_all(name) == stripped
    assert len(msg.headers) == len(headers)


# Sizes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        (("a", None, b"", b""), 1),
        (("a", "", b"", b""), 1),
        (("a", "r.s", b"", b""), 4),
        (("a", None, b"NATS/1.0\r\n\r\n", b""), 13),
        (("a", "r", b"NATS/1.0\r\n\r\n", b"hello"), 19),
        (("é☃𝄞", "é", b"", b""), 11),
    ],
)
def test_a_size_counts_bytes_as_the_server_does(
    arguments: tuple[str, str | None, bytes, bytes], size: int
) -> None:
    assert message_size(*arguments) == size


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.none() | sendable, payloads
)
def test_sizes_equal_those_of_the_oracle(
    subject: str, reply: str | None, data: bytes
) -> None:
    arguments = subject, reply, data[::2], data
    assert message_size(*arguments) == reference.message_size(*arguments)
