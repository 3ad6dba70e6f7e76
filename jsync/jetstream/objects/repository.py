"""The infos of a store, requested, stored and removed. Every call here blocks."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ... import errors
from ...core.sync import ForkSafeRLock
from ...errors import (
    AmbiguousPutError,
    ConnectionLostError,
    Error,
    InvalidObjectInfoError,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from ...models import StoredMessage
from ..buckets import driver as buckets
from ..buckets.engine import TRANSIENT_ERRORS, read_only
from ..management import purge_stream, stream_info
from ..publishing.publish import RETRY_SECONDS, publish
from ..publishing.publisher import Publisher
from ..stored.get import direct_get_of_subject, get_message
from ..stream_end.engine import end_in
from ..watching.driver import open_watch
from .engine import (
    EXPECTED,
    ROLLUP,
    STREAM_PREFIX,
    StoreLayout,
    UnreadableInfo,
    check_object,
    deleted_info,
    encode_info,
    new_nuid,
    tokens_of,
)
from .watch import ObjectWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...models import StreamInfo
    from ..api import API
    from .engine import ObjectInfo

WINDOW_BYTES = 12 << 20
"""Bytes of chunks of all puts of a store that may wait for their acks.

With a smaller window the server idles between chunks, and with a larger one the process needs
30 MiB."""
WINDOW = 4096
ACK_SECONDS = 30.0
RESEND_AFTER = 2.0
"""Seconds without an answer after which an info is sent again."""

RETRY_INTERVAL = 0.1
VERIFY_AFTER = 1.0
"""Seconds after which a put or a rename verifies that its chunks are still in the store.

