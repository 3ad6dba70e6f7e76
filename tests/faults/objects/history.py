"""What was done to a store, and what may therefore be in it: the judge of the campaign.

Pure: no server and no clock. Times are of the monotonic clock of the system, which all processes
of a machine share.
"""

from __future__ import annotations

import json
import math
import random
import threading
from typing import NamedTuple

MAX_SIZE = 300_000


class Step(NamedTuple):
    """A change of one name: a put of a content, or a delete."""

    name: str
    content: str | None
    """The content that was put. None: the object was deleted."""
    start: float
    end: float
    """When the answer came. Infinity: none came, so it may happen at any time after `start`."""
    done: bool
    """Whether it surely happened."""


def bytes_of(content: str) -> bytes:
    """Return the bytes of a content: other ones for each."""
    choose = random.Random(content)
    size = choose.choice([0, 1, 1000, 20_000, MAX_SIZE])
    return f"{content}:".encode() + choose.randbytes(size)


def content_of(data: bytes) -> str:
    """Return which content these bytes are, whole and unchanged."""
    content = data.partition(b":")[0].decode()
    assert data == bytes_of(content), f"other bytes than those of {content}"
    return content


class History:
    """The steps of all actors. Any thread may add one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: list[Step] = []

    def add(self, step: Step) -> None:
        with self._lock:
            self._steps.append(step)

    def add_lines(self, lines: list[str]) -> None:
        """Add what a process has written: a line before each step, and one after it."""
        begun: Step | None = None
        for line in lines:
            if not line.endswith("}"):  # the process was killed while it wrote
                break
            said = json.loads(line)
            if "start" in said:
                self._lost(begun)
                begun = Step(
                    said["name"], said["content"], said["start"], math.inf, False
                )
            elif begun is not None:
                if said["outcome"] == "done":
                    self.add(begun._replace(end=said["end"], done=True))
                elif said["outcome"] == "unclear":
                    self.add(begun)
                begun = None
        self._lost(begun)

    def _lost(self, begun: Step | None) -> None:
        if begun is not None:
            self.add(begun)

    def may_be(self, name: str) -> set[str | None]:
        """Return the contents that a name may have now. None: no object."""
        with self._lock:
            steps = [step for step in self._steps if step.name == name]
        # Nothing was there before.
        steps.append(Step(name, None, -math.inf, -math.inf, True))
        return {
            step.content
            for step in steps
            if not any(later.done and later.start > step.end for later in steps)
        }

    def may_have_been(self, name: str) -> set[str | None]:
        """Return all contents that a name may have had until now."""
        with self._lock:
            return {step.content for step in self._steps if step.name == name}

    def names(self) -> set[str]:
        with self._lock:
            return {step.name for step in self._steps}

    def count(self) -> tuple[int, int]:
        """Return the number of all steps, and of those that surely happened."""
        with self._lock:
            return len(self._steps), sum(step.done for step in self._steps)
