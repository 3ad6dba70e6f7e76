"""What is wrong with the data, rather than with the command."""

from __future__ import annotations

from jsync.errors import Error


class BadValueError(Error, ValueError):
    """A value that cannot be used for what it is wanted for."""


class BadRowError(Error, ValueError):
    """A row that cannot be read or sent; the message says where it stands."""
