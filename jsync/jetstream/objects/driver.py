"""The infos of a store: asked for, stored and removed. Everything here blocks."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ...core.deadline import deadline_after
from ...core.shared import RLock
from ...errors import (
    ConnectionLostError,
    Error,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
    TimeoutError as LateError,
    UnclearPutError,
    WrongLastSequenceError,
)
from ..buckets import driver as buckets
from ..buckets.engine import PASSING
from ..management import purge_stream
from ..publishing.options import publish_headers
from ..publishing.publish import RETRY_SECONDS, publish
from ..publishing.publisher import Publisher
from ..stored.get import direct_get_last, get_message
from .engine import ROLLUP, STREAM_PREFIX, Layout, check_object, encode_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import StoredMessage
    from ..api import API
    from .engine import ObjectInfo

WINDOW_BYTES = 12 << 20
"""Bytes of chunks of all puts of a store that may wait for their acks.

With fewer the server waits between two of them, and with more the memory goes to 30 MiB."""
WINDOW = 4096
ACK_SECONDS = 30.0
DOUBT_SECONDS = 2.0
"""How long an info that is put goes without an answer before it is sent again."""

PAUSE_SECONDS = 0.1


def open_objects(api: API, bucket: str, timeout: float | None) -> Objects:
    """The store of that name; blocks. Raises `BucketNotFoundError`."""
    info = buckets.find(api, STREAM_PREFIX, bucket, timeout)
    return Objects(api, Layout(info.config))


class Objects:
    """A store, as its messages. Any thread may use it."""

    def __init__(self, api: API, layout: Layout) -> None:
        self.api = api
        self.layout = layout
        self.direct_pages = layout.direct
        """Whether chunks are asked for by direct gets, or else by a consumer."""
        self._lock = RLock()
        self._publisher: Publisher | None = None

    @property
    def publisher(self) -> Publisher:
        """What sends the chunks of all puts: one window for all of them."""
        with self._lock:
            if self._publisher is None:
                self._publisher = Publisher(
                    self.api,
                    window=WINDOW,
                    window_bytes=WINDOW_BYTES,
                    ack_timeout=ACK_SECONDS,
                    stall_timeout=ACK_SECONDS,
                    resend=False,
                    retry_attempts=None,
                    retry_wait=RETRY_SECONDS,
                    on_error=None,
                )
            return self._publisher

    # Infos ----------------------------------------------------------------------------

    def info(self, name: str, timeout: float | None) -> ObjectInfo:
        """The info of an object, from any server that has it; raises if it was deleted."""
        info = self.last(name, timeout, direct=self.layout.direct)
        if info is None or info.deleted:
            raise self.layout.missing(name, deleted=info is not None)
        return info

    def last(
        self, name: str, timeout: float | None, *, direct: bool = False
    ) -> ObjectInfo | None:
        """What the leader, or with `direct` any server, has last of that name, if anything."""
        message = self._last(check_object(name), timeout, direct)
        return None if message is None else self.layout.info(message)

    def likely(self, name: str, timeout: float | None) -> ObjectInfo | None:
        """What any server has last of that name: quicker than `last`, but it may be old."""
        layout = self.layout
        subject = layout.info_subject(check_object(name))
        if layout.direct:
            with contextlib.suppress(NoRespondersError):
                message = direct_get_last(self.api, layout.stream, subject, timeout)
                return None if message is None else layout.info(message)
        return self.last(name, timeout)

    def existing(self, name: str, timeout: float | None) -> ObjectInfo:
        """The info that the leader has; raises if there is none, not if it was deleted."""
        info = self.last(name, timeout)
        if info is None:
            raise self.layout.missing(name, deleted=False)
        return info

    def _last(
        self, name: str, timeout: float | None, direct: bool
    ) -> StoredMessage | None:
        try:
            return get_message(
                *(self.api, self.layout.stream),
                last_by_subject=self.layout.info_subject(name),
                direct=direct,
                timeout=timeout,
            )
        except MessageNotFoundError:
            return None
        except StreamNotFoundError as error:
            raise self.layout.gone() from error

    def change(
        self, make: Callable[[], tuple[ObjectInfo, int]], timeout: float | None
    ) -> ObjectInfo:
        """Store the info that `make` gives for what is there, with its last revision.

        If another change was quicker, `make` is called again, until `timeout`.
        """
        deadline = deadline_after(self.api.seconds(timeout))
        while True:
            info, last = make()
            try:
                revision = self.put_info(info, last, timeout)
            except WrongLastSequenceError:
                if monotonic() >= deadline:
                    raise
            else:
                return msgspec.structs.replace(
                    info, revision=revision, modified=datetime.now(UTC)
                )

    def put_info(self, info: ObjectInfo, last: int, timeout: float | None) -> int:
        """Store an info if the last one of that name is still `last`; its revision.

        It may be sent twice, since it can only be stored once.

        Raises:
            WrongLastSequenceError: It is not; nothing was stored.
            UnclearPutError: No answer came.
        """
        seconds = self.api.seconds(timeout)
        deadline = deadline_after(seconds)
        subject, data = self.layout.info_subject(info.name), encode_info(info)
        headers = publish_headers(
            *(subject, data),
            {"headers": ROLLUP, "expected_last_subject_sequence": last},
        )
        session = self.api.session
        unclear = False
        while True:
            wait = min(deadline - monotonic(), DOUBT_SECONDS)
            try:
                return publish(session, subject, data, headers, wait).seq
            except Error as error:
                unclear = unclear or isinstance(error, LateError | ConnectionLostError)
                if not unclear:
                    raise
                if isinstance(error, PASSING) and monotonic() < deadline:
                    session.sleep(PAUSE_SECONDS)
                    continue
                if (stored := self._stored(info.name, data, seconds)) is not None:
                    return stored
                raise UnclearPutError(
                    f"no answer to the info of {info.name!r} in store "
                    f"{self.layout.bucket!r}, so it may be stored or not: {error}; ask for "
                    "the info of the object"
                ) from error

    def _stored(self, name: str, data: bytes, seconds: float) -> int | None:
        """The revision of an info if that is what the leader has; None if not, or who knows."""
        with contextlib.suppress(Error):
            message = self._last(name, seconds, False)
            if message is not None and message.data == data:
                return message.sequence
        return None

    # What is removed ------------------------------------------------------------------

    def remove_chunks(self, nuid: str, timeout: float | None) -> int:
        """Remove the chunks of an id; how many there were."""
        return self._purge(self.layout.chunk_subject(nuid), None, timeout)

    def remove_info(self, info: ObjectInfo, timeout: float | None) -> int:
        """Remove this info, and none that was stored after it."""
        subject = self.layout.info_subject(info.name)
        return self._purge(subject, info.revision + 1, timeout)

    def drop_chunks(self, info: ObjectInfo, timeout: float | None) -> None:
        """Remove the chunks of an info that is no more; what fails is reported.

        If a rename has begun, they may be those of the new name: `check` knows.
        """
        if not info.chunks or info.renamed_to is not None:
            return
        try:
            self.remove_chunks(info.nuid, timeout)
        except Exception as error:  # noqa: BLE001 - the put or the delete has succeeded
            error.add_note(
                f"chunks of a former object are left in store {self.layout.bucket!r}: "
                "ObjectStore.check() removes them"
            )
            self.api.session.callbacks.report(error)

    def _purge(self, subject: str, before: int | None, timeout: float | None) -> int:
        """Purge, again if nobody answers: twice does no harm."""
        deadline = deadline_after(self.api.seconds(timeout))
        while True:
            try:
                return purge_stream(
                    *(self.api, self.layout.stream),
                    subject=subject,
                    sequence=before,
                    keep=None,
                    timeout=max(deadline - monotonic(), 0.001),
                )
            except StreamNotFoundError as error:
                raise self.layout.gone() from error
            except PASSING:
                if monotonic() >= deadline:
                    raise
                self.api.session.sleep(PAUSE_SECONDS)

    def __repr__(self) -> str:
        return f"<Objects of {self.layout.bucket!r}>"
