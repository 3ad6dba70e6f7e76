"""How long to leave a stream in peace that has more to store than it can hold (10167)."""

from __future__ import annotations

from random import uniform
from typing import Final

TOO_MANY_REQUESTS: Final = 429
"""The status of such a refusal: the stream has not looked at the message."""
FIRST_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 1.0


def pause_after(refusals: int) -> float:
    """Seconds to wait after so many refusals in a row: more each time, and never the same.

    Many clients are refused at once, and would come back at once.
    """
    most = min(FIRST_SECONDS * 2.0 ** min(refusals, 10), LONGEST_SECONDS)
    return uniform(most / 2, most)