A check removes no younger chunks, unless its `older_than` is less."""

Answer = TypeVar("Answer")


def open_repository(api: API, bucket: str, timeout: float | None) -> ObjectRepository:
    """Look up the store of that name.

    Blocks. Raises `BucketNotFoundError` if there is none.
    """
    info = buckets.find(api, STREAM_PREFIX, bucket, timeout)
    return ObjectRepository(api, StoreLayout(info.config))


class ObjectRepository:
    """The messages of a store. Any thread may use it.

    Each `timeout` is in seconds, and was checked by the caller.
    """

    def __init__(self, api: API, layout: StoreLayout) -> None:
        self.api = api
        self.layout = layout
        self.direct_pages = layout.direct
        """True if direct gets read the chunks, False if a consumer does."""
        self._lock = ForkSafeRLock()
        self._publisher: Publisher | None = None

    @property
    def publisher(self) -> Publisher:
        """The publisher of the chunks of all puts, which share its window.

        Raises `ReadOnlyBucketError` if the store is a mirror.
        """
        self._check_writable()
        with self._lock:
            if self._publisher is None:
                self._publisher = Publisher(
                    self.api,
                    window=WINDOW,
                    window_bytes=WINDOW_BYTES,
                    ack_timeout=ACK_SECONDS,
                    stall_timeout=ACK_SECONDS,
                    resend=False,
                    retry_attempts=0,
                    retry_wait=RETRY_SECONDS,
                    on_error=None,
                )
            return self._publisher

    def _check_writable(self) -> None:
        if self.layout.origin is not None:
            raise read_only("store", self.layout.bucket, self.layout.origin)

    # Infos ----------------------------------------------------------------------------

    def info(
        self,
        name: str,
        timeout: float,
        *,
        by_leader: bool = False,
        include_deleted: bool = False,
    ) -> ObjectInfo:
        """Get the info of an object from any server that has it.

        Raises `ObjectNotFoundError` if it is missing or deleted, but only after the leader has
        confirmed that: a replica or a mirror that lags may lack the info, or still have an
        older deletion.
        """
        layout = self.layout
        check_object(name)  # a link may lead to anything
        direct = layout.direct and not by_leader
        info = self.last(name, timeout, direct=direct)
        if direct and (info is None or info.deleted):
            info = self.last(name, timeout)
        if info is None or (info.deleted and not include_deleted):
            raise layout.object_not_found_error(name, deleted=info is not None)
        return info

    def infos(
        self,
        timeout: float,
        *,
        deleted: bool,
        on_bad: Callable[[InvalidObjectInfoError, bytes], object],
    ) -> Iterator[ObjectInfo]:
        """Iterate over the infos of the store. Messages that are no infos go to `on_bad`.

        An object that is replaced meanwhile may come again with its new info.
        """
        layout = self.layout.with_on_bad(on_bad)
        with open_watch(
            *(self.api, layout, (), ObjectWatch),
            ignore_deletes=not deleted,
            timeout=timeout,
        ) as watch:
            yield from watch.initial()

    def last(
        self, name: str, timeout: float, *, direct: bool = False
    ) -> ObjectInfo | None:
        """Get the last info of a name from the leader, or from any server if `direct`.

        Raises:
            InvalidObjectInfoError: The last message is not the info of an object.
        """

        def get(subject: str) -> StoredMessage | None:
            return self._last(subject, timeout, direct)

        return self._newest(name, get, self.layout.info)

    def occupied(self, name: str, timeout: float) -> ObjectInfo | None:
        """Get the last info of a name from the leader, to replace it (`StoreLayout.occupied`)."""

        def get(subject: str) -> StoredMessage | None:
            return self._last(subject, timeout, False)

        return self._newest(name, get, self.layout.occupied)

    def last_from_any_replica(self, name: str, timeout: float) -> ObjectInfo | None:
        """Get the last info of a name from any server. Quicker than `occupied`, may be old."""
        layout, deadline = self.layout, monotonic() + timeout

        def get(subject: str) -> StoredMessage | None:
            found = direct_get_of_subject(self.api, layout.stream, subject, deadline)
            return None if found is None else StoredMessage.from_answer(*found)

        if layout.direct:
            with contextlib.suppress(NoRespondersError):
                return self._newest(name, get, layout.occupied)
        return self.occupied(name, timeout)

    def last_or_raise(self, name: str, timeout: float) -> ObjectInfo:
        """Get an info from the leader.

        Raises `ObjectNotFoundError` if there is none, or if the object was deleted.
        """
        info = self.last(name, timeout)
        if info is None or info.deleted:
            raise self.layout.object_not_found_error(name, deleted=info is not None)
        return info

    def _newest(
        self,
        name: str,
        get: Callable[[str], StoredMessage | None],
        read: Callable[[StoredMessage], ObjectInfo],
    ) -> ObjectInfo | None:
        """Find the info of a name on each subject that a client may have stored it on.

        The first info of an existing object wins, then a message that cannot be read, then the
        info of a deleted object.
        """
        found: ObjectInfo | None = None
        bad: InvalidObjectInfoError | None = None
        unreadable: UnreadableInfo | None = None
        for token in tokens_of(name):
            message = get(self.layout.infos + token)
            if message is None:
                continue
            try:
                info = read(message)
            except InvalidObjectInfoError as error:
                bad = bad or error
                continue
            if isinstance(info, UnreadableInfo):
                unreadable = unreadable or info
            elif not info.deleted:
                return info
            else:
                found = found or info
        if bad is not None:
            raise bad
        return unreadable or found

    def _last(self, subject: str, timeout: float, direct: bool) -> StoredMessage | None:
        try:
            return get_message(
                *(self.api, self.layout.stream),
                last_by_subject=subject,
                direct=direct,
                timeout=timeout,
            )
        except MessageNotFoundError:
            return None
        except StreamNotFoundError as error:
            raise self.layout.not_found_error() from error

    def compare_and_set(
        self, make: Callable[[], tuple[ObjectInfo, int]], timeout: float
    ) -> ObjectInfo:
        """Store the info that `make` returns, together with the revision that it replaces.

        If another change was quicker, `make` is called again, until `timeout`.
        """
        deadline = monotonic() + timeout
        while True:
            info, last = make()
            if not info.nuid:  # a link of nats.js: nats.go reads none without an id
                info = msgspec.structs.replace(info, nuid=new_nuid())
            try:
                revision = self.put_info(info, last, timeout)
            except WrongLastSequenceError:
                if monotonic() >= deadline:
                    raise
            else:
                return self.stored(info, revision)

    def stored(self, info: ObjectInfo, revision: int) -> ObjectInfo:
        """Make a copy of an info with the revision and the time of its storage."""
        return msgspec.structs.replace(
            info, revision=revision, modified=datetime.now(UTC)
        )

    def put_info(self, info: ObjectInfo, last: int, timeout: float) -> int:
        """Store an info if the last revision of its name is still `last`.

        The info may be sent twice, but the server stores it only once.

        Returns:
            The new revision.

        Raises:
            WrongLastSequenceError: The last revision is another one. Nothing was stored.
            AmbiguousPutError: No answer came.
            ReadOnlyBucketError: The store is a mirror. Nothing was sent.
        """
        self._check_writable()
        deadline = monotonic() + timeout
        subject, data = self.layout.subject_of(info), encode_info(info)
        headers = {**ROLLUP, EXPECTED: str(last)}
        session = self.api.session
        unclear = False
        while True:
            wait = min(deadline - monotonic(), RESEND_AFTER)
            try:
                return publish(session, subject, data, headers, wait).seq
            except Error as error:
                unclear = unclear or isinstance(
                    error, errors.TimeoutError | ConnectionLostError
                )
                if not unclear:
                    raise
                if isinstance(error, TRANSIENT_ERRORS) and monotonic() < deadline:
                    session.sleep(RETRY_INTERVAL)
                    continue
                if (stored := self._stored(subject, data, timeout)) is not None:
                    return stored
                raise AmbiguousPutError(
                    f"no answer to the info of {info.name!r} in store "
                    f"{self.layout.bucket!r}, so it may be stored or not: {error}; ask for "
                    "the info of the object"
                ) from error

    def _stored(self, subject: str, data: bytes, seconds: float) -> int | None:
        """Return the revision of an info if the leader has it. None also without an answer."""
        with contextlib.suppress(Error):
            message = self._last(subject, seconds, False)
            if message is not None and message.data == data:
                return message.sequence
        return None

    def roll_back(
        self, info: ObjectInfo, former: ObjectInfo | None, timeout: float
    ) -> None:
        """Replace a stored info with that of the former object, or with a deletion.

        If another client has replaced the info already, nothing changes.
        """
        back = deleted_info(info)
        if (
            former is not None
            and not former.deleted
            and not isinstance(former, UnreadableInfo)
            and self.has_chunks(former, timeout)
        ):
            back = former
        with contextlib.suppress(WrongLastSequenceError):
            self.put_info(back, info.revision, timeout)

    # Removing -------------------------------------------------------------------------

    def remove_chunks(self, nuid: str, timeout: float) -> int:
        """Remove the chunks of an id."""
        return self._purge(self.layout.chunk_subject(nuid), None, timeout)

    def remove_old(self, nuid: str, last: int, timeout: float) -> int:
        """Remove the chunks that a check found, up to the last one that it saw."""
        return self._purge(self.layout.chunks + nuid, last + 1, timeout)

    def remove_info(self, info: ObjectInfo, timeout: float) -> int:
        """Remove this info, but no info that was stored after it."""
        return self._purge(self.layout.subject_of(info), info.revision + 1, timeout)

    def remove_before(self, name: str, revision: int, timeout: float) -> None:
        """Remove the infos of a name that are older than a revision of the store."""
        for token in tokens_of(name):
            self._purge(self.layout.infos + token, revision, timeout)

    def purge_chunks(self, info: ObjectInfo, timeout: float) -> None:
        """Remove the chunks of an info that was replaced or deleted. Errors are reported."""
        if not info.chunks:
            return
        try:
            # The chunks of an info are stored before it.
            subject = self.layout.chunk_subject(info.nuid)
            self._purge(subject, info.revision, timeout)
        except Exception as error:  # noqa: BLE001 - the put or the delete has succeeded
            error.add_note(
                f"chunks of a former object are left in store {self.layout.bucket!r}: "
                "ObjectStore.check() removes them"
            )
            self.api.session.callbacks.report(error)

    def _purge(self, subject: str, before: int | None, timeout: float) -> int:
        """Purge a subject, again if no answer comes: a second purge does no harm."""
        self._check_writable()

        def purge(seconds: float) -> int:
            return purge_stream(
                *(self.api, self.layout.stream),
                subject=subject,
                sequence=before,
                keep=None,
                timeout=seconds,
            )

        return self._request_until(purge, timeout)

    # Counting -------------------------------------------------------------------------

    def count_chunks(
        self, subject: str, timeout: float
    ) -> tuple[dict[str, int], datetime]:
        """Query the leader for the number of chunks by id, and the time of the server."""
        prefix = self.layout.chunks

        def ask(seconds: float) -> StreamInfo:
            info = stream_info(
                *(self.api, self.layout.stream),
                timeout=seconds,
                subjects_filter=subject,
            )
            end_in(info)  # raises if the answer may be outdated
            return info

        info = self._request_until(ask, timeout)
        counts = {
            name.removeprefix(prefix): count
            for name, count in (info.state.subjects or {}).items()
        }
        return counts, info.ts or datetime.now(UTC)

    def has_chunks(self, info: ObjectInfo, timeout: float) -> bool:
        """Check whether the leader has all chunks of an object."""
        if not info.chunks:
            return True
        counts, _ = self.count_chunks(self.layout.chunk_subject(info.nuid), timeout)
        return counts.get(info.nuid, 0) == info.chunks

    def _request_until(self, call: Callable[[float], Answer], timeout: float) -> Answer:
        """Send a request, and repeat it until `timeout` while no server answers."""
        deadline = monotonic() + timeout
        while True:
            try:
                return call(max(deadline - monotonic(), 0.001))
            except StreamNotFoundError as error:
                raise self.layout.not_found_error() from error
            except TRANSIENT_ERRORS:
                if monotonic() >= deadline:
                    raise
                self.api.session.sleep(RETRY_INTERVAL)

    def __repr__(self) -> str:
        return f"<ObjectRepository of {self.layout.bucket!r}>"
