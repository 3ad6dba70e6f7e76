"""Tests of cutting a byte stream into frames, compared with the oracle and with nats-py."""

from __future__ import annotations

import asyncio
import json
import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from hypothesis import given, strategies as st
from nats.protocol.parser import Parser as NatsPyParser

from jsync._fast import MAX_CONTROL_LINE, Parser
from jsync.errors import ProtocolError

from ...support import reference
from ...support.reference import outcome, outcomes, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Frames: TypeAlias = list[tuple[str, Any]]
Pieces: TypeAlias = list[bytes]

MAX_MESSAGE = 1 << 20


def message(
    subject: str, data: bytes = b"", *, sid: int = 1, reply: str | None = None
) -> tuple[str, Any]:
    return "MSG", (sid, reference.Message(subject, reply, b"", data))


def header_message(
    subject: str, block: bytes, data: bytes = b"", *, reply: str | None = None
) -> tuple[str, Any]:
    return "MSG", (1, reference.Message(subject, reply, block, data))


# Comparing ------------------------------------------------------------------------


def ways_to_cut(stream: bytes) -> Iterator[Pieces]:
    """Yield the stream as a whole, byte by byte, and in two pieces at every position."""
    yield [stream]
    yield [bytes([octet]) for octet in stream]
    for cut in range(len(stream) + 1):
        yield [stream[:cut], stream[cut:]]


def pieces_of_length(stream: bytes, length: int) -> Pieces:
    return [stream[at : at + length] for at in range(0, len(stream), length)]


def assert_reads_as(stream: bytes, frames: Frames) -> None:
    for pieces in ways_to_cut(stream):
        parser = Parser(MAX_MESSAGE)
        given = [frame for piece in pieces for frame in parser.feed(piece)]
        assert shown(given) == shown(frames), pieces


# Frames that are read -------------------------------------------------------------

BLOCK = b"NATS/1.0\r\nA: b\r\n\r\n"
STATUS = b"NATS/1.0 404 No Messages\r\n\r\n"

VALID: dict[str, tuple[bytes, tuple[str, Any]]] = {
    "ping": (b"PING\r\n", ("PING", None)),
    "pong": (b"PONG\r\n", ("PONG", None)),
    "ok": (b"+OK\r\n", ("+OK", None)),
    "info": (b'INFO {"a":1}\r\n', ("INFO", b'{"a":1}')),
    "info and blanks": (b'INFO \t {"a": 1} \r\n', ("INFO", b'\t {"a": 1} ')),
    "info after a tab": (b"INFO\t{}\r\n", ("INFO", b"{}")),
    "info with utf-8": ("INFO {é}\r\n".encode(), ("INFO", "{é}".encode())),
    "a long info": (b"INFO " + b"x" * 9000 + b"\r\n", ("INFO", b"x" * 9000)),
    "an error": (b"-ERR 'Stale Connection'\r\n", ("-ERR", "Stale Connection")),
    "an error without quotes": (b"-ERR Slow\r\n", ("-ERR", "Slow")),
    "an error with a quote within": (b"-ERR 'it's'\r\n", ("-ERR", "it's")),
    "an error of no words": (b"-ERR ''\r\n", ("-ERR", "")),
    "an error that is not utf-8": (b"-ERR '\xff'\r\n", ("-ERR", "\udcff")),
    "a message": (b"MSG a 1 5\r\nhello\r\n", message("a", b"hello")),
    "an empty message": (b"MSG a 1 0\r\n\r\n", message("a")),
    "a reply": (b"MSG a 1 r.s 2\r\nhi\r\n", message("a", b"hi", reply="r.s")),
    "blanks and tabs": (b"MSG \t a  1\t\tr 0 \r\n\r\n", message("a", reply="r")),
    "zeros in front": (b"MSG a 007 003\r\nabc\r\n", message("a", b"abc", sid=7)),
    "the largest sid": (
        b"MSG a 18446744073709551615 0\r\n\r\n",
        message("a", sid=2**64 - 1),
    ),
    "sid 0": (b"MSG a 0 0\r\n\r\n", message("a", sid=0)),
    "a subject in utf-8": ("MSG é.☃ 1 0\r\n\r\n".encode(), message("é.☃")),
    "a subject not in utf-8": (b"MSG \xff 1 0\r\n\r\n", message("\udcff")),
    "frames within a payload": (
        b"MSG a 1 14\r\nMSG b 2 9\r\nhi\n\r\n",
        message("a", b"MSG b 2 9\r\nhi\n"),
    ),
    "nul and high octets": (
        b"MSG a 1 4\r\n\x00\xff\r\n\r\n",
        message("a", b"\x00\xff\r\n"),
    ),
    "headers": (
        b"HMSG a 1 18 20\r\n" + BLOCK + b"hi\r\n",
        header_message("a", BLOCK, b"hi"),
    ),
    "headers and a reply": (
        b"HMSG a 1 r 18 18\r\n" + BLOCK + b"\r\n",
        header_message("a", BLOCK, reply="r"),
    ),
    "headers of no size": (b"HMSG a 1 0 2\r\nhi\r\n", message("a", b"hi")),
    "headers of no known version": (
        b"HMSG a 1 5 7\r\nhellohi\r\n",
        header_message("a", b"hello", b"hi"),
    ),
    "a status": (b"HMSG a 1 28 28\r\n" + STATUS + b"\r\n", header_message("a", STATUS)),
}

