"""Shared parts of the tests of buckets."""

from __future__ import annotations

import contextlib
import functools
import random
import threading
from typing import TYPE_CHECKING

from jsync import errors

from ....support.servers import wait_for
from ....support.threads import LONG, Thread

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    import jsync


def fill(nc: jsync.Connection, bucket: jsync.KeyValue, keys: Iterable[str]) -> None:
    """Put each key with itself as its value, without waiting for each ack."""
    with nc.jetstream().publisher() as publisher:
        for key in keys:
            publisher.publish(f"$KV.{bucket.bucket}.{key}", key.encode())


def consumers(js: jsync.JetStream, bucket: jsync.KeyValue) -> list[str]:
    """Return the names of the consumers on the server."""
    return list(js.consumer_names(f"KV_{bucket.bucket}"))


class Writers:
    """Threads that put, delete and purge keys, and that a test can pause.

    Keys of `k.` keep their history. Keys of `p.` are also purged.
    """

    def __init__(self, buckets: Iterable[jsync.KeyValue]) -> None:
        self._go, self._over = threading.Event(), threading.Event()
        self._writing: list[threading.Lock] = []
        self.done = self.failed = 0
        self._threads = []
        for number, bucket in enumerate(buckets):
            self._writing.append(threading.Lock())
            self._threads.append(Thread(self._run, bucket, number))

    def __enter__(self) -> Self:
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._go.set()
        for thread in self._threads:
            thread.result()

    def resume(self) -> None:
        self._go.set()

    def pause(self) -> None:
        """Block until no thread writes."""
        self._go.clear()
        for writing in self._writing:
            with writing:
                pass

    def _run(self, bucket: jsync.KeyValue, number: int) -> None:
        rng = random.Random(number)
        while not self._over.is_set():
            self._go.wait()
            with self._writing[number]:
                if self._go.is_set() and not self._over.is_set():
                    self._write(bucket, rng, number)
            self._over.wait(0.001)

    def _write(self, bucket: jsync.KeyValue, rng: random.Random, number: int) -> None:
        key = f"{number}.{rng.randrange(5000)}"
        try:
            if rng.random() < 0.1:
                bucket.delete(f"k.{key}", timeout=2)
            elif rng.random() < 0.8:
                bucket.put(f"k.{key}", b"x", timeout=2)
            else:
                change = bucket.purge if rng.random() < 0.3 else bucket.put
                change(f"p.{number}.{rng.randrange(20)}", timeout=2)
            self.done += 1
        except (errors.Error, OSError):
            self.failed += 1  # the server may have stored it
            self._over.wait(0.01)


def kept(bucket: jsync.KeyValue) -> list[int]:
    """Return the revisions of keys of `k.` in the bucket, as a new watch reports them."""
    with bucket.watch("k.>", include_history=True, timeout=LONG) as watch:
        return [entry.revision for entry in watch.initial()]


def held(bucket: jsync.KeyValue) -> dict[str, int]:
    """Return the revision of each key that has a value, as a new watch reports them."""
    with bucket.watch(ignore_deletes=True, timeout=LONG) as watch:
        return {entry.key: entry.revision for entry in watch.initial()}


def await_agreement(
    bucket: jsync.KeyValue,
    watched: Iterable[list[int]],
    views: Iterable[jsync.LiveView],
) -> int:
    """Wait until watches and live copies agree with the bucket, and return its revisions of `k.`.

    Each list has the revisions that a watch of `k.>` reported, from the first one on.
    """
    views, watched = list(views), list(watched)
    revisions, values = kept(bucket), held(bucket)
    while True:
        for view in views:
            with contextlib.suppress(errors.TimeoutError):
                view.wait_for(max(values.values(), default=0), LONG)
        for seen in watched:
            with contextlib.suppress(TimeoutError):
                wait_for(functools.partial(reached, seen, revisions), LONG)
        # The server can store a write later whose caller has given up.
        before = revisions, values
        revisions, values = kept(bucket), held(bucket)
        if before == (revisions, values):
            break
    for seen in watched:
        assert seen == revisions
    for view in views:
        assert {key: e.revision for key, e in view.entries().items()} == values
    return len(revisions)


def reached(seen: list[int], revisions: list[int]) -> bool:
    return not revisions or seen[-1:] == revisions[-1:]
