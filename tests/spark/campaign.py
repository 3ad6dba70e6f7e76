"""The number of the faults in the Spark fault campaigns.

`make fault-spark` sets `JSYNC_SPARK_KILLS` to 20. `JSYNC_FAULT_SEED` repeats their moments.
"""

from __future__ import annotations

import os

KILLS = int(os.environ.get("JSYNC_SPARK_KILLS", "2"))
STARTS = int(os.environ.get("JSYNC_SPARK_KILLS", "1"))
"""The same for tests that start Spark for each kill of a driver."""
