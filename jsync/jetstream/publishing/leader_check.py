"""Checks that the leaders of a publisher's streams know the options of its messages."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ...errors import Error, UnsupportedFeatureError
from ...models import StreamInfo
from ...subjects import any_covers
from ..api import INFO_TIMEOUT, LEADER_CHECK_SECONDS
from ..replies import get_field

if TYPE_CHECKING:
    from ..api import API
    from ..features import Features


class LeaderCheck:
    """Finds the streams of subjects, and asks their leaders. Any thread may use it.

    A publisher does not wait for acks, so it cannot learn the stream from them.
    """

    def __init__(self, api: API) -> None:
        self._api = api
        self._streams: dict[str, tuple[str, ...]] = {}
        """The subjects of each stream that was found."""
        self._unknown_until = 0.0

    def require(self, subject: str, needs: Features) -> None:
        """Raise `UnsupportedFeatureError` if the leader of the stream is too old for `needs`.

        Sends nothing without `needs`, and otherwise a few requests a second at most. If they
        are not answered, it cannot be known.
        """
        if not needs or monotonic() < self._unknown_until:
            return
        try:
            stream = self._stream_of(subject)
            if stream is not None:
                self._api.require_of_leader(stream, needs, INFO_TIMEOUT)
                return
        except UnsupportedFeatureError:
            raise
        except Error:
            self._streams = {}  # perhaps the stream was deleted
        self._unknown_until = monotonic() + LEADER_CHECK_SECONDS

    def _stream_of(self, subject: str) -> str | None:
        for name, subjects in self._streams.items():
            if any_covers(subjects, subject):
                return name
        request = self._api.request
        reply = request("STREAM.NAMES", {"subject": subject}, timeout=INFO_TIMEOUT)
        names = get_field(reply, "streams", list[str](), list[str])
        if len(names) != 1:
            return None
        reply = request(f"STREAM.INFO.{names[0]}", timeout=INFO_TIMEOUT)
        taken = tuple(StreamInfo.from_wire(reply).config.subjects or ())
        self._streams = {**self._streams, names[0]: taken}
        return names[0]

    def __repr__(self) -> str:
        return f"<LeaderCheck of {len(self._streams)} streams>"
