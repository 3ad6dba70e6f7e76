"""The clock of leases: it also runs while the machine sleeps."""

from __future__ import annotations

import time

if hasattr(time, "CLOCK_BOOTTIME"):

    def boottime() -> float:
        """Return the seconds of a clock that also runs while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # pragma: no cover - not on Linux

    def boottime() -> float:
        return time.monotonic()