every_valid_frame = pytest.mark.parametrize(
    ("stream", "frame"), list(VALID.values()), ids=list(VALID)
)


@every_valid_frame
def test_a_frame_reads_the_same_however_cut(
    stream: bytes, frame: tuple[str, Any]
) -> None:
    assert_reads_as(stream, [frame])


@every_valid_frame
def test_a_frame_does_not_touch_the_next_one(
    stream: bytes, frame: tuple[str, Any]
) -> None:
    assert_reads_as(
        stream + b"MSG b 2 2\r\nhi\r\n", [frame, message("b", b"hi", sid=2)]
    )


@every_valid_frame
def test_the_oracle_agrees_with_the_table(
    stream: bytes, frame: tuple[str, Any]
) -> None:
    assert reference.Parser(MAX_MESSAGE).feed(stream) == [frame]


def test_frames_keep_their_order() -> None:
    parser = Parser(MAX_MESSAGE)
    stream = b"".join(stream for stream, _ in VALID.values())
    assert shown(parser.feed(stream)) == shown(frame for _, frame in VALID.values())


def test_empty_input_gives_no_frame() -> None:
    assert Parser(MAX_MESSAGE).feed(b"") == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_fed(kind: Callable[[bytes], bytes]) -> None:
    parser = Parser(MAX_MESSAGE)
    assert shown(parser.feed(kind(b"MSG a 1 5\r\nhello\r\nPI"))) == shown(
        [message("a", b"hello")]
    )
    assert parser.feed(kind(b"NG\r\n")) == [("PING", None)]


def test_a_fed_buffer_may_be_overwritten_afterwards() -> None:
    """A reading thread uses one buffer again and again."""
    parser = Parser(MAX_MESSAGE)
    buffer = bytearray(b"MSG a 1 r 5\r\nhello\r\nMSG b 1 4\r\nwo")
    (_, (_, msg)) = parser.feed(buffer)[0]
    buffer[:] = b"x" * len(buffer)
    assert (msg.subject, msg.reply, msg.data) == ("a", "r", b"hello")
    assert shown(parser.feed(b"rd\r\n")) == shown([message("b", b"word")])
    buffer.clear()  # raises BufferError while the buffer is still in use


def test_a_buffer_slice_is_read_to_its_end() -> None:
    view = memoryview(bytearray(b"xxPING\r\nxx"))
    assert Parser(MAX_MESSAGE).feed(view[2:8]) == [("PING", None)]


def test_buffers_with_gaps_are_refused_or_read_right() -> None:
    parser = Parser(MAX_MESSAGE)
    every_other = memoryview(b"P.I.N.G.\r.\n.")[::2]
    try:
        frames = parser.feed(every_other)
    except (BufferError, ValueError):
        return
    assert frames == [("PING", None)]


@pytest.mark.parametrize("data", [None, "PING\r\n", 5, [80]])
def test_only_buffers_can_be_fed(data: Any) -> None:
    parser = Parser(MAX_MESSAGE)
    with pytest.raises(TypeError):
        parser.feed(data)
    assert parser.feed(b"PING\r\n") == [("PING", None)]


def test_payloads_are_bytes_of_their_own() -> None:
    (_, (_, msg)) = Parser(MAX_MESSAGE).feed(b"MSG a 1 5\r\nhello\r\n")[0]
    assert type(msg.data) is bytes
    assert msg.data is msg.data


