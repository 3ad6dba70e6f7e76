"""A file with the name FILE.partial until it is complete, and with one writer."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO, TYPE_CHECKING

from jsync.errors import ConfigError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK = 1 << 16


class PartialFile:
    """FILE.partial, which becomes FILE. By default it replaces no existing file."""

    def __init__(self, target: str, *, force: bool) -> None:
        """Check that the file may be written. With `force` it may exist.

        Raises `ConfigError` if it may not.
        """
        self.target = target
        # The file that a symbolic link names is replaced, not the link.
        self._destination = (
            os.path.realpath(target) if os.path.islink(target) else target
        )
        self.path = f"{self._destination}.partial"
        self._force = force
        self._check_target()

    def _check_target(self) -> None:
        if not os.path.exists(self.target):
            return
        if not os.path.isfile(self.target):
            # A rename would put a file in the place of a device or a pipe.
            raise ConfigError(f"{self.target} is not a file that can be replaced")
        if not self._force:
            raise ConfigError(f"{self.target} exists: pass --force to replace it")

    @contextlib.contextmanager
    def open(self, *, resume: bool) -> Iterator[IO[bytes]]:
        """Open a new, empty file, or with `resume` the file of an interrupted run.

        The end of the block removes an empty file. Errors of the system get the name of
        the file. Raises `ConfigError` if the file exists, unless `resume` or `force` is
        set, or if another process writes it.
        """
        file = self._opened(resume=resume)
        try:
            yield file
            file.close()
        except OSError as error:
            if error.errno is not None and error.filename is None:
                error.filename = self.path
            raise
        finally:
            with contextlib.suppress(OSError):  # it would hide the first error
                if not file.closed and file.seek(0, os.SEEK_END) == 0:
                    self._close_then(file, os.unlink, self.path)
            with contextlib.suppress(OSError):
                file.close()

    def _opened(self, *, resume: bool) -> IO[bytes]:
        try:
            file = open(self.path, "x+b")  # noqa: SIM115
        except FileExistsError:
            if not (resume or self._force):
                raise ConfigError(
                    f"{self.path} exists: it is the part of an interrupted run. Continue with "
                    "--resume, or replace it with --force"
                ) from None
            file = open(self.path, "r+b")  # noqa: SIM115
        try:
            self._lock(file)
            if not resume:
                file.truncate()
        except BaseException:
            file.close()
            raise
        return file

    def _lock(self, file: IO[bytes]) -> None:
        if sys.platform == "win32":
            return  # Windows does not rename a file that another process has open
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that had the lock may have renamed or removed the file.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                return
        raise ConfigError(f"{self.path}: another process is writing it")

    def _close_then(
        self, file: IO[bytes], do: Callable[..., object], *paths: str
    ) -> None:
        """Rename or remove the file, while it is locked if the system allows that."""
        if sys.platform == "win32":
            file.close()
        do(*paths)
        file.close()

    def publish(self, file: IO[bytes]) -> None:
        """Flush the complete file to the disk, give it its name, and close it."""
        self._check_target()  # another process may have created one since
        file.flush()
        os.fsync(file.fileno())
        self._close_then(file, os.replace, self.path, self._destination)


def last_line(file: IO[bytes]) -> bytes | None:
    """Cut off an incomplete line at the end, and return the last complete one, if any.

    Writes continue after it.
    """
    end = _line_end(file, file.seek(0, os.SEEK_END))
    file.truncate(end)
    if end == 0:
        file.seek(0)
        return None
    start = _line_end(file, end - 1)
    file.seek(start)
    return file.read()


def _line_end(file: IO[bytes], before: int) -> int:
    """Return the position after the last line break before `before`, or 0."""
    while before > 0:
        start = max(0, before - _BLOCK)
        file.seek(start)
        at = file.read(before - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        before = start
    return 0
