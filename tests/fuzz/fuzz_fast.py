"""Feed the inputs of libFuzzer to jsync._fast and to the oracle, and compare the results.

    python -m tests.fuzz.fuzz_fast [libFuzzer options] CORPUS

`tests/fuzz/run.sh` builds the extension with coverage and sanitizers and runs this program. With
`--write-seeds CORPUS` it writes the initial inputs. With `JSYNC_FUZZ=crash` in the environment it
does not ask the oracle. It then tries many more inputs, and finds only crashes.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsync import _fast

from ..support import reference
from ..support.reference import (
    Message,
    outcome,
    outcomes,
    shown_headers,
    shown_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_MESSAGE = 512

BLOCK = b"NATS/1.0\r\nA: b\r\nA: c\r\n\r\n"
ANSWER = (
    *("stream", "subject", "sequence", "timestamp_us", "pending", "previous"),
    *("has_own", "operation"),
)
DIRECT = (
    b"NATS/1.0\r\nKV-Operation: DEL\r\nNats-Stream: KV_B\r\nNats-Subject: $KV.B.a\r\n"
    b"Nats-Sequence: 7\r\nNats-Time-Stamp: 2026-02-28T23:59:59.123456789Z\r\n"
    b"Nats-Num-Pending: 3\r\nNats-Last-Sequence: 5\r\n\r\n"
)
STATUS = b"NATS/1.0 404 No Messages\r\n\r\n"
V1 = b"$JS.ACK.ORDERS.worker.1.20.3.1760000000123456789.42"
V2 = b"$JS.ACK.hub.hash.ORDERS.worker.1.20.3.1760000000123456789.42.random"
SEEDS = [
    # The first byte selects the tested function. For the parser, up to seven cuts follow, then the
    # stream.
    b"\0\0PING\r\nPONG\r\n+OK\r\n",
    b"\0\2\x20\x80" + b'INFO {"max_payload":1048576}\r\nPING\r\n',
    b"\0\1\x40-ERR 'Authorization Violation'\r\n",
    b"\0\3\x20\x60\xf0MSG a.b 1 5\r\nhello\r\nMSG a.b 18446744073709551615 r.s 0\r\n\r\n",
    b"\0\2\x30\x80HMSG a 1 r 24 26\r\n" + BLOCK + b"hi\r\n",
    b"\0\1\xffHMSG a 1 28 28\r\n" + STATUS + b"\r\n",
    b"\1" + BLOCK,
    b"\1" + STATUS,
    b"\1NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 7\r\n\r\n",
    b"\2" + V1,
    b"\2" + V2,
    # For the reader of entries, an ack subject, a zero byte and a header block follow.
    b"\3" + V1 + b"\0" + BLOCK,
    b"\3" + V1 + b"\0NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
    b"\3" + V2 + b"\0NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n",
    b"\4" + DIRECT,
    # For the parser of a WebSocket, cuts and a stream in frames follow.
    b"\5\0" + reference.framed(b"PING\r\n") + reference.framed(b"+OK\r\n", 1),
    b"\5\3\x20\x60\xf0"
    + reference.framed(b"MSG a.b 1 200\r\nhel", final=False)
    + reference.framed(b"x", reference.PING)
    + reference.framed(b"l" * 197 + b"\r\nPO", 0)
    + reference.framed(b"NG\r\n")
    + reference.framed(b"\x03\xe8bye", reference.CLOSE),
]


def pieces_of(data: bytes) -> list[bytes]:
    """Cut a stream as the input says: a count, that number of positions in 1/256, the stream."""
    count = data[0] & 7 if data else 0
    positions, stream = data[1 : 1 + count], data[1 + count :]
    cuts = sorted(position * len(stream) // 255 for position in positions)
    return [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)])]


def read_headers(block: bytes) -> tuple[Any, ...]:
    status, words, headers, error = _fast.parse_headers(block)
    return status, words, shown_headers(headers), error is not None


def read_ack_subject(subject: str) -> tuple[Any, ...]:
    return shown_metadata(_fast.parse_ack_subject(subject))


def expected_ack_subject(subject: str) -> tuple[Any, ...]:
    return shown_metadata(reference.parse_ack_subject(subject))


def entry_frame(message: Message) -> bytes:
    """Return the frame that delivers the message to the subscription with sid 1."""
    sizes = len(message.block), len(message.block) + len(message.data)
    head = b"HMSG %b 1 %b %d %d\r\n" % (
        *(reference.octets(message.subject), reference.octets(message.reply or "")),
        *sizes,
    )
    return head + message.block + message.data + b"\r\n"


def read_entries(messages: list[Message], prefix: str) -> list[Any]:
    """Return the entries as plain fields, or the error of each invalid message."""
    write_buffer = _fast.WriteBuffer()
    io_loop, mailbox = (
        _fast.IOLoop(write_buffer, -1),
        _fast.JetStreamMailbox(write_buffer, 1),
    )
    io_loop.subscribe(1, mailbox)
    entries: _fast.EntryReader[Any] = _fast.EntryReader(
        mailbox, _fast.InitialState(0), dict, "B", prefix
    )
    io_loop.decrypted(b"".join(map(entry_frame, messages)))

    def wait() -> Any:
        if not len(mailbox):
            raise StopIteration
        return entries.get(0.0)

    iterator: Any = _fast.EntryIterator(entries, wait)
    return [outcome(next, iterator) for _ in messages]


def entry_messages(data: bytes) -> list[Message]:
    """Return one valid message, and one made from the input. Return none for impossible inputs."""
    reply, _, block = data.partition(b"\0")
    if not reply or reply.split() != [reply] or len(data) > MAX_MESSAGE:
        return []
    subjects = reference.text(V1), reference.text(reply)
    return [Message("$KV.B.a.key", subject, block, b"value") for subject in subjects]


def read_answer(block: bytes, *, batched: bool) -> Any:
    """Return the fields that the extension reads from the reply to a direct get."""
    frame = b"HMSG i 1 %d %d\r\n%b\r\n" % (len(block), len(block), block)
    [(_, (_, msg))] = _fast.Parser().feed(frame)
    answer = _fast.read_direct(msg, batched=batched)
    return answer and {name: getattr(answer, name) for name in ANSWER}


def answer_or_error(read: Callable[..., Any], block: bytes, *, batched: bool) -> Any:
    try:
        return read(block, batched=batched)
    except ValueError:
        return ValueError


def ask(data: bytes, *, compare: bool = True) -> None:
    """Let jsync interpret one input, then the oracle, and compare."""
    target, data = data[0] % 6 if data else 0, data[1:]
    given: Any
    expected: Any
    if target == 0:
        pieces = pieces_of(data)
        given = outcomes(_fast.Parser(MAX_MESSAGE), pieces)
        expected = compare and outcomes(reference.Parser(MAX_MESSAGE), pieces)
    elif target == 5:
        pieces = pieces_of(data)
        given = outcomes(_fast.Parser(MAX_MESSAGE, framed=True), pieces)
        expected = compare and outcomes(reference.FramedParser(MAX_MESSAGE), pieces)
    elif target == 1:
        given = outcome(read_headers, data)
        expected = compare and outcome(reference.parse_headers, data)
    elif target == 3:
        messages, prefix = entry_messages(data), "$KV.B."
        given = read_entries(messages, prefix)
        expected = compare and [
            outcome(reference.entry_of, message, "B", prefix) for message in messages
        ]
    elif target == 4:
        block, batched = data[:MAX_MESSAGE], len(data) % 2 == 0
        given = answer_or_error(read_answer, block, batched=batched)
        expected = compare and answer_or_error(
            reference.direct_answer, block, batched=batched
        )
    else:
        subject = reference.text(data)
        given = outcome(read_ack_subject, subject)
        expected = compare and outcome(expected_ack_subject, subject)
    if compare and given != expected:
        raise AssertionError(f"\n    jsync  {given!r}\n    oracle {expected!r}")


def ask_for_crashes(data: bytes) -> None:
    ask(data, compare=False)


def write_seeds(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS):
        (folder / f"seed-{number:02}").write_bytes(seed)


def main() -> None:
    if sys.argv[1:2] == ["--write-seeds"]:
        write_seeds(Path(sys.argv[2]))
        return
    import atheris  # type: ignore[import-untyped, unused-ignore]  # noqa: PLC0415

    crash_only = os.environ.get("JSYNC_FUZZ") == "crash"
    atheris.Setup(sys.argv, ask_for_crashes if crash_only else ask)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