def test_messages_outlive_their_parser() -> None:
    parser = Parser(MAX_MESSAGE)
    frames = parser.feed(b"HMSG a 1 r 18 20\r\n" + BLOCK + b"hi\r\n")
    del parser
    assert shown(frames) == shown([header_message("a", BLOCK, b"hi", reply="r")])


@pytest.mark.parametrize("piece", [1 << 22, 1 << 18, (1 << 18) + 1, 65536, 1499, 7])
def test_large_frames_arrive_whole(piece: int) -> None:
    """These frames are larger than any buffer, which must grow or be emptied."""
    noise = random.Random(1).randbytes(700_000)
    block = b"NATS/1.0\r\nA: " + b"a" * 300_000 + b"\r\n\r\n"
    size = len(block) + len(noise)
    stream = b"".join(
        [
            b"INFO " + b"x" * 600_000 + b"\r\n",
            b"MSG a 1 r %d\r\n%b\r\n" % (len(noise), noise),
            b"HMSG a 1 %d %d\r\n%b%b\r\n" % (len(block), size, block, noise),
            b"PING\r\n",
        ]
    )
    parser = Parser(MAX_MESSAGE)
    pieces = pieces_of_length(stream, piece)
    assert shown([frame for each in pieces for frame in parser.feed(each)]) == shown(
        [
            ("INFO", b"x" * 600_000),
            message("a", noise, reply="r"),
            header_message("a", block, noise),
            ("PING", None),
        ]
    )


# Rejected frames ------------------------------------------------------------------

MALFORMED = {
    "an unknown op": b"HELLO a\r\n",
    "a client's op": b"PUB a 0\r\n\r\n",
    "an op in lower case": b"ping\r\n",
    "a message in lower case": b"msg a 1 0\r\n\r\n",
    "an empty line": b"\r\n",
    "blanks in front": b" PING\r\n",
    "a line of blanks": b"  \r\n",
    "no carriage return": b"PING\n",
    "no carriage return in a message": b"MSG a 1 0\n\r\n",
    "a line feed alone": b"\n",
    "a carriage return too many": b"PING\r\r\n",
    "more than an op": b"PING a\r\n",
    "blanks behind an op": b"PING \r\n",
    "more than the op of ok": b"+OK a\r\n",
    "an op that goes on": b"PINGS\r\n",
    "info without text": b"INFO\r\n",
    "info without a blank": b"INFO{}\r\n",
    "msg without a blank": b"MSGa 1 0\r\n\r\n",
    "a message of nothing": b"MSG\r\n",
    "two arguments": b"MSG a 1\r\n",
    "five arguments": b"MSG a 1 r 0 0\r\n\r\n",
    "two arguments of hmsg": b"HMSG a 1 0\r\n\r\n",
    "six arguments of hmsg": b"HMSG a 1 r 0 0 0\r\n\r\n",
    "a sid that is no number": b"MSG a x 0\r\n\r\n",
    "a size that is no number": b"MSG a 1 x\r\n\r\n",
    "a size below zero": b"MSG a 1 -1\r\n\r\n",
    "a size with a sign": b"MSG a 1 +1\r\nx\r\n",
    "a size with an underscore": b"MSG a 1 1_0\r\nxxxxxxxxxx\r\n",
    "a size in hexadecimal": b"MSG a 1 0x1\r\nx\r\n",
    "a size with a point": b"MSG a 1 1.0\r\nx\r\n",
    "a size in arabic digits": "MSG a 1 \u0661\r\nx\r\n".encode(),
    "a size of 2**63": b"MSG a 1 9223372036854775808\r\n",
    "a size of 2**64": b"MSG a 1 18446744073709551616\r\n\r\n",
    "a size of 2**64 and 5": b"MSG a 1 18446744073709551621\r\nhello\r\n",
    "a size of many digits": b"MSG a 1 " + b"9" * 300 + b"\r\n",
    "a sid of 2**64": b"MSG a 18446744073709551616 0\r\n\r\n",
    "a sid of many digits": b"MSG a " + b"1" * 300 + b" 0\r\n\r\n",
    "headers of 2**64": b"HMSG a 1 18446744073709551616 0\r\n\r\n",
    "headers larger than all": b"HMSG a 1 19 18\r\n" + BLOCK + b"\r\n",
    "headers below zero": b"HMSG a 1 -1 0\r\n\r\n",
    "a payload too long": b"MSG a 1 1\r\nhello\r\n",
    "a payload too short": b"MSG a 1 5\r\nhi\r\nPING\r\n",
    "a payload and a line feed": b"MSG a 1 2\r\nhi\n\n",
    "a payload and a carriage return": b"MSG a 1 2\r\nhi\r\r",
    "larger than the bound": b"MSG a 1 1048577\r\n",
    "headers and all larger": b"HMSG a 1 18 1048577\r\n",
}


