"""The bounds of a campaign: its seconds, and the seed of its random choices.

`JSYNC_FAULT_SECONDS` is the time of each campaign, 10 by default. `make fault` raises it.
`JSYNC_FAULT_SEED` repeats a campaign. By default the seed is the date, so that every day tries
other choices, and all runs of one day try the same ones. A failed test shows its seed.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = float(os.environ.get("JSYNC_FAULT_SECONDS", "10"))
SEED = os.environ.get(
    "JSYNC_FAULT_SEED", f"{datetime.datetime.now(datetime.UTC):%Y%m%d}"
)


def seeded(*actor: object) -> random.Random:
    """Return the random numbers of one actor, such as a thread or a repetition."""
    print(f"JSYNC_FAULT_SEED={SEED}")  # noqa: T201 (pytest shows it if the test fails)
    return random.Random("-".join(map(str, [SEED, *actor])))


class Campaign:
    """The time and the random numbers of one campaign."""

    def __init__(self, name: str) -> None:
        self.seed = f"{name}-{SEED}"
        self._deadline = time.monotonic() + SECONDS

    def random(self, actor: object = "") -> random.Random:
        """Return the random numbers of one actor, such as a thread: each has its own."""
        return random.Random(f"{self.seed}-{actor}")

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def rounds(self) -> Iterator[int]:
        """Iterate until the time is over, at least once."""
        number = 0
        yield number
        while not self.is_over:
            number += 1
            yield number

    def __repr__(self) -> str:
        return (
            f"<Campaign JSYNC_FAULT_SEED={self.seed.rsplit('-', 1)[1]} for {SECONDS} s>"
        )


class Losses:
    """The times in which requests and answers may have been lost."""

    def __init__(self) -> None:
        self._lost: list[tuple[float, float]] = []

    @contextlib.contextmanager
    def note(self) -> Iterator[None]:
        """Note the time of the block, and until the server has noticed what happened."""
        number = len(self._lost)
        begun = time.monotonic()
        self._lost.append((begun, float("inf")))
        try:
            yield
        finally:
            self._lost[number] = begun, time.monotonic() + 1

    def overlap(self, begun: float) -> bool:
        """Return whether something was lost since `begun`."""
        return any(end >= begun for _, end in self._lost)
