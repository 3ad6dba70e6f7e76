"""Files as they come: by their names, compressed or not, or standard input."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, cast

from jsync.errors import ConfigError

from .bad import BadRowError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORMATS: Final = ("ndjson", "csv", "tsv", "parquet", "lines")
STDIN: Final = "-"
_ENDINGS: Final = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "lines",
    ".log": "lines",
}
_OPENERS: Final[dict[str, Callable[..., Any]]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
BROKEN: Final = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError)
"""What reading a file raises that is damaged, or was cut off."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file that is being read."""

    name: str
    """What people call it."""
    identity: str | None
    """What the ids of its rows begin with; None when nothing tells it from others."""
    format: str
    file: IO[bytes]
    """Its bytes, decompressed."""
    size: int | None
    """Bytes on the disk, compressed."""
    position: Callable[[], int]
    """How many of them have been read."""

    @property
    def unit(self) -> str:
        """What its rows are counted in."""
        return "row" if self.format == "parquet" else "line"

    def bad_row(self, number: int, what: str) -> BadRowError:
        return BadRowError(f"{self.name}, {self.unit} {number}: {what}")


def is_pipe(path: str) -> bool:
    """Whether it can be read once: standard input, a pipe, a device."""
    if path == STDIN:
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def identity_of(path: str) -> str | None:
    """The name of a file, and a sum of its whole path: the same wherever one stands.

    None for a pipe, whose path says nothing of what comes out of it.
    """
    if is_pipe(path):
        return None
    full = os.path.abspath(path)
    return f"{os.path.basename(full)}@{zlib.crc32(os.fsencode(full)):08x}"


def format_of(path: str, given: str | None) -> str:
    """The format that was asked for, or the one that the name ends with."""
    if given is not None:
        if given not in FORMATS:
            raise ConfigError(f"format: one of {', '.join(FORMATS)}, not {given!r}")
        return given
    if path == STDIN:
        return "lines"
    stem, ending = os.path.splitext(path.lower())
    if ending in _OPENERS or ending == ".zip":
        ending = os.path.splitext(stem)[1]
    try:
        return _ENDINGS[ending]
    except KeyError:
        if os.path.isdir(path):
            raise ConfigError(f"{path}: Is a directory") from None
        raise ConfigError(
            f"{path}: the name does not tell the format: pass "
            f"--format {'|'.join(FORMATS)}"
        ) from None


@contextlib.contextmanager
def open_source(
    path: str, *, form: str | None, identity: str | None, stdin: IO[bytes]
) -> Iterator[Source]:
    """Open a file by its path, `-` for standard input; closed at the end of the block.

    Raises `ConfigError` for what cannot be opened. A zip has to hold one file.
    """
    form = format_of(path, form)
    with ExitStack() as opened:
        if path == STDIN:
            yield Source(
                name="standard input",
                identity=identity,
                format=form,
                file=stdin,
                size=None,
                position=lambda: 0,
            )
            return
        try:
            raw = opened.enter_context(open(path, "rb"))
            pipe = is_pipe(path)
            size = None if pipe else os.fstat(raw.fileno()).st_size
            file = _decompressed(path, raw, opened)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        except zipfile.BadZipFile as error:
            raise ConfigError(f"{path}: {error}") from error
        yield Source(
            name=path,
            identity=identity or identity_of(path),
            format=form,
            file=file,
            size=size,
            position=(lambda: 0) if pipe else raw.tell,
        )


def _decompressed(path: str, raw: IO[bytes], opened: ExitStack) -> IO[bytes]:
    ending = os.path.splitext(path.lower())[1]
    if ending == ".zip":
        archive = opened.enter_context(zipfile.ZipFile(raw))
        names = [info.filename for info in archive.infolist() if not info.is_dir()]
        if len(names) != 1:
            raise ConfigError(
                f"{path} holds {len(names)} files: unpack it, and name them"
            )
        return opened.enter_context(archive.open(names[0]))
    if ending in _OPENERS:
        unpacked = cast("IO[bytes]", _OPENERS[ending](raw))
        return opened.enter_context(unpacked)
    return raw
