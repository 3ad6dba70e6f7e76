"""The frames of a WebSocket, taken off a stream of NATS and put back on it.

`FaultProxy` and `FakeServer` use it, so that tests which look at the bytes of NATS, or
change them, do the same over WebSocket.
"""

from __future__ import annotations

import base64
import hashlib

from .reference import BINARY, CLOSE, framed


def acceptance(request: bytes, *lines: str) -> bytes:
    """The answer to a request for a WebSocket, with further lines in its head."""
    fields = dict(line.split(": ", 1) for line in request.decode().split("\r\n")[1:-2])
    key = fields["Sec-WebSocket-Key"].encode()
    digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    answer = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
        *lines,
    ]
    return "\r\n".join([*answer, "", ""]).encode()


class Framing:
    """The frames of one direction of one connection, from the HTTP head on.

    Nothing may be compressed.
    """

    def __init__(self, *, masked: bool) -> None:
        """Bytes on their way to the server are `masked`."""
        self._masked = masked
        self._unread = bytearray()
        self._begun = False
        self.closing = b""
        """The frame that ends the WebSocket, once it came: the last one to pass on."""

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """Take what came: bytes to be passed on as they are, and bytes of NATS."""
        self._unread += data
        other, plain = [], []
        if not self._begun:
            end = self._unread.find(b"\r\n\r\n") + 4
            if end < 4:
                return b"", b""
            self._begun = True
            other.append(self._taken(end))
        while frame := self._frame():
            first, whole, payload = frame
            assert not first & 0x40, "the frame is compressed"
            if first & 15 == CLOSE:
                self.closing = whole
            elif first & 15 > BINARY:
                other.append(whole)
            else:
                plain.append(payload)
        return b"".join(other), b"".join(plain)

    def put(self, data: bytes) -> bytes:
        """Make one frame of these bytes of NATS."""
        frame = framed(data)
        if not self._masked:
            return frame
        at = len(frame) - len(data)
        # This mask changes nothing.
        return bytes([frame[0], frame[1] | 0x80]) + frame[2:at] + bytes(4) + data

    def _frame(self) -> tuple[int, bytes, bytes] | None:
        """Take the next frame: its first byte, all of it, and its payload."""
        if len(self._unread) < 2:
            return None
        first, length = self._unread[0], self._unread[1]
        at = 2 + {126: 2, 127: 8}.get(length & 127, 0)
        begin = at + (4 if length & 0x80 else 0)
        if len(self._unread) < begin:
            return None
        size = length & 127 if at == 2 else int.from_bytes(self._unread[2:at], "big")
        end = begin + size
        if len(self._unread) < end:
            return None
        whole = self._taken(end)
        return first, whole, _unmasked(whole[begin:], whole[at:begin])

    def _taken(self, size: int) -> bytes:
        taken = bytes(self._unread[:size])
        del self._unread[:size]
        return taken


def _unmasked(data: bytes, key: bytes) -> bytes:
    if not key:
        return data
    mask = (key * (len(data) // 4 + 1))[: len(data)]
    number = int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")
    return number.to_bytes(len(data), "big")
