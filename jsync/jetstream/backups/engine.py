"""The backup of a stream: its chunks in order, and its files. Pure.

The `nats` command has the same files: an archive, which only servers can read, and
`backup.json` with the configuration and the state. `backup.json` is written last, so a
backup without it is not whole.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from ...errors import BackupError, ConfigError
from ...models import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..._fast import Msg

META: Final = "backup.json"
ARCHIVE: Final = "stream.arc.s2"
OLD_ARCHIVE: Final = "stream.tar.s2"
"""The archive of servers before 2.15."""
CHUNK: Final = 128 * 1024
UNFINISHED: Final = "jsync.restore"
"""The key in the metadata of a stream while its messages are being restored."""
_FIRST_OF_TAR: Final = b"meta.inf"
_HEAD: Final = 64
"""Bytes at the start of an archive that contain the name of its first file."""
_FRAME_HEADER: Final = 4
_STREAM_START: Final = 0xFF


def archive_name(archive: IO[bytes]) -> str:
    """Choose the name of an archive by its format.

    The leader of the stream makes the archive, and may be older than the server of the
    connection. The name of the first file in a tar is readable despite the compression.
    """
    archive.seek(0)
    return OLD_ARCHIVE if _FIRST_OF_TAR in archive.read(_HEAD) else ARCHIVE


class ArchiveChunks:
    """The chunks of an archive in their order. Servers number all but the last one."""

    def __init__(self) -> None:
        self._last = 0
        self.ended = False

    def take(self, msg: Msg) -> bytes:
        """Return the bytes of a chunk, empty at the end.

        Raises `BackupError` if a chunk is missing, or if the server has ended the backup.
        """
        if not msg.data:
            status = msg.status
            if status is not None and status != 204:
                raise BackupError(
                    f"the server ended the backup: {status} {msg.status_text}"
                )
            self.ended = True
            return b""
        if msg.reply:
            number = msg.reply.rpartition(".")[2]
            if number.isdecimal():
                if int(number) != self._last + 1:
                    raise BackupError(
                        f"chunk {self._last + 1} of the backup is missing: begin again"
                    )
                self._last += 1
        return msg.data


def is_complete(archive: IO[bytes], size: int) -> bool:
    """Return whether an archive of `size` bytes consists of whole frames of its compression.

    A frame has a type, and its length in three bytes (S2, an extension of Snappy).
    """
    at = 0
    while at < size:
        archive.seek(at)
        header = archive.read(_FRAME_HEADER)
        if len(header) < _FRAME_HEADER or (at == 0 and header[0] != _STREAM_START):
            return False
        at += _FRAME_HEADER + int.from_bytes(header[1:], "little")
    return at == size > 0


def unfinished(config: Mapping[str, Any], mark: str) -> dict[str, Any]:
    """Make the configuration of a stream for the time in which its messages are restored.

    Only messages of the backup can reach the stream, because it has a private subject and no
    sources. A mirror cannot get its origin later, so it keeps it. The mark distinguishes the
    stream from one that another client has created.
    """
    metadata = {**(config.get("metadata") or {}), UNFINISHED: mark}
    if config.get("mirror"):
        return {**config, "metadata": metadata}
    held_back = {**config, "subjects": [f"$JSYNC.RESTORE.{mark}"], "metadata": metadata}
    held_back.pop("sources", None)
    return held_back


def subjects_of(config: Mapping[str, Any]) -> list[str]:
    """Return the subjects that the stream will have, including those that servers fill in."""
    subjects = config.get("subjects") or []
    if not subjects and not config.get("mirror") and not config.get("sources"):
        return [str(config.get("name", ""))]
    return [subject for subject in subjects if isinstance(subject, str)]


class Manifest(msgspec.Struct):
    """The content of `backup.json`."""

    config: dict[str, Any]
    state: dict[str, Any]
    size: int | None = None
    """The bytes of the archive. None if the `nats` command has made the backup."""
    sha256: str | None = None

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return str(self.config.get("name", ""))

    def text(self) -> bytes:
        """Format the content for the file."""
        document = {
            "config": self.config,
            "state": self.state,
            "archive": {"size": self.size, "sha256": self.sha256},
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2)


def read_manifest(text: bytes, where: str) -> Manifest:
    """Read `backup.json`. Raises `ConfigError` if the text is not that of a backup."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
        manifest = Manifest(
            config=msgspec.convert(found.get("config"), dict[str, Any]),
            state=msgspec.convert(found.get("state"), dict[str, Any]),
        )
        archive = found.get("archive")
        if isinstance(archive, dict):
            manifest.size = msgspec.convert(archive.get("size"), int | None)
            manifest.sha256 = msgspec.convert(archive.get("sha256"), str | None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{where} is not the description of a backup") from error
    try:
        check_name(manifest.stream, "stream")
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return manifest
