"""Tests of the upgrade to a WebSocket and of its frames, compared with the oracle."""

from __future__ import annotations

import base64
import hashlib
import pickle
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from jsync._fast import Parser, WriteBuffer
from jsync.core.server_address import parse_server
from jsync.core.websocket import (
    Deflater,
    Inflater,
    Upgrade,
    UpgradeResult,
    check_headers,
)
from jsync.errors import ConfigError, ProtocolError, TLSError, WebSocketError

from ...support.reference import (
    BINARY,
    CLOSE,
    CONTINUED,
    PING,
    PONG,
    TEXT,
    FramedParser,
    framed,
    outcomes,
    shown,
    unmasked,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_MESSAGE = 1 << 20
KEY = bytes(range(16))
ACCEPT = base64.b64encode(
    hashlib.sha1(
        base64.b64encode(KEY) + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
        usedforsecurity=False,
    ).digest()
).decode()
STREAM = (
    b'INFO {"max_payload":1048576}\r\nPING\r\n'
    + b"MSG a.b 1 5\r\nhello\r\n"
    + b"MSG a.b 1 r.s 300\r\n"
    + b"x" * 300
    + b"\r\n+OK\r\nHMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPONG\r\n"
)


def upgrade(
    url: str = "ws://h:9/", *headers: tuple[str, str], **options: bool
) -> Upgrade:
    return Upgrade(
        parse_server(url), headers, key=KEY, **{"encrypted": False, **options}
    )


def answer(
    *lines: str, status: str = "101 Switching Protocols", **fields: str
) -> bytes:
    usual = {"Upgrade": "websocket", "Connection": "Upgrade"}
    usual |= {"Sec-WebSocket-Accept": ACCEPT, **fields}
    shown = [f"{name.replace('_', '-')}: {value}" for name, value in usual.items()]
    return "\r\n".join([f"HTTP/1.1 {status}", *shown, *lines, "", ""]).encode()


# The upgrade --------------------------------------------------------------------------


def test_the_request_is_that_of_rfc_6455() -> None:
    lines = upgrade("ws://h:9/nats?a=b", ("X-A", "1")).request.decode().split("\r\n")
    assert lines[:2] == ["GET /nats?a=b HTTP/1.1", "Host: h:9"]
    assert "Upgrade: websocket" in lines
    assert "Connection: Upgrade" in lines
    assert f"Sec-WebSocket-Key: {base64.b64encode(KEY).decode()}" in lines
    assert "Sec-WebSocket-Version: 13" in lines
    assert any("permessage-deflate" in line for line in lines)
    assert lines[-3:] == ["X-A: 1", "", ""]


@pytest.mark.parametrize(
    ("url", "encrypted", "host"),
    [
        ("ws://h", False, "h"),
        ("wss://h", True, "h"),
        ("ws://h:443", False, "h:443"),
        ("ws://[::1]:9", False, "[::1]:9"),
    ],
)
def test_the_request_names_the_host(url: str, encrypted: bool, host: str) -> None:
    request = upgrade(url, encrypted=encrypted).request
    assert f"Host: {host}\r\n".encode() in request


def test_your_own_host_replaces_the_usual_one() -> None:
    request = upgrade("ws://h:9", ("host", "inner")).request
    assert request.lower().count(b"host:") == 1
    assert b"host: inner\r\n" in request


def test_the_request_offers_only_the_chosen_options() -> None:
    request = upgrade(compression=False, masking=False).request
    assert b"Extensions" not in request
    assert b"Nats-No-Masking: true\r\n" in request
    assert b"Nats-No-Masking" not in upgrade().request


def test_the_answer_may_come_in_any_pieces() -> None:
    data = answer() + b"\x81\x00"
    for cut in range(len(answer())):
        one = upgrade()
        assert one.receive(data[:cut]) is None
        assert one.receive(data[cut:]) == UpgradeResult(
            compressed=False, masked=True, rest=b"\x81\x00"
        )


def test_compression_is_used_if_the_server_agrees() -> None:
    field = {
        "Sec-WebSocket-Extensions": "permessage-deflate; server_no_context_takeover"
    }
    agreed = upgrade().receive(answer(**field))
    assert agreed is not None
    assert agreed.compressed


@pytest.mark.parametrize(
    ("masking", "fields", "masked"),
    [
        (True, {}, True),
        (True, {"Nats-No-Masking": "true"}, True),
        (False, {}, True),
        (False, {"Nats-No-Masking": "true"}, False),
    ],
)
def test_masks_are_left_out_if_both_sides_agree(
    masking: bool, fields: dict[str, str], masked: bool
) -> None:
    agreed = upgrade(masking=masking).receive(answer(**fields))
    assert agreed is not None
    assert agreed.masked is masked


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b'INFO {"server_id":"x"}\r\n', WebSocketError, "plain port of a NATS server"),
        (b"-ERR 'no'\r\n", WebSocketError, "plain port of a NATS server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", TLSError, "wss://"),
        (b"SSH-2.0-OpenSSH\r\n", WebSocketError, "does not speak HTTP"),
        (b"HTTP/2 101 no\r\n\r\n", WebSocketError, "does not speak HTTP"),
        (
            b"HTTP/1.0 400 Bad Request\r\n\r\n"
            b"Client sent an HTTP request to an HTTPS server.\n",
            TLSError,
            "wss://",
        ),
        (
            answer(status="200 OK"),
            WebSocketError,
            "rejected the WebSocket upgrade: 200 OK",
        ),
        (
            answer(status="401 Unauthorized"),
            WebSocketError,
            "401 Unauthorized.*ws_headers",
        ),
        (answer(status="404 Not Found"), WebSocketError, "path '/'.*404"),
        (
            answer(status="302 Found", Location="https://u:s3cret@g/x?s3cret"),
            WebSocketError,
            "redirects the WebSocket to https://g/x",
        ),
        (answer(Upgrade="h2c"), WebSocketError, "not the one to our request"),
        (answer(Connection="close"), WebSocketError, "not the one to our request"),
        (
            answer(Sec_WebSocket_Accept="AAAA", **{"Sec-WebSocket-Accept": "AAAA"}),
            WebSocketError,
            "not the one to our request",
        ),
        (answer(Sec_WebSocket_Protocol="mqtt"), WebSocketError, "protocol"),
        (answer(Sec_WebSocket_Extensions="x-zip"), WebSocketError, "extension"),
        (
            answer(
                Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits=9"
            ),
            WebSocketError,
            "client_max_window_bits",
        ),
        (b"HTTP/1.1 101 x\r\nA: " + b"a" * 70_000, WebSocketError, "longer than"),
    ],
)
def test_any_other_answer_is_an_error_with_advice(
    data: bytes, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        upgrade().receive(data)
    assert "s3cret" not in str(caught.value)


def test_an_extension_not_offered_is_an_error() -> None:
    field = {"Sec-WebSocket-Extensions": "permessage-deflate"}
    with pytest.raises(WebSocketError, match="extension"):
        upgrade(compression=False).receive(answer(**field))


def test_an_error_has_the_status_of_http() -> None:
    with pytest.raises(WebSocketError) as caught:
        upgrade().receive(answer(status="503 Busy"))
    assert caught.value.status == 503
    assert pickle.loads(pickle.dumps(caught.value)).status == 503
    assert WebSocketError("words").status is None


def test_an_error_names_why_the_server_hung_up() -> None:
    assert "wss://" in str(upgrade().eof())
    assert isinstance(upgrade(encrypted=True).eof(), TLSError)
    one = upgrade()
    one.receive(b"HTTP/1.1 1")
    assert "in the middle" in str(one.eof())


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ([("a", "b")], "mapping"),
        ({"a b": "c"}, "no name of a header"),
        ({1: "c"}, "no name of a header"),
        ({"X": "s3cret\r\nY: z"}, "value of X"),
        ({"X": b"s3cret"}, "value of X"),
        ({"X": ["a", None]}, "value of X"),
        ({"Sec-WebSocket-Key": "s3cret"}, "jsync sets it"),
        ({"connection": "s3cret"}, "jsync sets it"),
    ],
)
def test_headers_that_cannot_be_sent_are_rejected(headers: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        check_headers(headers)
    assert "s3cret" not in str(caught.value)


def test_a_header_may_have_several_values() -> None:
    assert check_headers({"A": "1", "B": ["2", "3"]}) == [
        ("A", "1"),
        ("B", "2"),
        ("B", "3"),
    ]


def test_values_invalid_in_http_are_rejected_but_hidden() -> None:
    with pytest.raises(ConfigError) as caught:
        _ = upgrade("ws://h", ("X", "s3cret€")).request
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__


# The frames of the server -------------------------------------------------------------


def in_frames(stream: bytes, cuts: list[int]) -> bytes:
    """Return the stream in a new frame at each cut, with control frames in between."""
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    frames = b""
    for number, (start, end) in enumerate(pairwise(edges)):
        part = stream[start:end]
        if number % 3 == 0:
            frames += framed(part, TEXT if number % 2 else BINARY)
        elif number % 3 == 1:
            half = len(part) // 2
            frames += framed(part[:half], final=False)
            frames += framed(b"ping %d" % number, PING)
            frames += framed(part[half:], CONTINUED)
        else:
            frames += framed(b"", PONG) + framed(part)
    return frames


def ways_to_cut(stream: bytes) -> Iterator[list[bytes]]:
    yield [stream]
    yield [stream[i : i + 1] for i in range(len(stream))]
    for cut in range(len(stream) + 1):
        yield [stream[:cut], stream[cut:]]


def flat(given: list[Any]) -> list[Any]:
    """Return the results of all pieces, and the error if the last was rejected."""
    return [one for part in given if isinstance(part, list) for one in part] + [
        part for part in given if not isinstance(part, list)
    ]


def test_frames_cut_at_every_byte_hold_the_same() -> None:
    frames = in_frames(STREAM, [0, 3, 40, 41, 60, 200, 390])
    expected = shown(Parser(MAX_MESSAGE).feed(STREAM))
    for pieces in ways_to_cut(frames):
        parser = Parser(MAX_MESSAGE, framed=True)
        assert flat(outcomes(parser, pieces)) == expected


@given(st.lists(st.integers(0, 10_000), max_size=20), st.lists(st.integers(0, 10_000)))
def test_frames_begin_and_end_anywhere(frame_cuts: list[int], cuts: list[int]) -> None:
    frames = in_frames(STREAM, frame_cuts)
    edges = [0, *sorted(cut % (len(frames) + 1) for cut in cuts), len(frames)]
    pieces = [frames[start:end] for start, end in pairwise(edges)]
    given = outcomes(Parser(MAX_MESSAGE, framed=True), pieces)
    assert given == outcomes(FramedParser(MAX_MESSAGE), pieces)
    assert flat(given) == shown(Parser(MAX_MESSAGE).feed(STREAM))


@given(st.binary(max_size=60), st.integers(0, 400), st.integers(0, 300))
def test_garbage_is_refused_as_the_oracle_refuses_it(
    garbage: bytes, at: int, cut: int
) -> None:
    frames = in_frames(STREAM, [3, 40, 200])
    frames = frames[:at] + garbage + frames[at:]
    pieces = [frames[:cut], frames[cut:]]
    given = outcomes(Parser(MAX_MESSAGE, framed=True), pieces)
    assert given == outcomes(FramedParser(MAX_MESSAGE), pieces)


def test_megabyte_messages_come_in_one_frame_or_many() -> None:
    data = bytes(range(256)) * 12_000
    stream = b"MSG a 1 %d\r\n%b\r\nPING\r\n" % (len(data), data)
    many = b"".join(framed(stream[i : i + 777]) for i in range(0, len(stream), 777))
    for frames in (framed(stream), many):
        events = Parser(8 << 20, framed=True).feed(frames)
        assert events[0][1][1].data == data
        assert events[1] == ("PING", None)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"\x82\x84abcdPING", "masked"),
        (framed(b"x", bits=0x40), "no compression was agreed on"),
        (framed(b"x", bits=0x20), "unknown extension"),
        (framed(b"x", 3), "unknown kind"),
        (framed(b"x", 11), "unknown kind"),
        (framed(b"x", CONTINUED), "not begun"),
        (framed(b"P", final=False) + framed(b"I"), "inside another"),
        (framed(b"x" * 126, PING), "too long"),
        (framed(b"x", PING, final=False), "fragmented"),
        (b"\x82\x7f\xff" + bytes(7), "longer than"),
    ],
)
def test_a_frame_that_breaks_rules_ends_the_stream(frame: bytes, words: str) -> None:
    parser = Parser(framed=True)
    with pytest.raises(ProtocolError, match=words):
        parser.feed(frame)
    with pytest.raises(ProtocolError, match=words):
        parser.feed(framed(b"PING\r\n"))


