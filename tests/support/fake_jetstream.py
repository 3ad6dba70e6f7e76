"""A fake server whose replies on the JetStream subjects come from a function of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .connection_faults import Peer


class FakeReply(NamedTuple):
    """A message to the reply subject of a request."""

    data: bytes = b""
    headers: bytes = b""
    """A whole header block, from `NATS/1.0` to the empty line."""
    subject: bytes = b""
    """The subject that the client sees, as for a message of a stream."""
    reply: bytes = b""


def answer_requests(
    answer: Callable[[str, bytes], Iterable[FakeReply]], **info: object
) -> Callable[[Peer], None]:
    """Return a script for `FakeServer` that answers requests with `answer(subject, payload)`."""

    def script(peer: Peer) -> None:
        peer.handshake(**{"version": "2.15.1", "jetstream": True, "api_lvl": 4, **info})
        sids: dict[bytes, bytes] = {}
        while True:
            frame = peer.frame()
            line, _, body = frame.partition(b"\r\n")
            verb, *words = line.split(b" ")
            if verb == b"PING":
                peer.send(b"PONG\r\n")
            elif verb == b"SUB":
                sids[words[0].rstrip(b"*>")] = words[-1]
            elif verb in (b"PUB", b"HPUB"):
                numbers = 2 if verb == b"HPUB" else 1
                if len(words) != numbers + 2:
                    continue
                skipped = int(words[-2]) if verb == b"HPUB" else 0
                said = answer(words[0].decode(), body[skipped:-2])
                peer.send(b"".join(_frame(one, words[1], sids) for one in said))

    return script


def _frame(said: FakeReply, inbox: bytes, sids: dict[bytes, bytes]) -> bytes:
    sid = next(
        sid
        for prefix, sid in reversed(sids.items())
        if prefix == inbox or (prefix.endswith(b".") and inbox.startswith(prefix))
    )
    words = [said.subject or inbox, sid, *([said.reply] if said.reply else [])]
    if said.headers:
        sizes = b"%d %d" % (len(said.headers), len(said.headers) + len(said.data))
        return b"HMSG %s %s\r\n%s%s\r\n" % (
            *(b" ".join(words), sizes, said.headers, said.data),
        )
    return b"MSG %s %d\r\n%s\r\n" % (b" ".join(words), len(said.data), said.data)
