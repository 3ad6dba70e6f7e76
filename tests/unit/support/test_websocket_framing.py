"""The frames that `FaultProxy` and `FakeServer` put on and take off for `make websocket`."""

from __future__ import annotations

import pytest

from ...support.reference import framed, unmasked
from ...support.websocket_framing import Framing

HEAD = b"HTTP/1.1 101 Switching Protocols\r\n\r\n"
SIZES = [1, 125, 126, 65_535, 65_536]


def payload(size: int) -> bytes:
    return (bytes(range(256)) * (size // 256 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
def test_frames_for_the_server_match_the_oracle(size: int) -> None:
    frame = Framing(masked=True).put(payload(size))
    assert unmasked(frame) == [(0x82, payload(size))]
    assert frame[1] & 0x80


@pytest.mark.parametrize("size", SIZES)
def test_frames_for_the_client_match_the_oracle(size: int) -> None:
    assert Framing(masked=False).put(payload(size)) == framed(payload(size))


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1 << 20])
def test_frames_are_removed_however_the_stream_is_cut(step: int) -> None:
    masked = b"\x82\x83\x01\x02\x03\x04" + bytes(
        [ord("a") ^ 1, ord("b") ^ 2, ord("c") ^ 3]
    )
    ping = framed(b"?", 9)
    closing = framed(b"\x03\xe8", 8)
    stream = HEAD + framed(b"one") + ping + masked + framed(payload(300)) + closing
    framing = Framing(masked=False)
    other, plain = b"", b""
    for at in range(0, len(stream), step):
        passed, taken = framing.take(stream[at : at + step])
        other, plain = other + passed, plain + taken
    assert other == HEAD + ping
    assert plain == b"oneabc" + payload(300)
    assert framing.closing == closing
