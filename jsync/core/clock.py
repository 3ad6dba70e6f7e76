"""The clock of leases, and deadlines of the monotonic clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..validation import check_seconds

if TYPE_CHECKING:
    from ..validation import Seconds

if hasattr(time, "CLOCK_BOOTTIME"):

    def boottime() -> float:
        """Return the seconds of a clock that also runs while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # pragma: no cover - not on Linux

    def boottime() -> float:
        return time.monotonic()


def deadline_after(timeout: Seconds) -> float:
    """Return the time of the monotonic clock `timeout` seconds from now.

    Raises:
        ConfigError: `timeout` is not a number of seconds.
    """
    return time.monotonic() + check_seconds(timeout, "timeout")
