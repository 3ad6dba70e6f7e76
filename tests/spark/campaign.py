"""The number and the moments of the faults in the Spark fault campaigns.

`make fault-spark` sets `JSYNC_SPARK_KILLS` to 20. A failed test shows its `JSYNC_SEED`.
"""

from __future__ import annotations

import os
import random

KILLS = int(os.environ.get("JSYNC_SPARK_KILLS", "2"))
STARTS = int(os.environ.get("JSYNC_SPARK_KILLS", "1"))
"""The same for tests that start Spark for each kill of a driver."""


def dice(number: int = 0) -> random.Random:
    """Return a random generator for one repetition, which depends only on the seed."""
    seed = os.environ.get("JSYNC_SEED") or os.urandom(4).hex()
    print(f"JSYNC_SEED={seed}")  # noqa: T201 (shown when it fails)
    return random.Random(f"{seed}/{number}")