@pytest.mark.parametrize("stream", list(MALFORMED.values()), ids=list(MALFORMED))
def test_a_malformed_frame_is_refused_however_cut(stream: bytes) -> None:
    for tail in (b"", b"MSG b 2 2\r\nhi\r\n"):
        for pieces in ways_to_cut(stream + tail):
            assert outcomes(Parser(MAX_MESSAGE), pieces)[-1] is ProtocolError, pieces


@pytest.mark.parametrize("stream", list(MALFORMED.values()), ids=list(MALFORMED))
def test_a_malformed_frame_after_a_good_one_fails(stream: bytes) -> None:
    parser = Parser(MAX_MESSAGE)
    assert parser.feed(b"PING\r\n") == [("PING", None)]
    with pytest.raises(ProtocolError):
        parser.feed(b"PONG\r\n" + stream)


@pytest.mark.parametrize("stream", list(MALFORMED.values()), ids=list(MALFORMED))
def test_the_oracle_rejects_all_listed_malformed_frames(stream: bytes) -> None:
    assert outcomes(reference.Parser(MAX_MESSAGE), [stream]) == [ProtocolError]


@pytest.mark.parametrize("stream", list(MALFORMED.values()), ids=list(MALFORMED))
def test_a_parser_does_not_continue_after_an_error(stream: bytes) -> None:
    parser = Parser(MAX_MESSAGE)
    with pytest.raises(ProtocolError):
        parser.feed(stream)
    for piece in (b"PING\r\n", b"", b"MSG a 1 0\r\n\r\n"):
        with pytest.raises(ProtocolError):
            parser.feed(piece)


def test_an_error_shows_no_payload() -> None:
    """Errors are logged, and payloads are private."""
    with pytest.raises(ProtocolError) as refused:
        Parser(MAX_MESSAGE).feed(b"MSG a 1 2\r\nhunter2 is the password\r\n")
    assert "hunter2" not in str(refused.value)


# Bounds ---------------------------------------------------------------------------


def test_a_message_may_reach_the_size_bound() -> None:
    parser = Parser(10)
    assert shown(parser.feed(b"MSG a 1 10\r\n0123456789\r\n")) == shown(
        [message("a", b"0123456789")]
    )
    with pytest.raises(ProtocolError):
        parser.feed(b"MSG a 1 11\r\n")


def test_headers_count_towards_the_bound() -> None:
    frame = b"HMSG a 1 18 20\r\n" + BLOCK + b"hi\r\n"
    assert len(Parser(20).feed(frame)) == 1
    with pytest.raises(ProtocolError):
        Parser(19).feed(frame)


def test_a_message_too_large_is_refused_before_arrival() -> None:
    with pytest.raises(ProtocolError):
        Parser(1000).feed(b"MSG a 1 1001\r\n")


def line_of(op: bytes, length: int) -> bytes:
    """Return a MSG or HMSG line of `length` bytes without its CRLF."""
    arguments = b" 1 0" if op == b"MSG" else b" 1 0 0"
    subject = b"s" * (length - len(op) - 1 - len(arguments))
    return op + b" " + subject + arguments + b"\r\n"


@pytest.mark.parametrize("op", [b"MSG", b"HMSG"])
def test_a_control_line_may_reach_its_bound(op: bytes) -> None:
    line = line_of(op, MAX_CONTROL_LINE - 2)
    assert len(line) == MAX_CONTROL_LINE
    for pieces in ([line + b"\r\n"], [line[:-1], line[-1:], b"\r\n"], [line, b"\r\n"]):
        parser = Parser(MAX_MESSAGE)
        assert [len(parser.feed(piece)) for piece in pieces][-1] == 1


