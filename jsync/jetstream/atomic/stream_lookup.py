"""The stream that takes a subject, and whether the server that leads it has atomic batches.

A server without atomic batches would store each message of a batch immediately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ... import errors
from ...core.sync import ForkSafeRLock
from ...errors import (
    APIError,
    AtomicBatchUnsupportedError,
    ConfigError,
    PermissionsError,
)
from ...models import StreamInfo
from ...subjects import any_covers
from ..features import level_of
from ..replies import api_error, get_field

if TYPE_CHECKING:
    from ..api import API

ATOMIC_LEVEL: Final = 2
"""The API level of nats-server 2.12."""
_DISABLED: Final = {
    "code": 400,
    "err_code": 10174,
    "description": "atomic publish is disabled",
}


class KnownStream(NamedTuple):
    """A stream that takes atomic batches."""

    name: str
    subjects: tuple[str, ...]
    version: str
    """The version of the server that leads the stream."""


class StreamLookup:
    """A cache of the streams that take batches, valid until the next reconnect.

    After a reconnect, the server may have another version. A stream that takes no batches
    is not cached, so each batch looks it up again.
    """

    def __init__(self, api: API) -> None:
        self._api = api
        # Held while the fields below change, and never during a request.
        self._lock = ForkSafeRLock()
        self._reconnects = -1
        self._known: dict[str, KnownStream] = {}
        self._min_sequences: dict[str, int] = {}
        self._unknowable = False

    def __repr__(self) -> str:
        return f"<StreamLookup {', '.join(self._known) or 'empty'}>"

    def atomic(
        self, subject: str, stream: str | None, timeout: float
    ) -> KnownStream | None:
        """Return the stream that takes batches on `subject`, or None if it is unknown.

        The stream stays unknown without permission to use the API, or if a mapping of the
        account changes the subject. Blocks for up to two requests of `timeout` seconds
        each. After a timeout or a missing permission there are no more requests until the
        next reconnect. `stream` is the name of the stream, if the caller knows it.

        Raises:
            AtomicBatchUnsupportedError: The server or the stream takes no batches.
            APIError: The stream has atomic batches turned off.
            ConfigError: The stream has `no_ack`, so it cannot confirm a batch.
        """
        reconnects = self._api.session.reconnects
        with self._lock:
            if reconnects != self._reconnects:
                self._reconnects = reconnects
                self._unknowable = False
                self._known = {}
            known_streams, unknowable = list(self._known.values()), self._unknowable
        for known in known_streams:
            if any_covers(known.subjects, subject):
                return known
        if unknowable:
            return None
        try:
            name = stream or self._find_name(subject, timeout)
            if name is None:
                return None
            reply = self._api.request(f"STREAM.INFO.{name}", timeout=timeout)
        except APIError:
            return None
        except (errors.TimeoutError, PermissionsError):
            with self._lock:
                self._unknowable = self._reconnects == reconnects
            return None
        known = self._check_stream(StreamInfo.from_wire(reply))
        with self._lock:
            # After a reconnect, the reply of the former server is not cached.
            if self._reconnects == reconnects:
                self._known[known.name] = known
        return known

    def clear(self) -> None:
        """Forget the streams, because one has changed. The next batch looks it up again."""
        with self._lock:
            self._known = {}

    def record_sequence(self, stream: str, sequence: int) -> None:
        """Record that the last sequence of a stream is at least `sequence`."""
        with self._lock:
            self._min_sequences[stream] = max(
                sequence, self._min_sequences.get(stream, 0)
            )

    def min_sequences(self) -> dict[str, int]:
        """Return a sequence for each stream that it has certainly reached by now."""
        with self._lock:
            return self._min_sequences.copy()

    def _find_name(self, subject: str, timeout: float) -> str | None:
        reply = self._api.request("STREAM.NAMES", {"subject": subject}, timeout=timeout)
        names = get_field(reply, "streams", list[str](), list[str])
        return names[0] if len(names) == 1 else None

    def _check_stream(self, info: StreamInfo) -> KnownStream:
        config = info.config
        name = config.name or ""
        metadata = config.metadata or {}
        if not config.allow_atomic:
            if (level_of(metadata) or 0) >= ATOMIC_LEVEL:
                raise api_error(_DISABLED)
            raise AtomicBatchUnsupportedError(
                f"the server of stream {name!r} takes no atomic batches: they need "
                "nats-server 2.12, and allow_atomic"
            )
        if config.no_ack:
            raise ConfigError(
                f"stream {name!r} has no_ack, so it cannot confirm a batch: turn no_ack "
                "off"
            )
        self.record_sequence(name, info.state.last_seq)
        return KnownStream(
            name, tuple(config.subjects or ()), metadata.get("_nats.ver", "")
        )
