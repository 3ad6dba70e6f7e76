"""A slow, obvious implementation of `jsync._fast` in pure Python, the oracle of the tests.

Each function starts from the beginning of its input and keeps only the bytes that are still to be
read. Nothing of the extension is used here, so that a mistake there is not repeated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from jsync.errors import (
    ConnectionLostError,
    Error,
    InvalidHeaderError,
    InvalidSubjectError,
    NotJetStreamMessageError,
    ProtocolError,
)
from jsync.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jsync import _fast

Frame: TypeAlias = "tuple[str, Any]"

MAX_CONTROL_LINE = 64 * 1024
MAX_OTHER_LINE = 1024 * 1024
MAX_U64 = 2**64 - 1
VERSION = b"NATS/1.0"
BLANKS = b" \t"


def text(octets: bytes) -> str:
    """Decode UTF-8. Invalid bytes become lone surrogates, so no byte is lost."""
    return octets.decode("utf-8", "surrogateescape")


def octets(words: str) -> bytes:
    return words.encode("utf-8", "surrogateescape")


def is_text(words: str) -> bool:
    """Return whether `text` can have made these words. Other lone surrogates stand for no byte."""
    try:
        octets(words)
    except UnicodeEncodeError:
        return False
    return True


def number(token: bytes | str) -> int | None:
    """Read an unsigned decimal of 64 bits: no sign, no underscore, 1 to 20 digits."""
    digits = octets(token) if isinstance(token, str) else token
    if not re.fullmatch(rb"[0-9]{1,20}", digits):
        return None
    value = int(digits)
    return value if value <= MAX_U64 else None


# Header blocks --------------------------------------------------------------------


def parse_headers(
    block: bytes,
) -> tuple[int | None, str, dict[str, list[str]] | None, bool]:
    """Read status, words and headers, and whether any part of the block is unreadable."""
    # The server and most clients are written in Go, which also ends a line at a lone LF.
    first, *lines = [line.removesuffix(b"\r") for line in block.split(b"\n")]
    rest = first[len(VERSION) :]
    if first[: len(VERSION)] != VERSION or (rest and rest[0] not in BLANKS):
        return None, "", None, True
    status, words = parse_status(rest)
    headers: dict[str, list[str]] = {}
    damaged = False
    while lines and (line := lines.pop(0)):
        name, colon, value = line.partition(b":")
        if name and colon:
            headers.setdefault(text(name), []).append(text(value.strip(BLANKS)))
        else:
            damaged = True
    return status, words, headers, damaged or lines not in ([], [b""])


def parse_status(rest: bytes) -> tuple[int | None, str]:
    """Read ` 503` or ` 404 No Messages`. The number has exactly three digits."""
    match = re.fullmatch(rb"[ \t]+([0-9]{3})([ \t].*)?", rest, re.DOTALL)
    if match is None or match[1] == b"000":
        return None, ""
    return int(match[1]), text((match[2] or b"").strip(BLANKS))


def encode_headers(headers: Mapping[str, str | Iterable[str]]) -> bytes:
    lines = [VERSION]
    for name, values in headers.items():
        check_header_name(name)
        for value in [values] if isinstance(values, str) else values:
            check_header_value(value)
            lines.append(octets(name) + b": " + octets(value))
    return b"\r\n".join([*lines, b"", b""])


def check_header_name(name: str) -> None:
    # The textproto package of Go accepts only visible ASCII in a name.
    if not re.fullmatch(r"[!-9;-~]+", name):
        raise InvalidHeaderError("a header name is printable ASCII without a colon")


def check_header_value(value: str) -> None:
    if "\r" in value or "\n" in value:
        raise InvalidHeaderError("a header value is one line")
    if not is_text(value):
        raise InvalidHeaderError("a lone surrogate that stands for no byte")


# Subjects -------------------------------------------------------------------------


def check_publish_subject(subject: str) -> None:
    for token in subject_tokens(subject):
        if "*" in token or ">" in token:
            raise InvalidSubjectError("wildcards are for subscriptions")


def check_subscribe_subject(subject: str) -> None:
    tokens = subject_tokens(subject)
    for position, token in enumerate(tokens, 1):
        if token == ">" and position < len(tokens):
            raise InvalidSubjectError("`>` stands only at the end")
        if token not in ("*", ">") and ("*" in token or ">" in token):
            raise InvalidSubjectError("a wildcard is a token of its own")


def subject_tokens(subject: str) -> list[str]:
    if any("\ud800" <= character <= "\udfff" for character in subject):
        raise InvalidSubjectError("a lone surrogate")
    if re.search(r"[\0- \x7f]", subject):
        raise InvalidSubjectError("white space or a control character")
    tokens = subject.split(".")
    if "" in tokens:
        raise InvalidSubjectError("an empty token")
    return tokens


# Commands and sizes ---------------------------------------------------------------


def encode_publish(
    subject: str,
    data: bytes | bytearray | memoryview = b"",
    reply: str | None = None,
    headers: Mapping[str, str | Iterable[str]] | None = None,
) -> bytes:
    check_publish_subject(subject)
    words = [subject]
    if reply is not None:
        check_publish_subject(reply)
        words.append(reply)
    payload = bytes(data)
    if not headers:
        words = ["PUB", *words, str(len(payload))]
        body = payload
    else:
        block = encode_headers(headers)
        body = block + payload
        words = ["HPUB", *words, str(len(block)), str(len(body))]
    return octets(" ".join(words)) + b"\r\n" + body + b"\r\n"


def message_size(subject: str, reply: str | None, headers: bytes, data: bytes) -> int:
    return len(octets(subject)) + len(octets(reply or "")) + len(headers) + len(data)


# Ack subjects ---------------------------------------------------------------------


@dataclass(frozen=True)
class Metadata:
    stream: str
    consumer: str
    num_delivered: int
    stream_sequence: int
    consumer_sequence: int
    timestamp_ns: int
    num_pending: int
    domain: str | None

    @property
    def timestamp(self) -> datetime:
        """Return the time in UTC, rounded down to microseconds as for a datetime."""
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        return epoch + timedelta(microseconds=self.timestamp_ns // 1000)


def parse_ack_subject(subject: str) -> Metadata:
    tokens = subject.split(".")
    if tokens[:2] != ["$JS", "ACK"] or "" in tokens or not is_text(subject):
        raise NotJetStreamMessageError("not an ack subject")
    domain = None
    if len(tokens) >= 11:
        domain = None if tokens[2] == "_" else tokens[2]
        del tokens[2:4]  # the domain and the account hash
    elif len(tokens) != 9:
        raise NotJetStreamMessageError("neither 9 tokens nor 11 or more")
    stream, consumer = tokens[2:4]
    numbers = [number(token) for token in tokens[4:9]]
    if None in numbers:
        raise NotJetStreamMessageError("not a number")
    return Metadata(stream, consumer, *numbers, domain=domain)  # type: ignore[arg-type, misc]


# The stream -----------------------------------------------------------------------


@dataclass(frozen=True)
class Message:
    subject: str
    reply: str | None
    block: bytes
    data: bytes

    @property
    def status(self) -> int | None:
        return parse_headers(self.block)[0]

    @property
    def status_text(self) -> str:
        return parse_headers(self.block)[1]

    @property
    def headers(self) -> dict[str, list[str]] | None:
        return parse_headers(self.block)[2] if self.block else None

    @property
    def is_damaged(self) -> bool:
        """Whether some headers are unreadable: the server relays any block."""
        return parse_headers(self.block)[3] if self.block else False

    @property
    def size(self) -> int:
        return message_size(self.subject, self.reply, self.block, self.data)


class Parser:
    def __init__(self, max_message: int) -> None:
        self._max_message = max_message
        self._unread = b""
        self._broken = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        if self._broken:
            raise ProtocolError("refusing to go on")
        self._unread += bytes(data)
        frames = []
        try:
            while (taken := take_frame(self._unread, self._max_message)) is not None:
                frame, length = taken
                frames.append(frame)
                self._unread = self._unread[length:]
        except ProtocolError:
            self._broken = True
            raise
        return frames


# WebSocket ------------------------------------------------------------------------

CONTINUED, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def framed(
    payload: bytes, opcode: int = BINARY, *, final: bool = True, bits: int = 0
) -> bytes:
    """Return a frame of a server, without a mask. `bits` are added to its first byte."""
    size = len(payload)
    if size < 126:
        length = bytes([size])
    elif size < 1 << 16:
        length = b"\x7e" + size.to_bytes(2, "big")
    else:
        length = b"\x7f" + size.to_bytes(8, "big")
    return bytes([final << 7 | bits | opcode]) + length + payload


def unmasked(stream: bytes) -> list[tuple[int, bytes]]:
    """Return the frames of a client: the first byte of each, and its payload."""
    found = []
    while stream:
        first, size, at = stream[0], stream[1] & 127, 2
        if size == 126:
            size, at = int.from_bytes(stream[2:4], "big"), 4
        elif size == 127:
            size, at = int.from_bytes(stream[2:10], "big"), 10
        mask = bytes(4)
        if stream[1] & 128:
            mask, at = stream[at : at + 4], at + 4
        payload = stream[at : at + size]
        found.append((first, bytes(c ^ mask[i % 4] for i, c in enumerate(payload))))
        stream = stream[at + size :]
    return found


class FramedParser:
    """A parser of a NATS stream in uncompressed WebSocket frames of a server."""

    def __init__(self, max_message: int) -> None:
        self._inner = Parser(max_message)
        self._stream = b""
        self._known = 0  # the bytes of NATS seen so far
        self._closed = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        if self._closed:
            return []
        self._stream += bytes(data)
        plain, end = read_frames(self._stream)
        frames = self._inner.feed(plain[self._known :])
        self._known = len(plain)
        if isinstance(end, ProtocolError):
            raise end
        if end is not None:
            self._closed = True
            frames.append(("BROKEN", end))
        return frames


def read_frames(stream: bytes) -> tuple[bytes, Error | None]:
    """Return the NATS bytes that have arrived, and the reason of their end: an error or a close."""
    plain, inside = b"", False
    while len(stream) >= 2:
        first, size, at = stream[0], stream[1] & 127, 2
        if size > 125:
            at = 4 if size == 126 else 10
            if len(stream) < at:
                break
            size = int.from_bytes(stream[2:at], "big")
        opcode, final = first & 15, first >> 7
        if stream[1] & 128 or first & 0x70 or size >> 63:
            return plain, ProtocolError("not a frame of a server")
        if opcode not in (CONTINUED, TEXT, BINARY, CLOSE, PING, PONG):
            return plain, ProtocolError("an unknown frame")
        if opcode >= CLOSE and (size > 125 or not final):
            return plain, ProtocolError("not a control frame")
        if opcode < CLOSE and (opcode == CONTINUED) != inside:
            return plain, ProtocolError("not the frame that has to follow")
        payload = stream[at : at + size]
        if opcode < CLOSE:
            plain, inside = plain + payload, not final
        if len(payload) < size:
            break
        if opcode == CLOSE:
            words = "without a reason"
            if size >= 2:
                code = int.from_bytes(payload[:2], "big")
                words = f"{code} {text(payload[2:])}".strip()
            return plain, ConnectionLostError(
                f"the server closed the WebSocket: {words}"
            )
        stream = stream[at + size :]
    return plain, None


def take_frame(stream: bytes, max_message: int) -> tuple[Frame, int] | None:
    """Return the first frame and its length, or None while the frame is incomplete."""
    line, newline, _ = stream.partition(b"\n")
    if len(line) > (MAX_CONTROL_LINE if line[:1] in (b"M", b"H") else MAX_OTHER_LINE):
        raise ProtocolError("the line is too long")
    if not newline:
        return None
    if not line.endswith(b"\r"):
        raise ProtocolError("the line ends without CR")
    length = len(line) + 1
    op, blank, arguments = split_line(line[:-1])
    if op in (b"MSG", b"HMSG"):
        return take_message(stream, length, op, arguments, max_message)
    if op in (b"PING", b"PONG", b"+OK") and not blank:
        return (text(op), None), length
    if op == b"INFO" and blank:
        return ("INFO", arguments), length
    if op == b"-ERR" and blank:
        return ("-ERR", unquoted(text(arguments).strip())), length
    raise ProtocolError("not a frame of NATS")


def split_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Split a line into the op, the blank after it, and the remaining bytes."""
    at = min(
        (line.find(blank) for blank in (b" ", b"\t") if blank in line),
        default=len(line),
    )
    return line[:at], line[at : at + 1], line[at + 1 :]