@pytest.mark.parametrize("op", [b"MSG", b"HMSG"])
def test_a_control_line_beyond_its_bound_is_refused(op: bytes) -> None:
    line = line_of(op, MAX_CONTROL_LINE + 1)
    for pieces in ([line + b"\r\n"], [line[:-1], line[-1:]], [line[:-2], line[-2:]]):
        assert outcomes(Parser(MAX_MESSAGE), pieces)[-1] is ProtocolError


def bytes_until_refused(start: bytes, piece: bytes) -> int:
    parser = Parser(MAX_MESSAGE)
    parser.feed(start)
    for number in range(10_000):
        if outcome(parser.feed, piece) is ProtocolError:
            return len(start) + (number + 1) * len(piece)
    raise AssertionError("a line without end is collected for ever")


@pytest.mark.parametrize("start", [b"MSG ", b"HMSG ", b"M", b"H"])
def test_an_endless_message_line_fails_at_its_bound(start: bytes) -> None:
    assert bytes_until_refused(start, b"s" * 50) <= MAX_CONTROL_LINE + 51


@pytest.mark.parametrize("start", [b"INFO {", b"-ERR '", b"x", b"PING ", b"PON", b"\0"])
def test_any_other_endless_line_is_refused_eventually(start: bytes) -> None:
    assert bytes_until_refused(start, b"s" * 1000) < 2 << 20


@pytest.mark.parametrize("size", [2**62, 2**63 - 3, 2**63, 2**64 - 2, 2**64 - 1])
@pytest.mark.parametrize("op", ["MSG a 1 {}", "HMSG a 1 0 {}", "HMSG a 1 {} {}"])
def test_a_message_that_no_memory_holds_is_refused(op: str, size: int) -> None:
    line = op.format(size, size).encode() + b"\r\n"
    for bound in (2**63 - 1, 2**64 - 1):
        try:
            parser = Parser(bound)
        except (ValueError, OverflowError):
            continue
        with pytest.raises((ProtocolError, MemoryError, OverflowError)):
            parser.feed(line)


@pytest.mark.parametrize("bound", [-1, 2**63, 2**64, 2**200])
def test_a_bound_above_all_messages_is_no_limit(bound: int) -> None:
    """Such a bound is not useful, but it must not wrap around to another value."""
    try:
        parser = Parser(bound)
    except (ValueError, OverflowError):
        return
    assert shown(parser.feed(b"MSG a 1 5\r\nhello\r\n")) == shown(
        [message("a", b"hello")]
    )


# Properties -----------------------------------------------------------------------

blanks = st.sampled_from([b" ", b" ", b" ", b"\t", b"  ", b" \t "])
# nats-py ends a token at any ASCII white space, so the tokens here contain none.
tokens = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=12
).map(str.encode)
payloads = st.binary(max_size=60)
lines = st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"").strip())
blocks = st.lists(st.tuples(tokens, lines), max_size=3).map(
    lambda pairs: b"".join(
        [b"NATS/1.0\r\n", *(b"%b:%b\r\n" % pair for pair in pairs), b"\r\n"]
    )
)


