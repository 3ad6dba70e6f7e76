"""Streams to files, and back."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...checks import callback, seconds
from ...core.requests import request
from ...core.subscription import subscribe
from ...errors import (
    APIError,
    BackupError,
    ConfigError,
    Error,
    NoRespondersError,
    TimeoutError as LateError,
)
from ...models import StreamInfo
from ...models.info import StreamState
from ...models.name import check_name
from ..management import delete_stream
from ..replies import part_of, read_reply
from ..versions import MEMORY_BACKUP, RESTORE_RENAMED, line_of_server, unsupported
from .engine import (
    ARCHIVE,
    CHUNK,
    META,
    OLD_ARCHIVE,
    Chunks,
    Manifest,
    archive_name,
    read_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from ...checks import Seconds
    from ..api import API

    Progress = Callable[[int, int], object]

CHUNK_SECONDS = 30.0
"""How long one chunk may take."""
RESTORE_SECONDS = 3600.0
"""How long a server may take once it has the whole archive."""


class StreamBackup(msgspec.Struct, frozen=True):
    """A backup of a stream, which `Stream.backup` has made."""

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
    """What `Stream.backup` does."""
    callback(on_progress, "on_progress")
    timeout = seconds(timeout, "timeout")
    where = Path(directory)
    if (where / META).exists():
        raise ConfigError(f"{where} already holds a backup: choose another directory")
    where.mkdir(parents=True, exist_ok=True)
    name = archive_name(line_of_server(api.session.info))
    partial = where / f"{name}.partial"
    inbox = f"{api.session.options.inbox_prefix}.{os.urandom(11).hex()}"
    wanted: dict[str, Any] = {"deliver_subject": inbox, "chunk_size": CHUNK}
    if not consumers:
        wanted["no_consumers"] = True
    if check:
        wanted["jsck"] = True
    try:
        # Before the request: a server waits two seconds for a subscription.
        with subscribe(api.owner, inbox) as sub, partial.open("wb") as file:
            reply = _ask(api, f"STREAM.SNAPSHOT.{stream}", wanted, timeout)
            config = part_of(reply, "config", dict[str, Any](), dict[str, Any])
            state = part_of(reply, "state", dict[str, Any](), dict[str, Any])
            expected = StreamState.from_wire(state)
            digest, size, chunks = hashlib.sha256(), 0, Chunks()
            while not chunks.ended:
                msg = sub.next(timeout)
                data = chunks.take(msg)
                if msg.reply:
                    msg.respond(b"")
                file.write(data)
                digest.update(data)
                size += len(data)
                if on_progress is not None:
                    on_progress(size, expected.bytes)
            file.flush()
            os.fsync(file.fileno())
        manifest = Manifest(config, state, size, digest.hexdigest())
        for old in (ARCHIVE, OLD_ARCHIVE):
            (where / old).unlink(missing_ok=True)
        partial.replace(where / name)
        _replace(where / META, manifest.text())
    finally:
        partial.unlink(missing_ok=True)
    return StreamBackup(where, manifest.stream, expected, size)


def _ask(
    api: API, subject: str, wanted: dict[str, Any], timeout: float
) -> dict[str, Any]:
    try:
        return api.request(subject, wanted, timeout=timeout)
    except APIError as error:
        if not error.description.endswith("no impl"):
            raise
        version = api.session.info.version
        raise unsupported(MEMORY_BACKUP, version, "nothing was written") from error


def _replace(path: Path, data: bytes) -> None:
    new = path.with_name(f"{path.name}.partial")
    new.write_bytes(data)
    new.replace(path)


def restore(
    api: API,
    directory: str | PathLike[str],
    *,
    name: str | None,
    config: Callable[[dict[str, Any]], dict[str, Any]] | None,
    on_progress: Progress | None,
    timeout: Seconds,
) -> StreamInfo:
    """What `JetStream.restore_stream` does."""
    callback(on_progress, "on_progress")
    timeout = seconds(timeout, "timeout")
    where = Path(directory)
    try:
        manifest = read_manifest((where / META).read_bytes(), str(where / META))
    except FileNotFoundError:
        raise ConfigError(
            f"{where} holds no whole backup: there is no {META} in it"
        ) from None
    archive = _archive(where)
    _verify(archive, manifest)
    wanted = dict(manifest.config)
    if name is not None:
        check_name(name, "stream")
        wanted["name"] = name
    if config is not None:
        wanted = config(wanted)
    stream = str(wanted.get("name", ""))
    if stream != manifest.stream:
        if archive.name == OLD_ARCHIVE:
            raise ConfigError(
                f"{where} is a backup by a nats-server before 2.15: stream "
                f"{manifest.stream} keeps its name, so it cannot become {stream!r}"
            )
        api.require(RESTORE_RENAMED)
    asked = f"STREAM.RESTORE.{stream}"
    reply = api.request(
        asked, {"config": wanted, "state": manifest.state}, timeout=timeout
    )
    subject = part_of(reply, "deliver_subject", "", str)
    total, sent = archive.stat().st_size, 0
    size = min(CHUNK, api.session.outbox.max_payload or CHUNK)
    try:
        with archive.open("rb") as file:
            while chunk := file.read(size):
                answer = _send(api, subject, chunk, timeout)
                if answer:
                    read_reply(answer, asked)
                sent += len(chunk)
                if on_progress is not None:
                    on_progress(sent, total)
        answer = _send(api, subject, b"", RESTORE_SECONDS)
        return StreamInfo.from_wire(read_reply(answer, asked))
    except APIError:
        # The server keeps the messages before the damage, as if they were the stream.
        with contextlib.suppress(Error):
            delete_stream(api, stream, timeout)
        raise


def _send(api: API, subject: str, data: bytes, timeout: float) -> bytes:
    try:
        return request(api.session, subject, data, timeout).data
    except NoRespondersError as nobody:
        raise BackupError("the server gave up the restore: begin again") from nobody
    except LateError as late:
        raise LateError(
            f"the server did not take the backup within {timeout} s"
        ) from late


def _archive(where: Path) -> Path:
    found = [where / name for name in (ARCHIVE, OLD_ARCHIVE) if (where / name).exists()]
    if len(found) != 1:
        names = f"{ARCHIVE} and {OLD_ARCHIVE}"
        words = f"both {names}" if found else f"neither of {names}"
        raise ConfigError(f"{where} holds {words}")
    return found[0]


def _verify(archive: Path, manifest: Manifest) -> None:
    """Compare the archive with the description. The `nats` command writes no digest."""
    if manifest.sha256 is None:
        return
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != manifest.sha256:
        size = archive.stat().st_size
        raise BackupError(
            f"{archive} is damaged: it has {size} bytes of {manifest.size}, or other ones"
        )
