"""The object store that `JetStream.object_store` returns (ADR-20)."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeAlias, TypeVar, overload

import msgspec
from msgspec import UNSET, UnsetType

from ...errors import (
    ConfigError,
    InvalidBucketNameError,
    InvalidObjectNameError,
    InvalidStreamConfigError,
    LinkError,
    MaxPayloadError,
    ObjectChangedError,
    StreamNotFoundError,
    WrongRevisionError,
)
from ...hints import explain_arguments, explain_attributes
from ...validation import (
    check_bool,
    check_callable,
    check_count,
    check_int,
    check_optional_callable,
    check_seconds,
)
from ..management import stream_info, update_stream
from ..watching.driver import open_watch
from .chunk_reader import WINDOW_BYTES
from .engine import (
    CHUNK_SIZE,
    ObjectInfo,
    ObjectLink,
    UnreadableInfo,
    check_description,
    check_headers,
    check_metadata,
    check_object,
    deleted_info,
    largest_size,
    new_nuid,
)
from .reader import ObjectReader
from .rename import Rename, object_exists
from .rename_marks import claim
from .repair import StoreCheck, check_store
from .repository import ObjectRepository, open_repository
from .status import ObjectStoreStatus
from .upload import Upload
from .watch import ObjectWatch
from .writer import ObjectWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...headers import HeadersLike
    from ...validation import Seconds

Progress: TypeAlias = "Callable[[int, int | None], object]"
Content: TypeAlias = "bytes | bytearray | memoryview | BinaryIO | Iterable[bytes | bytearray | memoryview]"

ORPHAN_SECONDS = 3600.0
MAX_LINKS = 8
"""The most links in a chain that are followed."""
_BINARY = getattr(os, "O_BINARY", 0)
"""Keeps Windows from changing line ends."""
RETRIES = 3
"""Failed attempts to read an object that is being replaced, before the last attempt."""

Read = TypeVar("Read")


@explain_attributes
class ObjectStore:
    """A store of objects, which are files of any size. Any thread may use it.

    A call blocks. It waits `timeout` seconds for each answer of the server, by default
    the timeout of the context. Besides the errors that each call names, it raises the errors
    of `JetStream`.

    Example:
        ```python
        store = js.create_object_store(bucket="reports")
        store.put("today.csv", b"id,total")
        print(store.get("today.csv"))
        for info in store.list():
            print(info.name, info.size)
        ```
    """

    def __init__(self, objects: ObjectRepository) -> None:
        self._objects = objects

    @property
    def bucket(self) -> str:
        """The name of the store."""
        return self._objects.layout.bucket

    # Putting --------------------------------------------------------------------------

    @explain_arguments
    def put(
        self,
        name: str,
        data: Content,
        *,
        description: str | None = None,
        headers: HeadersLike | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        progress: Progress | None = None,
        timeout: Seconds | None = None,
    ) -> ObjectInfo:
        """Store an object, and replace an existing one of that name.

        The call first stores the whole object, and then removes the chunks of the former
        one. If the call raises, the former object is still there, and the new chunks are
        removed. After an `AmbiguousPutError`, either of the two may be there.

        Args:
            name: Any name, also with slashes and spaces.
            data: Bytes, a file that was opened in binary mode, or an iterable of bytes.
            description: A human-readable description.
            headers: Headers of the object.
            metadata: Your own notes on the object.
            chunk_size: Bytes of each message. Default: 128 KiB, or less if the server
                takes less.
            progress: Called on this thread as `progress(done, total)` after each chunk,
                in bytes. `total` is None if the size is not known.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The info of the object.

        Raises:
            InvalidObjectNameError: No object may have that name. Nothing is sent.
            ConfigError: The data is text, or an argument is out of its range.
            MaxPayloadError: `chunk_size`, or the name with the description, the headers and
                the metadata, is larger than the server accepts. Nothing is sent.
            StreamStoreError: The store is full.
            InsufficientResourcesError: The server has no room.
            TimeoutError: The server acknowledged nothing for 30 seconds. The disk of the
                server may be full.
            StreamSealedError: The store is sealed.
            ReadOnlyBucketError: The store is a mirror. Nothing is sent.
            AmbiguousPutError: The last answer did not come. The object may be stored.
            ObjectIncompleteError: Chunks were removed before the put was complete, by a
                `check` with a short `older_than`, or by the `ttl` of the store.
            ChunkOrderError: The server stored the chunks in another order.
            ConnectionLostError: The connection broke while the chunks were sent.

        Example:
            ```python
            info = store.put("report.pdf", b"PDF", description="of last week")
            print(info.size, info.digest)
            ```
        """
        total = None if progress is None else _size_of(data)
        upload = self._start_upload(
            name, description, headers, metadata, chunk_size, progress, total, timeout
        )
        try:
            for block in _blocks(data, upload.chunk_size):
                upload.write(block)
            return upload.finish()
        except BaseException as error:
            upload.abort(error)
            raise

    def put_file(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        description: str | None = None,
        headers: HeadersLike | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        progress: Progress | None = None,
        timeout: Seconds | None = None,
    ) -> ObjectInfo:
        """Store a file as an object.

        The call works as `put` does, and raises the same errors.

        Args:
            path: The file.
            name: The name of the object. Default: the last part of `path`.
            description: A human-readable description.
            headers: Headers of the object.
            metadata: Your own notes on the object.
            chunk_size: Bytes of each message.
            progress: Called on this thread as `progress(done, total)`.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The info of the object.

        Raises:
            OSError: The file cannot be read.

        Example:
            ```python
            import tempfile

            with tempfile.NamedTemporaryFile() as file:
                file.write(b"PDF")
                file.flush()
                print(store.put_file(file.name, "report.pdf").size)
            ```
        """
        with Path(path).open("rb", buffering=0) as file:
            return self.put(
                Path(path).name if name is None else name,
                file,
                description=description,
                headers=headers,
                metadata=metadata,
                chunk_size=chunk_size,
                progress=progress,
                timeout=timeout,
            )

    def _start_upload(
        self,
        name: str,
        description: str | None,
        headers: HeadersLike | None,
        metadata: Mapping[str, str] | None,
        chunk_size: int | None,
        progress: Progress | None,
        total: int | None,
        timeout: Seconds | None,
        *,
        exclusive: bool = False,
    ) -> Upload:
        objects = self._objects
        if progress is not None:
            check_callable(progress, "progress")
        max_payload = objects.api.session.write_buffer.max_payload
        if chunk_size is None:
            chunk_size = min(CHUNK_SIZE, max_payload)
        elif check_count(chunk_size, "chunk_size", 1) > max_payload:
            raise MaxPayloadError(
                f"chunk_size: the server takes {max_payload} bytes at most, not {chunk_size}"
            )
        info = ObjectInfo(
            name=check_object(name),
            bucket=objects.layout.bucket,
            nuid=new_nuid(),
            modified=datetime.now(UTC),
            description=check_description(description),
            headers=check_headers(headers),
            metadata=check_metadata(metadata),
            chunk_size=chunk_size,
        )
        if (size := largest_size(info)) > max_payload:
            raise MaxPayloadError(
                f"the info of {name!r} may have {size} bytes, more than the server's "
                f"max_payload of {max_payload}: give less metadata and headers, or a "
                "shorter description"
            )
        seconds = objects.api.seconds(timeout)
        on_progress = None if progress is None else lambda done: progress(done, total)
        if exclusive:
            existing = objects.occupied(name, seconds)
            if existing is not None and not (existing.deleted or existing.renamed_to):
                raise object_exists(objects, name)
        return Upload(objects, info, seconds, on_progress, exclusive=exclusive)

    # Getting --------------------------------------------------------------------------

    @explain_arguments
    def get(
        self,
        name: str,
        *,
        progress: Progress | None = None,
        timeout: Seconds | None = None,
    ) -> bytes:
        """Get the bytes of an object, or of the object that a link leads to.

        If another client replaces the object during the call, the call reads the new one. In
        a cluster you may get the object that a put of yours has just replaced, from a server
        that is behind.

        Args:
            name: The name of the object.
            progress: Called on this thread as `progress(done, total)` after each chunk.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The bytes.

        Raises:
            ObjectNotFoundError: There is no such object, or it was deleted.
            DigestMismatchError: The bytes are not those that were put.
            ObjectIncompleteError: Chunks are missing in the store.
            ObjectReadError: The object has more bytes than its info states.
            InvalidObjectInfoError: The info of the object cannot be read.
            LinkError: It is a link to a store.

        Example:
            ```python
            store.put("report.pdf", b"PDF")
            print(store.get("report.pdf"))
            ```
        """

        def read(by_leader: bool) -> bytes:
            buffer = io.BytesIO()
            self._copy(name, buffer, progress, timeout, by_leader)
            return buffer.getvalue()

        return _retry_read(read)

    @explain_arguments
    def get_file(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        timeout: Seconds | None = None,
    ) -> ObjectInfo:
        """Write an object to a file. You never see a part of the object there.

        The call writes to a hidden file in the same directory. It gives that file its
        name after the digest is checked. It replaces an existing file, and keeps its
        permissions. A symbolic link stays, and the file that it names is replaced. If the
        call raises, it removes the hidden file.

        Args:
            name: The name of the object.
            path: The file.
            progress: Called on this thread as `progress(done, total)` after each chunk.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The info of the object.

        Raises:
            OSError: The file cannot be written.
            ObjectNotFoundError: There is no such object, or it was deleted.
            DigestMismatchError: The bytes are not those that were put.
            ObjectIncompleteError: Chunks are missing in the store.
            ObjectReadError: The object has more bytes than its info states.
            InvalidObjectInfoError: The info of the object cannot be read.
            LinkError: It is a link to a store.

        Example:
            ```python
            import pathlib, tempfile

            store.put("report.pdf", b"PDF")
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "report.pdf")
                store.get_file("report.pdf", path)
                print(path.stat().st_size)
            ```
        """
        check_object(name)
        target = Path(os.path.realpath(path))  # a symbolic link stays
        if target.is_dir():
            raise IsADirectoryError(f"a directory: {path}; name a file in it")
        if target.exists() and not target.is_file():
            # A rename would replace a device or a pipe with a file.
            raise FileExistsError(f"not a file: {path}; name a file that is one")

        def read(by_leader: bool) -> ObjectInfo:
            part = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.part")
            try:
                with _new_file(part, like=target) as file:
                    info = self._copy(name, file, progress, timeout, by_leader)
                part.replace(target)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            return info

        return _retry_read(read)

    def _copy(
        self,
        name: str,
        target: Any,
        progress: Progress | None,
        timeout: Seconds | None,
        by_leader: bool,
    ) -> ObjectInfo:
        check_optional_callable(progress, "progress")
        with self._reader(name, timeout, WINDOW_BYTES, by_leader) as reader:
            size = reader.info.size
            for part in reader.iter_chunks():
                while len(part):
                    part = part[target.write(part) :]
                if progress is not None:
                    progress(reader.tell(), size)
            return reader.info

    @overload
    def open(
        self, name: str, mode: Literal["rb"] = "rb", *, timeout: Seconds | None = None
    ) -> ObjectReader: ...

    @overload
    def open(
        self,
        name: str,
        mode: Literal["wb", "xb"],
        *,
        description: str | None = None,
        headers: HeadersLike | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        timeout: Seconds | None = None,
    ) -> ObjectWriter: ...

    def open(
        self,
        name: str,
        mode: Literal["rb", "wb", "xb"] = "rb",
        *,
        description: str | None = None,
        headers: HeadersLike | None = None,
        metadata: Mapping[str, str] | None = None,
        chunk_size: int | None = None,
        timeout: Seconds | None = None,
    ) -> ObjectReader | ObjectWriter:
        """Open an object as a binary file, to read it or to put it.

        jsync checks the digest if you read all of the file in order. If you seek, it
        cannot. The bytes that you write become the object when you close the file.

        Args:
            name: The name of the object. A link is followed for reading.
            mode: `rb` to read, `wb` to write, `xb` to write an object that does not exist.
                With `xb`, exactly one of several programs succeeds.
            description: A human-readable description, of `wb` and `xb`.
            headers: Headers of the object, of `wb` and `xb`.
            metadata: Your own notes on the object, of `wb` and `xb`.
            chunk_size: Bytes of each message, of `wb` and `xb`. Default: 128 KiB.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            An `ObjectReader` or an `ObjectWriter`.

        Raises:
            ObjectNotFoundError: There is no such object to read, or it was deleted.
            ObjectExistsError: There is an object of that name, in mode `xb`. The `close` of
                the file raises it, too.
            InvalidObjectNameError: No object may have that name. Nothing is sent.
            InvalidObjectInfoError: The info of the object to read cannot be read.
            LinkError: It is a link to a store.

        Example:
            ```python
            with store.open("report.pdf", "wb") as file:
                file.write(b"PDF")
            with store.open("report.pdf") as file:
                print(file.read())
            ```
        """
        if mode in ("wb", "xb"):
            upload = self._start_upload(
                *(name, description, headers, metadata, chunk_size),
                *(None, None, timeout),
                exclusive=mode == "xb",
            )
            return ObjectWriter(upload, name)
        if mode != "rb":
            raise ConfigError(f"mode must be rb, wb or xb, not {mode!r}")
        if (description, headers, metadata, chunk_size) != (None, None, None, None):
            raise ConfigError(
                "description, headers, metadata and chunk_size are for modes wb and xb"
            )
        return self._reader(name, timeout, None, False)

    def _reader(
        self, name: str, timeout: Seconds | None, ahead: int | None, by_leader: bool
    ) -> ObjectReader:
        seconds = self._objects.api.seconds(timeout)
        objects = self._objects
        info = objects.info(name, seconds, by_leader=by_leader)
        followed = 0
        while info.link is not None:
            link = info.link
            if link.name is None:
                raise LinkError(
                    f"{name!r} is a link to the store {link.bucket!r}; open that with "
                    "object_store"
                )
            followed += 1
            if followed > MAX_LINKS:
                raise LinkError(f"{name!r} is a link that leads to no object")
            try:
                if link.bucket != objects.layout.bucket:
                    objects = open_repository(objects.api, link.bucket, seconds)
                info = objects.info(link.name, seconds, by_leader=by_leader)
            except (InvalidBucketNameError, InvalidObjectNameError) as error:
                raise LinkError(
                    f"{name!r} is a link that leads nowhere: {error}"
                ) from error
        return ObjectReader(objects, info, seconds, ahead)

    # Infos ----------------------------------------------------------------------------

    @explain_arguments
    def info(
        self,
        name: str,
        *,
        include_deleted: bool = False,
        timeout: Seconds | None = None,
    ) -> ObjectInfo:
        """Get the info of an object: its size, digest, headers and metadata.

        A link is not followed. In a cluster, the answer may be the former info for a moment
        after your own put.

        Args:
            name: The name of the object.
            include_deleted: Return the info of a deleted object, too.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The info.

        Raises:
            ObjectNotFoundError: There is no such object, or it was deleted.
            InvalidObjectInfoError: The info of the object cannot be read.
            BucketNotFoundError: The store was deleted.
            InvalidObjectNameError: No object may have that name. Nothing is sent.
            ConfigError: `include_deleted` is not a bool. Nothing is sent.

        Example:
            ```python
            store.put("report.pdf", b"PDF")
            print(store.info("report.pdf").size)
            ```
        """
        check_bool(include_deleted, "include_deleted")
        seconds = self._objects.api.seconds(timeout)
        return self._objects.info(name, seconds, include_deleted=include_deleted)

    @explain_arguments
    def list(
        self, *, include_deleted: bool = False, timeout: Seconds | None = None
    ) -> Iterator[ObjectInfo]:
        """Iterate over the infos of all objects, the oldest first, each object once.

        Messages of the store that are not valid infos are passed over. `on_error` of the
        connection gets a `InvalidObjectInfoError` for each of them, by default the log.

        Args:
            include_deleted: Include the infos of deleted objects.
            timeout: Seconds to wait until the server begins. Default: the context's.

        Returns:
            An iterator over the infos.

        Raises:
            BucketNotFoundError: The store was deleted.
            TimeoutError: The servers did not begin in time, or were then silent for a minute.

        Example:
            ```python
            store.put("report.pdf", b"PDF")
            for info in store.list():
                print(info.name, info.size)
            ```
        """
        check_bool(include_deleted, "include_deleted")
        seconds = self._objects.api.seconds(timeout)
        objects = self._objects
        infos = objects.infos(
            seconds,
            deleted=include_deleted,
            on_bad=lambda error, _: objects.api.session.callbacks.report(error),
        )
        return _without_repetitions(infos)

    @explain_arguments
    def watch(
        self,
        *,
        updates_only: bool = False,
        ignore_deletes: bool = False,
        callback: Callable[[ObjectInfo], object] | None = None,
        on_error: Callable[[Exception], object] | None = None,
        timeout: Seconds | None = None,
    ) -> ObjectWatch:
        """Watch the store for changes.

        First come the infos of the existing objects. Then comes each change, once and in
        order. A message that is not a valid info is skipped, and `on_error` gets an
        `InvalidObjectInfoError`.

        Args:
            updates_only: Begin with the next change.
            ignore_deletes: Leave out deleted objects.
            callback: Called with each info, one at a time, on a thread of the
                connection's callback pool: see `callback_threads` of `jsync.connect`. If
                it raises, `on_error` gets the error, and the watch continues. Default: you
                iterate.
            on_error: Called with each error that does not end the watch. Default: that of
                the connection, or the log.
            timeout: Seconds to wait until the server begins. Default: the context's.

        Returns:
            The watch.

        Raises:
            BucketNotFoundError: The store was deleted.

        Example:
            ```python
            with store.watch() as changes:
                store.put("report.pdf", b"PDF")
                print(changes.next(timeout=5).name)
            ```
        """
        check_optional_callable(callback, "callback")
        objects = self._objects
        layout = objects.layout.with_on_bad(
            lambda error, _: objects.api.session.callbacks.report_to(on_error, error)
        )
        return open_watch(
            *(objects.api, layout, ()),
            lambda changes: ObjectWatch(changes, callback),
            updates_only=check_bool(updates_only, "updates_only"),
            ignore_deletes=check_bool(ignore_deletes, "ignore_deletes"),
            on_error=on_error,
            timeout=objects.api.seconds(timeout),
        )

    # Changing -------------------------------------------------------------------------

    @explain_arguments
    def update_meta(
        self,
        name: str,
        *,
        new_name: str | None = None,
        description: str | UnsetType | None = UNSET,
        headers: HeadersLike | UnsetType | None = UNSET,
        metadata: Mapping[str, str] | UnsetType | None = UNSET,
        timeout: Seconds | None = None,
    ) -> ObjectInfo:
        """Change the info of an object or a link, or rename it.

        Arguments that you omit change nothing. None removes the value. The bytes of the
        object stay where they are. A rename that was cut short may leave both names. Call
        `update_meta` again to complete it.

        Args:
            name: The name of the object.
            new_name: The new name. Default: the same name.
            description: A human-readable description.
            headers: Headers of the object.
            metadata: Your own notes on the object.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The changed info.

        Raises:
            ObjectNotFoundError: There is no such object, or it was deleted or renamed.
            ObjectExistsError: There is an object of the new name. Nothing is changed.
            InvalidObjectInfoError: The info of the object cannot be read.
            AmbiguousPutError: No answer came. The info may have been changed.

        Example:
            ```python
            store.put("draft.pdf", b"PDF")
            store.update_meta("draft.pdf", new_name="report.pdf")
            print(store.info("report.pdf").size)
            ```
        """
        objects = self._objects
        check_object(name)
        seconds = objects.api.seconds(timeout)
        changes: dict[str, Any] = {}
        if description is not UNSET:
            changes["description"] = check_description(description)
        if headers is not UNSET:
            changes["headers"] = check_headers(headers)
        if metadata is not UNSET:
            changes["metadata"] = check_metadata(metadata)
        target = name if new_name is None else check_object(new_name)
        if target != name:
            return Rename(objects, name, target, changes, seconds).run()

        deadline = monotonic() + seconds

        def make() -> tuple[ObjectInfo, int]:
            current = claim(objects, name, seconds, deadline)
            if current is None or isinstance(current, UnreadableInfo):
                current = objects.last_or_raise(name, seconds)
            if current.deleted:
                raise objects.layout.object_not_found_error(name, deleted=True)
            changes.update(renamed_to=None, renamed_from=None)
            return msgspec.structs.replace(current, **changes), current.revision

        return objects.compare_and_set(make, seconds)

    def delete(
        self, name: str, *, last: int | None = None, timeout: Seconds | None = None
    ) -> ObjectInfo:
        """Delete an object or a link. The object that a link leads to stays.

        Args:
            name: The name of the object.
            last: The expected `revision` of the object. Default: any.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The info of the deleted object. If it was deleted before, nothing is changed.

        Raises:
            ObjectNotFoundError: There never was such an object.
            WrongRevisionError: The object is at another revision than `last`. Nothing is
                changed.
            StreamSealedError: The store is sealed.
            ReadOnlyBucketError: The store is a mirror. Nothing is sent.
            AmbiguousPutError: No answer came. The object may have been deleted.

        Example:
            ```python
            store.put("report.pdf", b"PDF")
            store.delete("report.pdf")
            ```
        """
        objects = self._objects
        check_object(name)
        seconds = objects.api.seconds(timeout)
        if last is not None:
            check_int(last, "last", 1)

        deadline = monotonic() + seconds
        current = claim(objects, name, seconds, deadline)
        if current is not None and current.deleted:
            return current
        known = [current]

        def make() -> tuple[ObjectInfo, int]:
            nonlocal current
            if known:
                current = known.pop()
            else:
                current = claim(objects, name, seconds, deadline)
            if current is None:
                raise objects.layout.object_not_found_error(name, deleted=False)
            if last not in (None, current.revision):
                raise WrongRevisionError(
                    f"{name!r} in store {self.bucket!r} is at revision "
                    f"{current.revision}, not {last}",
                    revision=current.revision,
                )
            return deleted_info(current), current.revision

        gone = objects.compare_and_set(make, seconds)
        if current is not None:
            objects.purge_chunks(current, seconds)
        return gone

    # Links ----------------------------------------------------------------------------

    def add_link(
        self, name: str, target: ObjectInfo | str, *, timeout: Seconds | None = None
    ) -> ObjectInfo:
        """Link a name to an object of this store or of another one.

        The call replaces an existing link of that name.

        Args:
            name: The name of the link.
            target: The info of the object. If it is in this store, its name will do.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The info of the link.

        Raises:
            ObjectNotFoundError: There is no such object in this store.
            LinkError: The object is a link itself, or was deleted.
            ObjectExistsError: There is an object of that name. Nothing is changed.

        Example:
            ```python
            info = store.put("report-2026.pdf", b"PDF")
            store.add_link("report.pdf", info)
            print(store.get("report.pdf"))
            ```
        """
        check_object(name)
        seconds = self._objects.api.seconds(timeout)
        if isinstance(target, str):
            target = self._objects.info(target, seconds)
        if not isinstance(target, ObjectInfo):
            raise ConfigError(
                f"target: the info of an object or a name, not {target!r}"
            )
        if target.is_link:
            raise LinkError(f"{target.name!r} is a link; link to its object")
        if target.deleted:
            raise LinkError(
                f"object was deleted: {target.name!r}; it cannot be linked to"
            )
        link = ObjectLink(bucket=target.bucket, name=target.name)
        return self._put_link(name, link, seconds)

    def add_bucket_link(
        self, name: str, store: ObjectStore | str, *, timeout: Seconds | None = None
    ) -> ObjectInfo:
        """Link a name to a whole store.

        The call replaces an existing link of that name. `info(name).link` is the link.

        Args:
            name: The name of the link.
            store: The other store, or its name.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The info of the link.

        Raises:
            BucketNotFoundError: There is no store of that name.
            ObjectExistsError: There is an object of that name. Nothing is changed.
        """
        check_object(name)
        seconds = self._objects.api.seconds(timeout)
        if isinstance(store, str):
            store = ObjectStore(open_repository(self._objects.api, store, seconds))
        if not isinstance(store, ObjectStore):
            raise ConfigError(f"store: an object store or its name, not {store!r}")
        return self._put_link(name, ObjectLink(bucket=store.bucket), seconds)

    def _put_link(self, name: str, link: ObjectLink, seconds: float) -> ObjectInfo:
        info = ObjectInfo(
            name=name,
            bucket=self.bucket,
            nuid=new_nuid(),
            modified=datetime.now(UTC),
            link=link,
        )

        def make() -> tuple[ObjectInfo, int]:
            existing = self._objects.occupied(name, seconds)
            if existing is None:
                return info, 0
            if not existing.deleted and not existing.is_link:
                raise object_exists(self._objects, name)
            token = existing.subject_token
            return msgspec.structs.replace(info, subject_token=token), existing.revision

        return self._objects.compare_and_set(make, seconds)

    # The store ------------------------------------------------------------------------

    def check(
        self,
        *,
        older_than: Seconds = ORPHAN_SECONDS,
        remove: bool = True,
        timeout: Seconds | None = None,
    ) -> StoreCheck:
        """Find the remains of crashes in the store, and remove them.

        A put, an overwrite, a delete or a rename that was cut short may leave orphaned
        chunks, or a former name. No other client finds them. Others may use the store
        at the same time, and you may call `check` from several programs at once. It lists the store
        twice, and removes what both listings show to be unused.

        Args:
            older_than: Seconds. Orphaned chunks that are younger stay, since a put may
                be on its way. Choose more than the longest pause of a put, in any client.
                Use less than 1 only while nothing is put. Default: an hour.
            remove: False reports the remains, and removes nothing.
            timeout: Seconds to wait for each answer. Default: the context's.

        Returns:
            The remains. Incomplete and unreadable objects are listed, and never removed.

        Raises:
            BucketNotFoundError: The store was deleted.

        Example:
            ```python
            store.put("report.pdf", b"PDF")
            print(store.check())
            ```
        """
        age = check_seconds(older_than, "older_than")
        if not 0 <= age < 1e9:
            raise ConfigError(f"older_than has to be 0 or more, not {older_than!r}")
        seconds = self._objects.api.seconds(timeout)
        try:
            return check_store(
                self._objects, age, check_bool(remove, "remove"), seconds
            )
        except StreamNotFoundError as error:
            raise self._objects.layout.not_found_error() from error

    def seal(self, *, timeout: Seconds | None = None) -> ObjectStoreStatus:
        """Seal the store permanently. It cannot be changed afterwards.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The status of the sealed store.

        Raises:
            BucketNotFoundError: The store was deleted.
        """
        api, layout = self._objects.api, self._objects.layout
        fields = {"name": layout.stream, "sealed": True}
        try:
            try:
                info = update_stream(api, None, fields, timeout)
            except InvalidStreamConfigError:
                # Another client may have sealed it since its configuration was read.
                info = stream_info(api, layout.stream, timeout=timeout)
                if not info.config.sealed:
                    raise
        except StreamNotFoundError as error:
            raise layout.not_found_error() from error
        return ObjectStoreStatus(info)

    def status(self, *, timeout: Seconds | None = None) -> ObjectStoreStatus:
        """Get the size and the configuration of the store.

        Args:
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The status.

        Raises:
            BucketNotFoundError: The store was deleted.
        """
        layout = self._objects.layout
        try:
            info = stream_info(self._objects.api, layout.stream, timeout=timeout)
        except StreamNotFoundError as error:
            raise layout.not_found_error() from error
        return ObjectStoreStatus(info)

    def __repr__(self) -> str:
        return f"<ObjectStore {self.bucket!r}>"


def _retry_read(read: Callable[[bool], Read]) -> Read:
    """Call `read` again, up to `RETRIES` times, while the object is replaced during the read.

    A server may be behind for a while, so only the first attempt may use the info of any
    server.
    """
    for attempt in range(RETRIES):
        with contextlib.suppress(ObjectChangedError):
            return read(attempt > 0)
    return read(True)


def _without_repetitions(infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
    """Pass over an object that was replaced while the store was listed, and came before."""
    names: set[str] = set()
    for info in infos:
        name = info.subject_token or info.name
        if name not in names:
            names.add(name)
            yield info


def _new_file(path: Path, *, like: Path) -> BinaryIO:
    """Create a file that is to replace another one, with the same permissions."""
    try:
        mode = like.stat().st_mode & 0o777
    except FileNotFoundError:
        return path.open("xb", buffering=0)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        path.chmod(mode)
        return os.fdopen(descriptor, "wb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def _size_of(data: object) -> int | None:
    """Return the number of bytes of the content. None: it is not known."""
    if isinstance(data, bytes | bytearray | memoryview):
        return memoryview(data).nbytes
    file: Any = data
    try:
        size: int = os.fstat(file.fileno()).st_size - file.tell()
    except (AttributeError, OSError, ValueError):
        return None
    return size


def _blocks(data: Any, size: int) -> Iterator[bytes | bytearray | memoryview]:
    """Iterate over the content that a user puts, in parts."""
    if isinstance(data, bytes | bytearray | memoryview):
        yield data
        return
    read = getattr(data, "read", None)
    blocks = data
    if read is not None:
        blocks = iter(lambda: read(size), b"")
    elif isinstance(data, str | Mapping) or not isinstance(data, Iterable):
        raise ConfigError(
            f"data has to be bytes, a binary file or an iterable of bytes, not a "
            f"{type(data).__name__}; encode text first"
        )
    for block in blocks:
        if not isinstance(block, bytes | bytearray | memoryview):
            raise ConfigError(
                f"data has to give bytes, not {type(block).__name__}; open files in "
                "binary mode"
            )
        yield block
