"""Back up a stream to files."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from time import monotonic
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from ... import errors
from ...core.subscription import subscribe
from ...errors import APIError, BackupError, ConfigError, Error, StreamNotFoundError
from ...models.info import StreamState
from ...validation import check_optional_callable, check_seconds, format_seconds
from ..features import MEMORY_BACKUP, unsupported
from ..management import stream_info
from ..replies import get_field
from .engine import (
    ARCHIVE,
    CHUNK,
    META,
    OLD_ARCHIVE,
    ArchiveChunks,
    Manifest,
    archive_name,
    is_complete,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from ..._fast import Msg
    from ...core.subscription import Subscription
    from ...validation import Seconds
    from ..api import API

    Progress = Callable[[int, int], object]

CHUNK_SECONDS = 30.0
"""The most seconds to wait for a chunk."""
CHECK_SECONDS: Final = 2.0
"""Seconds without a chunk until we check that the stream still exists."""
_PENDING_BYTES: Final = 1 << 26
"""The buffer, far larger than the data that a server sends before it gets an ack."""
_RETRY_HINT: Final = "begin again"


class StreamBackup(msgspec.Struct, frozen=True):
    """A backup of a stream, which `Stream.backup` has made.

    Example:
        ```python
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            backup = stream.backup(f"{directory}/ORDERS")
            print(backup.stream, backup.state.messages)
        ```
    """

    directory: Path
    stream: str
    """The name of the stream."""
    state: StreamState
    """The state of the stream at the backup."""
    size: int
    """The bytes of the archive."""


def backup(
    api: API,
    stream: str,
    directory: str | PathLike[str],
    *,
    consumers: bool,
    check: bool,
    on_progress: Progress | None,
    timeout: Seconds,
) -> StreamBackup:
    """Do the work of `Stream.backup`."""
    check_optional_callable(on_progress, "on_progress")
    timeout = check_seconds(timeout, "timeout")
    where = Path(directory)
    check_unused(where)
    where.mkdir(parents=True, exist_ok=True)
    partial = where / f"{ARCHIVE}.partial"
    inbox = f"{api.session.options.inbox_prefix}.{os.urandom(11).hex()}"
    request: dict[str, Any] = {"deliver_subject": inbox, "chunk_size": CHUNK}
    if not consumers:
        request["no_consumers"] = True
    if check:
        request["jsck"] = True
    with _new_file(partial) as file:
        # Subscribe before the request, because a server waits two seconds for it.
        with subscribe(api.owner, inbox, max_pending_bytes=_PENDING_BYTES) as sub:
            reconnects = api.session.reconnects
            reply = _request_snapshot(
                api, f"STREAM.SNAPSHOT.{stream}", request, timeout
            )
            config = get_field(reply, "config", dict[str, Any](), dict[str, Any])
            state = get_field(reply, "state", dict[str, Any](), dict[str, Any])
            if config.get("name") != stream:
                raise BackupError(f"the server sent another stream than {stream}")
            expected = StreamState.from_wire(state)
            digest, size, chunks = hashlib.sha256(), 0, ArchiveChunks()
            while not chunks.ended:
                msg = _next(sub, api, stream, expected, reconnects, timeout)
                data = chunks.take(msg)
                if msg.reply:
                    msg.respond(b"")
                file.write(data)
                digest.update(data)
                size += len(data)
                if on_progress is not None:
                    on_progress(size, expected.bytes)
        if not is_complete(file, size):
            raise BackupError(
                f"the archive ends too early, at {size} bytes: {_RETRY_HINT}"
            )
        manifest = Manifest(config, state, size, digest.hexdigest())
        check_unused(where)  # another program may have written one since
        _publish(file, partial, where / archive_name(file))
    meta = where / f"{META}.partial"
    with _new_file(meta) as file:
        file.write(manifest.text())
        _publish(file, meta, where / META)
    return StreamBackup(where, stream, expected, size)


def check_unused(where: Path) -> None:
    """Raise `ConfigError` for a directory that holds a backup, or a part of one."""
    for name in (META, ARCHIVE, OLD_ARCHIVE):
        if (where / name).exists():
            what = "a backup" if name == META else f"a part of a backup, {name}"
            raise ConfigError(f"{where} already holds {what}: choose another directory")


@contextlib.contextmanager
def _new_file(partial: Path) -> Iterator[IO[bytes]]:
    """Create a file that is removed at the end, if `_publish` has not renamed it.

    Errors of the system name the file, such as of a full disk. Raises `ConfigError` if
    the file exists, because it belongs to another backup.
    """
    try:
        file = partial.open("x+b")
    except FileExistsError:
        raise ConfigError(
            f"{partial} exists: another backup is writing to this directory, or was killed. "
            "Choose another directory, or remove the file if no backup is running"
        ) from None
    try:
        with file:
            yield file
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(partial)
        raise
    finally:
        partial.unlink(missing_ok=True)


def _publish(file: IO[bytes], partial: Path, path: Path) -> None:
    """Give a complete file its name, once the disk has it."""
    file.flush()
    os.fsync(file.fileno())
    file.close()  # Windows renames no open file
    partial.replace(path)


def _next(
    sub: Subscription,
    api: API,
    stream: str,
    expected: StreamState,
    reconnects: int,
    timeout: float,
) -> Msg:
    msg = None
    deadline = monotonic() + timeout
    while msg is None:
        left = deadline - monotonic()
        try:
            msg = sub.next(max(0.0, min(left, CHECK_SECONDS)))
        except errors.TimeoutError as late:
            if left <= CHECK_SECONDS:
                raise errors.TimeoutError(
                    f"the server sent no chunk of the backup within {format_seconds(timeout)}: {_RETRY_HINT}"
                ) from late
            _check_exists(api, stream, expected)
    # Chunks can be lost with a connection, and the server does not number the last one.
    if api.session.reconnects != reconnects:
        raise BackupError(f"the connection was lost during the backup: {_RETRY_HINT}")
    return msg


def _check_exists(api: API, stream: str, expected: StreamState) -> None:
    """Raise `BackupError` if the stream is gone, because no chunk of it comes any more.

    Only another stream of the name can be at a lower sequence.
    """
    deleted = BackupError(f"stream {stream!r} was deleted during the backup")
    try:
        info = stream_info(api, stream)
    except StreamNotFoundError as error:
        raise deleted from error
    except Error:
        return  # unknown, so a chunk may still come
    if info.state.last_seq < expected.last_seq:
        raise deleted


def _request_snapshot(
    api: API, subject: str, request: dict[str, Any], timeout: float
) -> dict[str, Any]:
    try:
        return api.request(subject, request, timeout=timeout)
    except APIError as error:
        if not error.description.endswith("no impl"):
            raise
        version = api.session.info.version
        raise unsupported(MEMORY_BACKUP, version, "nothing was written") from error
