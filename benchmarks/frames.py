"""Frames as a server sends them, for the benchmarks of the parser."""

from __future__ import annotations

ACK = b"$JS.ACK.ORDERS.worker.1.%d.%d.1763693000123456789.%d"
HEADERS = (
    b"NATS/1.0\r\nNats-Msg-Id: 7f3a9c52\r\nContent-Type: application/json\r\n"
    b"X-Trace: 4bf92f3577b34da6a3ce929d0e0e4736\r\n\r\n"
)


def frames(size: int, count: int, *, ack: bool = True, headers: bool = False) -> bytes:
    """Return `count` messages of `size` bytes, as a pull consumer delivers them."""
    payload, made = b"x" * size, []
    for i in range(1, count + 1):
        reply = ACK % (1_000_000 + i, i, count - i) + b" " if ack else b""
        if headers:
            line = b"HMSG orders.eu.new 7 %b%d %d\r\n%b" % (
                reply,
                len(HEADERS),
                len(HEADERS) + size,
                HEADERS,
            )
        else:
            line = b"MSG orders.eu.new 7 %b%d\r\n" % (reply, size)
        made.append(line + payload + b"\r\n")
    return b"".join(made)
