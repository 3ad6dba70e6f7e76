"""The base of the files that `ObjectStore.open` returns."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:

    class _File(io.BufferedIOBase, BinaryIO):
        """The type of parameters that take a binary file."""
else:
    _File = io.BufferedIOBase


class BinaryFile(_File):
    """A binary file of an object, for reading or writing."""

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")
