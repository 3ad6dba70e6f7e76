"""Files and the standard input, decompressed, with their format by name."""

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

from .errors import BadRowError

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
DECOMPRESSION_ERRORS: Final = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    OSError,
)
"""The errors of reading a file that is damaged or was cut off."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """An open file."""

    name: str
    """The name for people."""
    identity: str | None
    """The beginning of the ids of its rows.

    None for the standard input and for pipes, because their content has no identity.
    """
    format: str
    file: IO[bytes]
    """The decompressed bytes."""
    size: int | None
    """The size on the disk, compressed, in bytes."""
    position: Callable[[], int]
    """A function that returns how many of these bytes have been read."""

    @property
    def unit(self) -> str:
        """The unit in which the rows are counted."""
        return "row" if self.format == "parquet" else "line"

    def bad_row(self, number: int, what: str) -> BadRowError:
        return BadRowError(f"{self.name}, {self.unit} {number}: {what}")


def is_pipe(path: str) -> bool:
    """Return whether a path can be read only once, such as a pipe or standard input."""
    if path == STDIN:
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def identity_of(path: str) -> str | None:
    """Return the name of a file and a checksum of its absolute path.

    It does not depend on the working directory. Returns None for a pipe, because its
    path does not identify its content.
    """
    if is_pipe(path):
        return None
    full = os.path.abspath(path)
    return f"{os.path.basename(full)}@{zlib.crc32(os.fsencode(full)):08x}"


def format_of(path: str, given: str | None) -> str:
    """Return the given format, or the one that the ending of the name means."""
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
    """Open a file, or the standard input for `-`, until the end of the block.

    Raises `ConfigError` if the file cannot be opened, or if a zip does not hold exactly
    one file.
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