def test_a_close_frame_ends_the_stream_with_reason() -> None:
    parser = Parser(framed=True)
    events = parser.feed(
        framed(b"-ERR 'x'\r\n") + framed(b"\x03\xf0Policy", CLOSE) + framed(b"PING\r\n")
    )
    assert [name for name, _ in events] == ["-ERR", "BROKEN"]
    assert "1008 Policy" in str(events[1][1])
    assert parser.feed(b"whatever") == []


def deflated(data: bytes, *, ends: bool = False) -> bytes:
    deflate = zlib.compressobj(6, wbits=-15)
    small = deflate.compress(data)
    if ends:
        return small + deflate.flush(zlib.Z_FINISH) + b"\0"  # RFC 7692, 7.2.3.4
    return small + deflate.flush(zlib.Z_SYNC_FLUSH)[:-4]


@given(
    st.integers(1, len(STREAM) - 1),
    st.integers(1, 400),
    st.lists(st.integers(0, 10_000)),
    st.booleans(),
)
def test_compressed_messages_hold_the_same(
    cut: int, fragment: int, cuts: list[int], ends: bool
) -> None:
    frames = b""
    for part in (STREAM[:cut], STREAM[cut:]):
        small = deflated(part, ends=ends)
        frames += framed(small[:fragment], final=False, bits=0x40)
        frames += framed(b"", PING) + framed(small[fragment:], CONTINUED)
        frames += framed(b"PING\r\n" if part == STREAM[cut:] else b"")
    edges = [0, *sorted(cut % (len(frames) + 1) for cut in cuts), len(frames)]
    pieces = [frames[start:end] for start, end in pairwise(edges)]
    parser = Parser(MAX_MESSAGE, framed=True, inflate=Inflater())
    expected = shown(Parser(MAX_MESSAGE).feed(STREAM + b"PING\r\n"))
    assert flat(outcomes(parser, pieces)) == expected


