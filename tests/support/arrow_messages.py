"""Shared parts of the tests of columns: messages on the wire, and rows to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from jsync._fast import (
    ArrowBatch,
    IOLoop,
    JetStreamMailbox,
    JetStreamMsg,
    RowBuffer,
    SequenceChecker,
    WriteBuffer,
)
from jsync.errors import ProtocolError

SID = 7
Row: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Sent:
    """A message of a stream."""

    subject: bytes = b"s.a"
    data: bytes = b"x"
    block: bytes = b""
    sequence: int = 1
    timestamp: int = 1_700_000_000_123_456_789
    delivered: int = 1
    consumer_sequence: int = 0
    """0 means the same sequence as in the stream."""
    pending: int = 0

    @property
    def reply(self) -> bytes:
        number = self.consumer_sequence or self.sequence
        return (
            f"$JS.ACK.S.c.{self.delivered}.{self.sequence}.{number}"
            f".{self.timestamp}.{self.pending}"
        ).encode()

    @property
    def wire(self) -> bytes:
        total = len(self.block) + len(self.data)
        if self.block:
            head = b"HMSG %b %d %b %d %d\r\n" % (
                *(self.subject, SID, self.reply, len(self.block), total),
            )
        else:
            head = b"MSG %b %d %b %d\r\n" % (self.subject, SID, self.reply, total)
        return head + self.block + self.data + b"\r\n"


class Reader:
    """A mailbox, with a method that plays the I/O thread."""

    def __init__(
        self, columns: RowBuffer | None = None, order: SequenceChecker | None = None
    ) -> None:
        self.write_buffer = WriteBuffer()
        self.io_loop = IOLoop(self.write_buffer, -1)
        self.mailbox = JetStreamMailbox(self.write_buffer, SID)
        self.mailbox.order = order
        self.io_loop.subscribe(SID, self.mailbox)
        self.events: list[str] = []
        if columns is not None:
            self.mailbox.use_columns(columns)

    def bring(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.events += [name for name, _ in self.io_loop.decrypted(piece)]

    def batches(self) -> list[ArrowBatch]:
        """Return all batches that have arrived, as the reader takes them."""
        taken = []
        while len(self.mailbox):
            taken.append(self.mailbox.take_rows())
        return taken

    def messages(self) -> list[JetStreamMsg]:
        return self.mailbox.take_rest()  # type: ignore[return-value]


def rows(*batches: object) -> list[Row]:
    """Return the rows that pyarrow reads from batches, with a full check of each batch."""
    found: list[Row] = []
    for batch in batches:
        table = pa.table(batch)
        table.validate(full=True)
        if "timestamp" in table.column_names:
            at = table.column_names.index("timestamp")
            stamps = table["timestamp"].cast(pa.int64())
            table = table.set_column(at, "timestamp", stamps)
        found += table.to_pylist()
    return found


def row_of(msg: JetStreamMsg) -> Row:
    """Return the row for a message that was read as an object."""
    try:
        headers = msg.headers
    except ProtocolError:
        headers = None
    return {
        "subject": as_utf8(msg.subject),
        "data": msg.data,
        "sequence": msg.metadata.stream_sequence,
        "timestamp": msg.metadata.timestamp_ns,
        "headers": None
        if headers is None
        else [
            (as_utf8(name), [as_utf8(value) for value in headers.get_all(name)])
            for name in headers
        ],
    }


def as_utf8(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