def unquoted(words: str) -> str:
    is_quoted = len(words) >= 2 and words[0] == words[-1] == "'"
    return words[1:-1] if is_quoted else words


def take_message(
    stream: bytes, start: int, op: bytes, arguments: bytes, max_message: int
) -> tuple[Frame, int] | None:
    tokens = [token for token in re.split(rb"[ \t]+", arguments) if token]
    sizes = 1 if op == b"MSG" else 2
    if len(tokens) not in (2 + sizes, 3 + sizes):
        raise ProtocolError("too few or too many arguments")
    subject, sid_token, *rest = tokens
    reply = text(rest[0]) if len(rest) > sizes else None
    sid, total = number(sid_token), number(rest[-1])
    header_size = 0 if op == b"MSG" else number(rest[-2])
    if sid is None or total is None or header_size is None:
        raise ProtocolError("not a number")
    if header_size > total:
        raise ProtocolError("the headers are larger than the message")
    if total > max_message:
        raise ProtocolError("the message is too large")
    body, tail = stream[start : start + total], stream[start + total :][:2]
    if not b"\r\n".startswith(tail):
        raise ProtocolError("the payload is not followed by CRLF")
    if len(tail) < 2:
        return None
    message = Message(text(subject), reply, body[:header_size], body[header_size:])
    return ("MSG", (sid, message)), start + total + 2


