"""The pause before a retry, after a stream had too much to store (error 10167)."""

from __future__ import annotations

from random import uniform
from typing import Final

TOO_MANY_REQUESTS: Final = 429
"""The status of that rejection: the stream has not looked at the message."""
INITIAL_BACKOFF: Final = 0.05
MAX_BACKOFF: Final = 1.0


def backoff_delay(rejections: int) -> float:
    """Return the seconds to wait after a number of rejections in a row.

    The wait grows, and has a random part, because many clients are rejected at the same
    moment and would otherwise retry at the same moment.
    """
    ceiling = min(INITIAL_BACKOFF * 2.0 ** min(rejections, 10), MAX_BACKOFF)
    return uniform(ceiling / 2, ceiling)
