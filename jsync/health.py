"""Health in four words. Each is defined here, and every part of jsync uses it in this sense.

- A connection is **connected** from the end of the handshake with a server until jsync notices the
  loss of that server. `Connection.is_connected` has it. A server that falls silent is noticed by
  pings, so `connected` may be wrong for as long as `ping_interval` times `max_pings_out`.
- A live view is **current** while it has all changes up to a moment that the leader of its stream
  has confirmed. `LiveView.is_current` and `LiveView.age` have it.
- A worker is **ready** while it is connected and handles messages, and while the server has
  confirmed each of its consumers, and each of its memberships, within the last `READY_SECONDS`.
- A process is **alive** while it has given a sign of life within the last `ALIVE_SECONDS`. No request
  is sent, because a restart of the process would not repair a server.

The module is pure: callers pass the time of the monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final

CONFIRM_SECONDS: Final = 5.0
"""Seconds between two requests of a worker for each of its consumers."""
READY_SECONDS: Final = 15.0
"""Seconds after which a confirmed consumer counts as unknown: three requests without an answer."""
REPORT_SECONDS: Final = 1.0
"""Seconds between two reports of a process to its supervisor: its signs of life."""
FRESH_SECONDS: Final = 5 * REPORT_SECONDS
"""Seconds for which a report counts for readiness. `/readyz` is thus at most `FRESH_SECONDS` plus
`READY_SECONDS` behind the truth."""
ALIVE_SECONDS: Final = 30 * REPORT_SECONDS
"""Seconds without a sign of life after which a process counts as stuck."""


class Confirmation:
    """The last time at which a fact was known to be true, and for how long that counts.

    One thread writes. Any thread may read.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._known_at = -math.inf

    def confirm(self, requested_at: float) -> None:
        """Record that the fact is true.

        Args:
            requested_at: When the request was sent. The answer was true then or later, so that a
                slow answer does not seem more recent than it is.
        """
        self._known_at = max(self._known_at, requested_at)

    def revoke(self) -> None:
        """Record that the fact is not true any more."""
        self._known_at = -math.inf

    def age(self, now: float) -> float:
        """Return the seconds since the fact was known to be true.

        Infinite if it was never confirmed, or was revoked.
        """
        return now - self._known_at

    def holds(self, now: float) -> bool:
        """Return whether the fact was known to be true within the last `seconds`."""
        return self.age(now) < self.seconds

    def __repr__(self) -> str:
        return f"<Confirmation for {self.seconds:g} s>"
