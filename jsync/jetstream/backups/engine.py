"""The backup of a stream: its chunks in order, and the files that hold it. Pure.

The files are those of the `nats` command: an archive, which only servers read, and
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
"""Bytes of an archive that have the name of its first file."""
_FRAME_HEADER: Final = 4
_STREAM_START: Final = 0xFF


def archive_name(archive: IO[bytes]) -> str:
    """The name of an archive, by its format.

    The leader of the stream makes the archive, and may be older than the server of the
    connection. The compression leaves the name of the first file of a tar readable.
    """
    archive.seek(0)
    return OLD_ARCHIVE if _FIRST_OF_TAR in archive.read(_HEAD) else ARCHIVE


class Chunks:
    """The chunks of an archive as they come. Servers number all but the last."""

    def __init__(self) -> None:
        self._last = 0
        self.ended = False

    def take(self, msg: Msg) -> bytes:
        """The bytes of a message; empty at the end. Raises `BackupError`."""
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


def is_whole(archive: IO[bytes], size: int) -> bool:
    """Whether an archive of `size` bytes begins and ends with a frame of its compression.

    Frames have a type, and their length in three bytes (S2, an extension of Snappy).
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
    """The configuration of a stream while its messages are being restored.

    No message but those of the backup can reach the stream: it has no subject that anybody
    publishes to, and no sources. A mirror cannot get its origin later, so it keeps it. The
    mark tells the stream from one that somebody else has created.
    """
    metadata = {**(config.get("metadata") or {}), UNFINISHED: mark}
    if config.get("mirror"):
        return {**config, "metadata": metadata}
    held_back = {**config, "subjects": [f"$JSYNC.RESTORE.{mark}"], "metadata": metadata}
    held_back.pop("sources", None)
    return held_back


def subjects_of(config: Mapping[str, Any]) -> list[str]:
    """The subjects that the stream will have, those that servers fill in too."""
    subjects = config.get("subjects") or []
    if not subjects and not config.get("mirror") and not config.get("sources"):
        return [str(config.get("name", ""))]
    return [subject for subject in subjects if isinstance(subject, str)]


class Manifest(msgspec.Struct):
    """What `backup.json` says."""

    config: dict[str, Any]
    state: dict[str, Any]
    size: int | None = None
    """The bytes of the archive; None if the `nats` command has made the backup."""
    sha256: str | None = None

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return str(self.config.get("name", ""))

    def text(self) -> bytes:
        """As it stands in the file."""
        document = {
            "config": self.config,
            "state": self.state,
            "archive": {"size": self.size, "sha256": self.sha256},
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=2)


def read_manifest(text: bytes, where: str) -> Manifest:
    """Read `backup.json`; raises `ConfigError` for what is none."""
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
