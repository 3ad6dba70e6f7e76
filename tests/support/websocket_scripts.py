"""The server's side of a WebSocket: scripts of a `FakeServer` that send and read frames."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .proxy import payload_size
from .reference import BINARY, framed, unmasked
from .websocket_framing import acceptance

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connection_faults import Peer

INFO = {
    "server_id": "fake",
    "version": "2.15.1",
    "proto": 1,
    "headers": True,
    "max_payload": 1 << 20,
}


class WebSocketPeer:
    """A client of a `FakeServer` that has asked for a WebSocket."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.request = b""
        """The HTTP request."""
        self.frames: list[tuple[int, bytes]] = []
        """All frames received, including control frames: the first byte and the payload of each."""
        self._plain = b""
        while not self.request.endswith(b"\r\n\r\n"):
            self.request += self._received(1)

    @property
    def fields(self) -> dict[str, str]:
        lines = self.request.decode().split("\r\n")[1:-2]
        return dict(line.split(": ", 1) for line in lines)

    def accept(self, *lines: str) -> None:
        """Accept the WebSocket."""
        self.peer.send(acceptance(self.request, *lines))

    def handshake(self) -> None:
        """Accept, and act as a NATS server up to the PONG after CONNECT."""
        self.accept()
        self.send(b"INFO %s\r\n" % json.dumps(INFO).encode())
        assert self.line().startswith(b"CONNECT ")
        assert self.line() == b"PING\r\n"
        self.send(b"PONG\r\n")

    def send(self, data: bytes, opcode: int = BINARY) -> None:
        self.peer.send(framed(data, opcode))

    def line(self) -> bytes:
        """Return the next frame of NATS, however the WebSocket frames divide the bytes."""
        while b"\n" not in self._plain:
            self.read()
        line = self._plain.partition(b"\n")[0]
        size = len(line) + 1 + payload_size(line)
        while len(self._plain) < size:
            self.read()
        taken, self._plain = self._plain[:size], self._plain[size:]
        return taken

    def serve(self) -> None:
        """Answer PINGs until the client leaves."""
        while True:
            if self.line() == b"PING\r\n":
                self.send(b"PONG\r\n")

    def read(self) -> tuple[int, bytes]:
        """Read one frame."""
        head = self._received(2)
        size = head[1] & 127
        more = self._received({126: 2, 127: 8}.get(size, 0))
        size = int.from_bytes(more, "big") if more else size
        body = self._received(size + (4 if head[1] & 128 else 0))
        [frame] = unmasked(head + more + body)
        self.frames.append(frame)
        if frame[0] & 15 == BINARY:
            self._plain += frame[1]
        return frame

    def _received(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.peer.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the client has left")
            data += part
        return data


def websocket(script: Callable[[WebSocketPeer], object]) -> Callable[[Peer], None]:
    """Return a script of `FakeServer` for clients that ask for a WebSocket."""
    return lambda peer: (script(WebSocketPeer(peer)), None)[1]
