"""Errors in the data, as opposed to errors in the command."""

from __future__ import annotations

from jsync.errors import Error


class BadValueError(Error, ValueError):
    """A value that is not valid for its use."""


class BadRowError(Error, ValueError):
    """A row that cannot be read or sent. The message contains its position."""
