"""Tests of reading and writing header blocks, and of the mapping of a message."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import Any

import pytest
from hypothesis import example, given, strategies as st
from nats.aio.client import Client as NatsPyClient

from jsync._fast import encode_headers, parse_headers
from jsync.errors import InvalidHeaderError
from jsync.headers import Headers

from ..support import reference
from ..support.reference import outcome, shown_headers

names = st.text(
    st.characters(codec="ascii", exclude_characters=":", min_codepoint=33), min_size=1
).filter(lambda name: "\x7f" not in name)
values = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))
header_maps = st.dictionaries(
    names, values | st.lists(values, min_size=1, max_size=3), max_size=4
)
anything = st.dictionaries(
    st.text(max_size=4), st.text(max_size=4) | st.lists(st.text(max_size=3)), max_size=3
)
# Random bytes rarely form a valid line, but meaningful pieces do.
near_blocks = st.lists(
    st.sampled_from(
        [
            *(b"NATS/1.0", b"\r\n", b"\r\n", b"\r", b"\n", b" ", b"\t", b":"),
            *(b"503", b"4", b"Name", b"value", b"No Messages", b"\x00", b"\xff"),
        ]
    )
    | st.binary(max_size=3),
    max_size=14,
).map(lambda pieces: b"NATS/1.0" + b"".join(pieces))


def read(block: bytes) -> tuple[int | None, str, dict[str, list[str]] | None]:
    status, words, headers, _ = parse_headers(block)
    return status, words, shown_headers(headers)


def read_all(block: bytes) -> tuple[object, ...]:
    return *read(block), parse_headers(block)[3] is not None


def headers_in(block: bytes) -> Headers:
    headers = parse_headers(block)[2]
    assert headers is not None
    return headers


# Reading --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"NATS/1.0\r\n\r\n", {}),
        (b"NATS/1.0", {}),
        (b"NATS/1.0\r\nA: b\r\n\r\n", {"A": ["b"]}),
        (b"NATS/1.0\r\nA: b", {"A": ["b"]}),
        (b"NATS/1.0\r\nA:b\r\n\r\n", {"A": ["b"]}),
        (b"NATS/1.0\r\nA: \t b c \t\r\n\r\n", {"A": ["b c"]}),
        (b"NATS/1.0\r\nA:\r\n\r\n", {"A": [""]}),
        (b"NATS/1.0\r\nA: b:c\r\n\r\n", {"A": ["b:c"]}),
        (b"NATS/1.0\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n", {"A": ["1", "3"], "B": ["2"]}),
        (b"NATS/1.0\r\nA: 1\r\na: 2\r\n\r\n", {"A": ["1"], "a": ["2"]}),
        (b"NATS/1.0\r\nno colon\r\nA: b\r\n\r\n", {"A": ["b"]}),
        (b"NATS/1.0\r\n: nameless\r\nA: b\r\n\r\n", {"A": ["b"]}),
        (b"NATS/1.0\r\nA: b\r\n\r\nC: behind the end\r\n", {"A": ["b"]}),
        (b"NATS/1.0\nA: b\n\n", {"A": ["b"]}),
        (b"NATS/1.0\r\nA: \xff\xfe\r\n\r\n", {"A": ["\udcff\udcfe"]}),
        ("NATS/1.0\r\nA: é☃𝄞\r\n\r\n".encode(), {"A": ["é☃𝄞"]}),
        (b"NATS/1.0\r\nA: \x00\r\n\r\n", {"A": ["\x00"]}),
    ],
)
def test_a_block_gives_its_lines(block: bytes, expected: dict[str, list[str]]) -> None:
    assert read(block) == (None, "", expected)


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        (b"NATS/1.0 503", 503, ""),
        (b"NATS/1.0 404 No Messages", 404, "No Messages"),
        (b"NATS/1.0 404  No  Messages ", 404, "No  Messages"),
        (b"NATS/1.0\t408\tRequest Timeout", 408, "Request Timeout"),
        (b"NATS/1.0   100 Idle Heartbeat", 100, "Idle Heartbeat"),
        ("NATS/1.0 409 é".encode(), 409, "é"),
        (b"NATS/1.0 409 \xff", 409, "\udcff"),
        (b"NATS/1.0", None, ""),
        (b"NATS/1.0 ", None, ""),
        (b"NATS/1.0 40", None, ""),
        (b"NATS/1.0 4040", None, ""),
        (b"NATS/1.0 4x4 No Messages", None, ""),
        (b"NATS/1.0 -40", None, ""),
        (b"NATS/1.0 404: x", None, ""),
        ("NATS/1.0 ٤٠٤".encode(), None, ""),
    ],
)
def test_the_first_line_may_hold_a_status(
    line: bytes, status: int | None, words: str
) -> None:
    for tail in (b"", b"\r\n", b"\r\n\r\n"):
        assert read(line + tail) == (status, words, {})
    assert read(line + b"\r\nA: b\r\n\r\n") == (status, words, {"A": ["b"]})


def test_a_heartbeat_has_a_status_and_headers() -> None:
    block = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n"
    assert read(block) == (100, "Idle Heartbeat", {"Nats-Last-Consumer": ["7"]})


@pytest.mark.parametrize(
    "block",
    [
        *(b"", b"\r\n", b"NATS", b"NATS/1.", b"nats/1.0\r\n\r\n", b" NATS/1.0\r\n\r\n"),
        *(b"NATS/2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"A: b\r\n\r\n"),
        *(b"NATS/1.0x\r\n\r\n", b"NATS/1.01 503\r\n\r\n", b"NATS/1.0503\r\n\r\n"),
    ],
)
def test_a_block_without_its_version_is_unreadable(block: bytes) -> None:
    error = "the header block does not begin with NATS/1.0"
    assert parse_headers(block) == (None, "", None, error)


@pytest.mark.parametrize(
    ("block", "headers", "error"),
    [
        (b"NATS/1.0\r\nA: 1\r\n\r\nB: 2\r\n\r\n", {"A": ["1"]}, "blank line"),
        (b"NATS/1.0\r\n\r\n\r\n", {}, "blank line"),
        (b"NATS/1.0\r\nA: 1\r\nB\r\nC: 3\r\n\r\n", {"A": ["1"], "C": ["3"]}, "colon"),
        (b"NATS/1.0\r\nA: 1\r\n: 2\r\n\r\n", {"A": ["1"]}, "colon"),
    ],
)
def test_the_readable_part_of_a_block_is_read(
    block: bytes, headers: dict[str, list[str]], error: str
) -> None:
    _, _, found, why = parse_headers(block)
    assert shown_headers(found) == headers
    assert error in str(why)


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\n", b"\r\n\r\n", b"\n\n"])
def test_a_block_without_its_last_lines_is_readable(end: bytes) -> None:
    assert read_all(b"NATS/1.0\r\nA: 1" + end) == (None, "", {"A": ["1"]}, False)


@pytest.mark.parametrize("block", [None, "NATS/1.0\r\n\r\n", bytearray(b"NATS/1.0")])
def test_a_block_is_bytes(block: Any) -> None:
    with pytest.raises(TypeError):
        parse_headers(block)


@given(near_blocks | st.binary(max_size=40))
@example(b"NATS/1.0 404\rx\r\n\r\n")
@example(b"NATS/1.0 000\r\n\r\n")
@example(b"NATS/1.0 \n404\r\n\r\n")
@example(b"NATS/1.0\r\nA: b\r\r\n\r\n")
def test_any_block_reads_as_the_oracle_reads_it(block: bytes) -> None:
    assert read_all(block) == reference.parse_headers(block)


@given(st.dictionaries(names, st.text("abc é☃", max_size=5), min_size=1, max_size=4))
def test_blocks_read_as_nats_py_reads_them(headers: dict[str, str]) -> None:
    block = encode_headers(headers)
    read_by_nats_py = asyncio.run(NatsPyClient()._process_headers(block))
    assert dict(headers_in(block)) == read_by_nats_py


# Writing --------------------------------------------------------------------------


def test_a_block_is_written_line_by_line() -> None:
    assert encode_headers({}) == b"NATS/1.0\r\n\r\n"
    assert encode_headers({"A": "b"}) == b"NATS/1.0\r\nA: b\r\n\r\n"
    assert (
        encode_headers({"A": ["1", "2"], "Nats-Msg-Id": ""})
        == b"NATS/1.0\r\nA: 1\r\nA: 2\r\nNats-Msg-Id: \r\n\r\n"
    )
    assert encode_headers({"A": []}) == b"NATS/1.0\r\n\r\n"
    assert encode_headers({"A": ("1", "2")}) == encode_headers({"A": iter("12")})
    assert encode_headers({"A": "é"}) == "NATS/1.0\r\nA: é\r\n\r\n".encode()


def test_received_headers_can_be_sent_on() -> None:
    block = b"NATS/1.0\r\nA: \xff\r\nA: 2\r\nB: \xc3\xa9\r\n\r\n"
    assert encode_headers(headers_in(block)) == block


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", "a b", " a", "a ", "a:", ":", "a:b", "a\tb", "a\rb", "a\nb"),
        *("a\r\nB: c", "\0", "a\x7f", "é", "\udcff", "\ud800"),
    ],
)
def test_a_name_that_breaks_the_block_is_refused(name: str) -> None:
    for value in ("x", ["x"], ["x", "y"]):
        with pytest.raises(InvalidHeaderError):
            encode_headers({name: value})
        with pytest.raises(InvalidHeaderError):
            encode_headers({"A": "good", name: value})


@pytest.mark.parametrize(
    "value", ["\r", "\n", "a\r\nB: c", "a\r\n\r\nPUB x 0\r\n", "a\n", "\ra", "\ud800"]
)
def test_a_value_that_breaks_the_block_is_refused(value: str) -> None:
    with pytest.raises(InvalidHeaderError):
        encode_headers({"A": value})
    with pytest.raises(InvalidHeaderError):
        encode_headers({"A": ["good", value]})


@pytest.mark.parametrize("value", [5, b"bytes", None, [5], [None], [b"bytes"]])
def test_a_value_is_text(value: Any) -> None:
    with pytest.raises((InvalidHeaderError, TypeError)):
        encode_headers({"A": value})


@pytest.mark.parametrize("name", [5, b"bytes", None])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises((InvalidHeaderError, TypeError)):
        encode_headers({name: "x"})


@pytest.mark.parametrize("headers", ["A: b", b"A: b", ["A"], {"A"}, 5], ids=repr)
def test_headers_are_a_mapping(headers: Any) -> None:
    with pytest.raises(InvalidHeaderError, match="a mapping of names to values"):
        encode_headers(headers)


def test_an_error_does_not_tell_the_value() -> None:
    """Errors are logged, and values can be tokens."""
    with pytest.raises(InvalidHeaderError) as refused:
        encode_headers({"Authorization": "hunter2\n"})
    assert "hunter2" not in str(refused.value)


@given(header_maps)
def test_written_headers_are_read_back(headers: dict[str, str | list[str]]) -> None:
    written = {
        name: [value.strip(" \t") for value in Headers(headers).get_all(name)]
        for name in headers
    }
    assert read(encode_headers(headers)) == (None, "", written)


@given(anything | header_maps)
def test_the_oracle_writes_any_headers_the_same_way(
    headers: dict[str, str | list[str]],
) -> None:
    expected = outcome(reference.encode_headers, headers)
    assert outcome(encode_headers, headers) == expected


# The mapping ----------------------------------------------------------------------


def test_headers_are_a_mapping_to_the_first_value() -> None:
    headers = Headers({"A": ["1", "2"], "B": "3"})
    assert headers["A"] == "1"
    assert headers["B"] == "3"
    assert headers.get("C") is None
    assert headers.get("C", "none") == "none"
    assert list(headers) == ["A", "B"]
    assert len(headers) == 2
    assert dict(headers) == {"A": "1", "B": "3"}
    assert "A" in headers
    assert "a" not in headers
    assert list(headers.items()) == [("A", "1"), ("B", "3")]
    with pytest.raises(KeyError):
        headers["C"]


def test_names_are_case_sensitive() -> None:
    headers = Headers({"Name": "a", "name": "b"})
    assert (headers["Name"], headers["name"]) == ("a", "b")
    assert "NAME" not in headers
    assert headers.get_all("NAME") == []


def test_get_all_gives_all_values_in_a_list() -> None:
    headers = Headers({"A": ["1", "2"]})
    headers.get_all("A").append("3")
    assert headers.get_all("A") == ["1", "2"]
    assert headers.get_all("C") == []


def test_pairs_repeat_the_name() -> None:
    headers = Headers({"A": ["1", "2"], "B": "3"})
    assert list(headers.pairs()) == [("A", "1"), ("A", "2"), ("B", "3")]


def test_a_name_without_values_is_no_header() -> None:
    assert Headers({"A": []}) == Headers()
    assert len(Headers({"A": [], "B": ""})) == 1


def test_headers_do_not_follow_their_source() -> None:
    values = ["1"]
    headers = Headers({"A": values})
    values.append("2")
    assert headers.get_all("A") == ["1"]
    assert Headers(headers) == headers


def test_equality_is_of_every_value() -> None:
    assert Headers({"A": "1"}) == Headers({"A": ["1"]})
    assert Headers({"A": ["1", "2"]}) != Headers({"A": "1"})
    assert Headers({"A": ["1", "2"]}) != Headers({"A": ["2", "1"]})
    assert Headers({"A": "1", "B": "2"}) == Headers({"B": "2", "A": "1"})
    assert Headers({"A": "1"}) == {"A": "1"}
    assert Headers({"A": ["1", "2"]}) == {"A": ["1", "2"]}
    assert Headers({"A": "1"}) != {"A": 1}
    assert Headers({"A": "1"}) != "A"
    assert Headers() != None  # noqa: E711 (the comparison is what is tested)


def test_headers_cannot_be_changed_or_hashed() -> None:
    headers: Any = Headers({"A": "1"})
    with pytest.raises(TypeError):
        headers["A"] = "2"
    with pytest.raises(TypeError):
        del headers["A"]
    with pytest.raises(TypeError):
        hash(headers)


def test_repr_shows_the_given_values() -> None:
    assert repr(Headers({"A": "1"})) == "Headers({'A': '1'})"
    assert repr(Headers({"A": ["1", "2"]})) == "Headers({'A': ['1', '2']})"
    assert repr(Headers()) == "Headers({})"


def test_headers_can_be_copied_and_pickled() -> None:
    headers = Headers({"A": ["1", "2"], "B": "\udcff"})
    assert pickle.loads(pickle.dumps(headers)) == headers
    assert copy.copy(headers) == headers
    assert copy.deepcopy(headers) == headers


@pytest.mark.parametrize(
    "bad",
    ["A", 5, b"A", [("A", "1")], {"A": None}, {"A": 5}, {1: 2}],
    ids=repr,
)
def test_copying_invalid_headers_fails_as_publishing_does(
    bad: Any,
) -> None:
    for refuse in (Headers, encode_headers):
        with pytest.raises(
            InvalidHeaderError, match=r"mapping of names|type|not a str"
        ):
            refuse(bad)
    assert Headers({"A": "1"}) != bad
