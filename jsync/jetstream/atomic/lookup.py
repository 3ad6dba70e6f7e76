"""Which stream takes a subject, and what the server that leads it can do.

For atomic batches: a server without them would store each message at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ...core.shared import RLock
from ...errors import (
    APIError,
    AtomicBatchUnsupportedError,
    ConfigError,
    PermissionsError,
    TimeoutError as LateError,
)
from ...models import StreamInfo
from ...subjects import any_covers
from ..replies import api_error, part_of
from ..versions import level_of

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
    """Of the server that leads it."""


class StreamLookup:
    """What is known of streams that batches are published to, until the next reconnect.

    Another server may be of another version. A stream that takes no batches is asked for
    again each time.
    """

    def __init__(self, api: API) -> None:
        self._api = api
        # Held where the fields below change, and never while anything is asked.
        self._lock = RLock()
        self._reconnects = -1
        self._known: dict[str, KnownStream] = {}
        self._floors: dict[str, int] = {}
        self._unknowable = False

    def __repr__(self) -> str:
        return f"<StreamLookup {', '.join(self._known) or 'empty'}>"

    def atomic(
        self, subject: str, stream: str | None, timeout: float
    ) -> KnownStream | None:
        """The stream that takes batches on `subject`; None when that cannot be known.

        It cannot for want of permission to ask the API, or when a mapping of the account
        changes the subject. Asks for at most `timeout` seconds, twice, and then not again
        while connected to this server. `stream` is its name, where that is known. Raises
        when it takes none.
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
            name = stream or self._name(subject, timeout)
            if name is None:
                return None
            reply = self._api.request(f"STREAM.INFO.{name}", timeout=timeout)
        except APIError:
            return None
        except (LateError, PermissionsError):
            with self._lock:
                self._unknowable = self._reconnects == reconnects
            return None
        known = self._judge(StreamInfo.from_wire(reply))
        with self._lock:
            # What the server before said is not for others, who ask the next one.
            if self._reconnects == reconnects:
                self._known[known.name] = known
        return known

    def forget(self) -> None:
        """Ask again next time: something has changed."""
        with self._lock:
            self._known = {}

    def note(self, stream: str, sequence: int) -> None:
        """The stream has come to `sequence`, or beyond."""
        with self._lock:
            self._floors[stream] = max(sequence, self._floors.get(stream, 0))

    def floors(self) -> dict[str, int]:
        """How far streams have come for certain, as of now."""
        with self._lock:
            return self._floors.copy()

    def _name(self, subject: str, timeout: float) -> str | None:
        reply = self._api.request("STREAM.NAMES", {"subject": subject}, timeout=timeout)
        names = part_of(reply, "streams", list[str](), list[str])
        return names[0] if len(names) == 1 else None

    def _judge(self, info: StreamInfo) -> KnownStream:
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
        self.note(name, info.state.last_seq)
        return KnownStream(
            name, tuple(config.subjects or ()), metadata.get("_nats.ver", "")
        )
