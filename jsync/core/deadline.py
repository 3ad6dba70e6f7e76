"""The conversion of a user's timeout to a deadline of the monotonic clock."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ..checks import seconds

if TYPE_CHECKING:
    from ..checks import Seconds


def deadline_after(timeout: Seconds, name: str = "timeout") -> float:
    """Return the time `timeout` seconds from now.

    Raises `ConfigError` if `timeout` is not a number of seconds.
    """
    return monotonic() + seconds(timeout, name)