def test_a_context_that_is_taken_over_is_kept() -> None:
    deflate = zlib.compressobj(6, wbits=-15)
    inflate = Inflater()
    for part in (b"hello hello " * 20, b"hello hello " * 20):
        small = deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(inflate(small[:-4], last=True)) == part


def test_a_broken_compressed_message_ends_the_stream() -> None:
    parser = Parser(framed=True, inflate=Inflater())
    with pytest.raises(ProtocolError, match="compressed message is broken"):
        parser.feed(framed(b"\xff" * 50, bits=0x40))


def test_a_small_message_that_becomes_large_is_split() -> None:
    pieces = list(Inflater()(deflated(bytes(50 << 20)), last=True))
    assert sum(map(len, pieces)) == 50 << 20
    assert max(map(len, pieces)) <= 1 << 20


# Our frames ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 125, 126, 65535, 65536, 300_000])
@pytest.mark.parametrize("masked", [True, False])
def test_client_frames_hold_the_written_bytes(size: int, masked: bool) -> None:
    write_buffer = WriteBuffer()
    write_buffer.set_framing(framed=True, masked=masked)
    data = bytes(i & 255 for i in range(size))
    frame = write_buffer.frame(data)
    assert bool(frame[1] & 128) is masked
    assert unmasked(frame) == [(0x82, data)]


def test_no_two_frames_have_the_same_mask() -> None:
    masks = set()
    for _ in range(2):
        write_buffer = WriteBuffer()
        write_buffer.set_framing(framed=True)
        masks |= {write_buffer.frame(bytes(8))[2:6] for _ in range(1000)}
    assert len(masks) > 1990


def test_only_longer_writes_are_compressed() -> None:
    write_buffer = WriteBuffer()
    write_buffer.set_framing(framed=True)
    deflate = Deflater(write_buffer.frame)
    [(first, payload)] = unmasked(deflate(b"PING\r\n"))
    assert (first, payload) == (0x82, b"PING\r\n")
    [(first, payload)] = unmasked(deflate(STREAM))
    assert first == 0xC2
    assert b"".join(Inflater()(payload, last=True)) == STREAM