# Buckets --------------------------------------------------------------------------

OPERATIONS = {
    "KV-Operation": {"DEL": "DEL", "PURGE": "PURGE"},
    "Nats-Marker-Reason": {"MaxAge": "PURGE", "Purge": "PURGE", "Remove": "DEL"},
}


def operation_of(block: bytes) -> str:
    """Return the effect of a message on its key. Unreadable headers mean a put."""
    headers = parse_headers(block)[2] or {}
    for name, words in OPERATIONS.items():
        if name in headers:
            return words.get(headers[name][0], "PUT")
    return "PUT"


def entry_of(message: Message, bucket: str, prefix: str) -> dict[str, Any]:
    """Return the fields of the entry for a message of a consumer."""
    metadata = parse_ack_subject(message.reply or "")
    return {
        "bucket": bucket,
        "key": text(octets(message.subject)[len(octets(prefix)) :]),
        "value": message.data,
        "revision": metadata.stream_sequence,
        "timestamp_us": metadata.timestamp_ns // 1000,
        "delta": metadata.num_pending,
        "operation": operation_of(message.block),
    }


# Direct gets ----------------------------------------------------------------------

ADDED = ("Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp")
ADDED_TO_MANY = ("Nats-Num-Pending", "Nats-Last-Sequence")
TIME = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:[0-5]\d)", re.ASCII
)