@st.composite
def frames_on_the_wire(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from(["MSG", "MSG", "HMSG", "HMSG", "line", "INFO", "-ERR"]))
    gap = draw(blanks)
    if kind == "line":
        return draw(st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n"]))
    if kind == "INFO":
        words = draw(st.dictionaries(st.text(max_size=5), st.integers(), max_size=3))
        return b"INFO" + gap + json.dumps(words).encode() + b"\r\n"
    if kind == "-ERR":
        word = draw(st.text("abc de", min_size=1, max_size=20))
        return b"-ERR" + gap + b"'" + word.encode() + b"'\r\n"
    names = [draw(tokens), str(draw(st.integers(0, 2**64 - 1))).encode()]
    if draw(st.booleans()):
        names.append(draw(tokens))
    block = draw(blocks) if kind == "HMSG" else b""
    body = block + draw(payloads)
    sizes = [len(block), len(body)] if kind == "HMSG" else [len(body)]
    words_of_it = [kind.encode(), *names, *(str(size).encode() for size in sizes)]
    return gap.join(words_of_it) + b"\r\n" + body + b"\r\n"


streams = st.lists(frames_on_the_wire(), max_size=6).map(b"".join)


@st.composite
def pieces_of(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> Pieces:
    stream = draw(whole)
    cuts = draw(st.lists(st.integers(0, len(stream)), max_size=8))
    return [stream[start:end] for start, end in pairwise([0, *sorted(cuts), None])]


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Overwrite, remove or insert a few bytes, as a broken peer might."""
    stream = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(stream)))
        length = draw(st.integers(0, 2))
        stray = draw(
            st.sampled_from([b"", b" ", b"\r", b"\n", b"\t", b"0", b"9", b"A"])
        )
        stream[start : start + length] = stray
    return bytes(stream)


@given(pieces_of(streams))
def test_valid_streams_read_as_the_oracle_reads_them(pieces: Pieces) -> None:
    read = outcomes(Parser(MAX_MESSAGE), pieces)
    assert read == outcomes(reference.Parser(MAX_MESSAGE), pieces)
    assert ProtocolError not in read


@given(pieces_of(damaged(streams)))
def test_damaged_streams_read_as_the_oracle_reads_them(pieces: Pieces) -> None:
    assert outcomes(Parser(200), pieces) == outcomes(reference.Parser(200), pieces)


@given(pieces_of(st.binary(max_size=100)))
def test_noise_reads_as_the_oracle_reads_it(pieces: Pieces) -> None:
    assert outcomes(Parser(200), pieces) == outcomes(reference.Parser(200), pieces)


class NatsPyRecorder:
    """A client for the parser of nats-py that records the calls."""

    def __init__(self) -> None:
        self.frames: Frames = []

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, block: bytes | None
    ) -> None:
        names = reference.text(subject), reference.text(reply) or None
        self.frames.append(
            ("MSG", (sid, reference.Message(*names, block or b"", data)))
        )

    async def _process_err(self, words: str) -> None:
        self.frames.append(("-ERR", words.strip("'")))

    async def _process_ping(self) -> None:
        self.frames.append(("PING", None))

    async def _process_pong(self) -> None:
        self.frames.append(("PONG", None))

    async def _process_info(self, words: dict[str, Any]) -> None:
        self.frames.append(("INFO", words))


async def read_by_nats_py(pieces: Pieces) -> Frames:
    client = NatsPyRecorder()
    parser = NatsPyParser(client)
    for piece in pieces:
        await parser.parse(piece)
    return client.frames


@given(pieces_of(streams))
def test_valid_streams_read_as_nats_py_reads_them(pieces: Pieces) -> None:
    parser = Parser(MAX_MESSAGE)
    frames = [
        (op, json.loads(value) if op == "INFO" else value)
        for piece in pieces
        for op, value in parser.feed(piece)
        if op != "+OK"  # nats-py does not report these
    ]
    assert shown(frames) == shown(asyncio.run(read_by_nats_py(pieces)))


# Cost -----------------------------------------------------------------------------


def seconds_to_read(pieces: Pieces) -> float:
    """Return the CPU time of the best of five runs. Other programs do not affect it."""
    times = []
    for _ in range(5):
        parser = Parser(64 << 20)
        start = time.thread_time()
        for piece in pieces:
            parser.feed(piece)
        times.append(time.thread_time() - start)
    return min(times)


def large_message(size: int) -> Pieces:
    return pieces_of_length(b"MSG a 1 %d\r\n%b\r\n" % (size, b"x" * size), 64 << 10)


def long_info(size: int) -> Pieces:
    return pieces_of_length(b"INFO " + b"x" * (size >> 6) + b"\r\n", 64)


def small_messages(size: int) -> Pieces:
    return [b"MSG a 1 5\r\nhello\r\n" * (size >> 7)]


def drops(size: int) -> Pieces:
    return pieces_of_length(
        b"MSG a 1 %d\r\n%b\r\n" % (size >> 6, b"x" * (size >> 6)), 1
    )


@pytest.mark.parametrize(
    "shape", [large_message, long_info, small_messages, drops], ids=lambda f: f.__name__
)
def test_the_cost_of_reading_is_linear(shape: Callable[[int], Pieces]) -> None:
    """Sixteen times as much input takes sixteen times as long, not 256 times.

    The limit lies between the two, because caches hold the smaller input only. Other programs
    that use much memory make the larger one slower still, so the best of some ratios counts.
    """
    ratios = (
        seconds_to_read(shape(16 << 20)) / seconds_to_read(shape(1 << 20))
        for _ in range(10)
    )
    assert any(ratio < 128 for ratio in ratios)
