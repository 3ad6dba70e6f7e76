"""Shared parts of the tests of the subscribe workflow: the requests through the proxy."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from .proxy import frame_filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from .proxy import FaultProxy, Side


class Sent(NamedTuple):
    """A frame that a client has sent."""

    verb: str
    subject: str
    payload: Any
    """The payload of a request to the JetStream API."""


class Wire:
    """The frames that a client sends through a proxy, and hooks between them.

    Use this class for a single connection.
    """

    PATTERN = re.compile(r"(SUB|UNSUB|H?PUB) (\S+).*?\r\n(.*)", re.DOTALL)

    def __init__(self, proxy: FaultProxy) -> None:
        self._frames: list[Sent] = []
        self._before: list[tuple[bytes, Callable[[], object]]] = []
        self._dropped: bytes | None = None
        self.url = proxy.url
        proxy.rewrite(frame_filter(self._look))

    def before_answer(self, words: bytes, act: Callable[[], object]) -> None:
        """Call `act` once, before the next reply with these words is forwarded.

        `act` runs on the thread of the proxy.
        """
        self._before.append((words, act))

    def drop(self, words: bytes | None) -> None:
        """Drop the frames of the server that contain these words, from now on."""
        self._dropped = words

    def _look(self, frame: bytes, to: Side) -> bool:
        if to == "server":
            found = self.PATTERN.match(frame.decode())
            if found is not None:
                api = found[2].startswith("$JS.API.") and found[3].strip()
                payload = json.loads(found[3]) if api else None
                self._frames.append(Sent(found[1], found[2], payload))
            return True
        for words, act in list(self._before):
            if words in frame:
                self._before.remove((words, act))
                act()
        return self._dropped is None or self._dropped not in frame

    @property
    def requests(self) -> list[str]:
        """The requests to the JetStream API, in order, without `$JS.API.`."""
        return [
            sent.subject.removeprefix("$JS.API.")
            for sent in self._frames
            if sent.subject.startswith("$JS.API.")
        ]

    def payload(self, request: str) -> Any:
        """Return the payload of the last request to that part of the API."""
        return next(
            sent.payload
            for sent in reversed(self._frames)
            if sent.subject.startswith(f"$JS.API.{request}")
        )

    def place(self, verb: str, subject: str) -> int:
        """Return the position of the first frame on that subject among all frames."""
        return next(
            number
            for number, sent in enumerate(self._frames)
            if sent.verb == verb and sent.subject.startswith(subject)
        )

    @property
    def subscribed(self) -> list[str]:
        """The subjects subscribed to so far, without the inbox for replies."""
        return [sent.subject for sent in self._frames if sent.verb == "SUB"]