def microseconds_of(words: str) -> int:
    """Parse an RFC 3339 time.

    Returns:
        The microseconds since 1970.

    Raises:
        ValueError: The text is no such time, or the time does not fit into a datetime.
    """
    parts = TIME.fullmatch(words)
    if parts is None:
        raise ValueError("no time")
    seconds, digits, zone = parts.groups()
    moment = datetime.fromisoformat(seconds + zone.replace("Z", "+00:00"))
    try:
        moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("no time") from error
    fraction = int((digits or "0").ljust(6, "0")[:6])
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + (
        fraction
    )


def direct_answer(block: bytes, *, batched: bool) -> dict[str, Any] | None:
    """Return the fields of a direct-get reply, or None if a reply of a batch has no pending count."""
    names = ADDED + (ADDED_TO_MANY if batched else ())
    added: dict[str, str] = {}
    places: dict[str, int] = {}
    place = block.find(b"\n") + 1 or len(block)
    while place < len(block):
        line = block[place:].split(b"\n")[0]
        name, colon, value = line.removesuffix(b"\r").partition(b":")
        if colon and text(name) in names:
            # The server appends its headers to those of the message.
            added[text(name)] = text(value.strip(BLANKS))
            places[text(name)] = place
        place += len(line) + 1
    if "Nats-Subject" in added and "Nats-Stream" not in added:
        # Or to the last line of a block that ends without a blank one.
        before = block[: places["Nats-Subject"] - 1]
        _, found, value = before.rpartition(b"Nats-Stream: ")
        if found:
            added["Nats-Stream"] = text(value.removesuffix(b"\r"))
            places["Nats-Stream"] = before.rindex(b"Nats-Stream: ")
    if not set(ADDED) <= set(added):
        raise ValueError("not all of them")
    if batched and "Nats-Num-Pending" not in added:
        return None
    sequence = number(added["Nats-Sequence"])
    if sequence is None:
        raise ValueError("no sequence")
    has_own = block[: min(places.values())] != b"NATS/1.0\r\n"
    return {
        "stream": added["Nats-Stream"],
        "subject": added["Nats-Subject"],
        "sequence": sequence,
        "timestamp_us": microseconds_of(added["Nats-Time-Stamp"]),
        "pending": number(added.get("Nats-Num-Pending", "")) or 0,
        "previous": number(added.get("Nats-Last-Sequence", "")) or 0,
        "has_own": has_own,
        # The server's headers are the last ones, so no operation stands between them.
        "operation": operation_of(block) if has_own else "PUT",
    }


