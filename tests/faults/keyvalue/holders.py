"""Holders of a lock, and leaders, that note for how long they believe that they are.

`python -m tests.faults.keyvalue.holders URL BUCKET SEED` is a holder that prints each of its terms, and a
line when a term begins.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from typing import TYPE_CHECKING

import jsync
from jsync import errors
from jsync.core.clock import boottime as clock

from ...support.servers import wait_for
from ...support.threads import Recorder
from .model import Term

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

LONG = 120.0
TTL = 2


class Terms:
    """The terms that holders of a lock or leaders have had."""

    def __init__(self) -> None:
        self.all: list[Term] = []
        self.over = threading.Event()
        self.holder: int | None = None
        """The number of the client that holds the lock, or had it last."""

    def hold(
        self, kv: jsync.KeyValue, rng: Random, number: int, ttl: int = TTL
    ) -> None:
        """Acquire the lock again and again, and hold it for a moment."""
        while not self.over.is_set():
            try:
                lock = kv.lock("lock", ttl=ttl, on_lost=Recorder())
            except errors.ConfigError:
                return  # the bucket would not keep it for so long
            with contextlib.suppress(errors.Error):
                if lock.acquire(1):
                    self.holder = number
                    self.note(lock.token, lambda lock=lock: lock.held, rng)  # type: ignore[misc]
            with contextlib.suppress(errors.Error):
                lock.release()

    def lead(self, kv: jsync.KeyValue, rng: Random, _: int) -> None:
        """Be a candidate again and again, and lead for a moment."""
        while not self.over.is_set():
            elected = Recorder()
            try:
                election = kv.elect("lead", ttl=TTL, on_elected=elected)
            except errors.Error:
                self.over.wait(0.1)
                continue
            with election:
                wait_for(
                    lambda told=elected: told.waiting or self.over.is_set(),  # type: ignore[misc]
                    LONG,
                )
                if elected.waiting:
                    token = elected.get()
                    self.note(token, lambda e=election: e.is_leader, rng)  # type: ignore[misc]

    def note(self, token: int, holds: Callable[[], bool], rng: Random) -> None:
        """Look at the clock while the lock is held, and note the first and last time."""
        first = last = clock()
        if not holds():
            return  # lost before the clock was read
        end = first + rng.uniform(0.1, 2.5 * TTL)
        while last < end:
            moment = clock()
            if not holds():
                break
            last = moment
            time.sleep(0.001)
        self.add(Term(token, first, last))

    def add(self, term: Term) -> None:
        self.all.append(term)


class PrintedTerms(Terms):
    """Terms of a process, which it prints."""

    def note(self, token: int, holds: Callable[[], bool], rng: Random) -> None:
        print("holds", flush=True)  # noqa: T201
        super().note(token, holds, rng)

    def add(self, term: Term) -> None:
        print(*term, flush=True)  # noqa: T201


def main(url: str, bucket: str, seed: str) -> None:
    with jsync.connect(url, reconnect_wait=0.05, max_reconnects=-1) as nc:
        kv = None
        while kv is None:
            with contextlib.suppress(errors.Error):
                kv = nc.jetstream(timeout=2).key_value(bucket)
        PrintedTerms().hold(kv, random.Random(seed), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