# Comparing ------------------------------------------------------------------------


def outcome(call: Callable[..., Any], *arguments: object) -> Any:
    """Return the result of a call, or the class of the jsync error that it raises."""
    try:
        return call(*arguments)
    except Error as error:
        return type(error)


def outcomes(
    parser: Parser | FramedParser | _fast.Parser, pieces: Iterable[bytes]
) -> list[Any]:
    """Return the result of each piece in plain values, up to the first rejected piece."""
    given: list[Any] = []
    for piece in pieces:
        given.append(outcome(lambda piece=piece: shown(parser.feed(piece))))
        if given[-1] is ProtocolError:
            break
    return given


def shown(frames: Iterable[Frame]) -> list[Frame]:
    """Turn the frames of the oracle or of jsync into plain values."""
    return [
        (op, (value[0], shown_message(value[1])) if op == "MSG" else shown_value(value))
        for op, value in frames
    ]


def shown_value(value: object) -> object:
    return repr(value) if isinstance(value, Error) else value


def shown_message(msg: Message | _fast.Msg) -> tuple[object, ...]:
    names = msg.subject, msg.reply, shown_headers(msg.headers)
    if isinstance(msg, Message):
        damaged = msg.is_damaged
    else:
        damaged = msg.headers_error is not None
    return *names, damaged, msg.data, msg.status, msg.status_text, msg.size


def shown_headers(
    headers: dict[str, list[str]] | Headers | None,
) -> dict[str, list[str]] | None:
    if isinstance(headers, Headers):
        return {name: headers.get_all(name) for name in headers}
    return headers


def shown_metadata(metadata: Metadata | _fast.Metadata) -> tuple[object, ...]:
    names = metadata.stream, metadata.consumer, metadata.domain
    sequences = metadata.stream_sequence, metadata.consumer_sequence
    counts = metadata.num_delivered, metadata.num_pending
    return *names, *sequences, *counts, metadata.timestamp_ns, metadata.timestamp
