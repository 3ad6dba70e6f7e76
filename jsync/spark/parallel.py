"""Parallel requests, and streams that are opened before their turn."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    Key = TypeVar("Key")
    Answer = TypeVar("Answer")
    Batch = TypeVar("Batch")

MAX_THREADS: Final = 16
"""The most threads that send requests in parallel."""
PREFETCH: Final = 8
"""Streams that a partition opens before their turn."""


def map_parallel(
    ask: Callable[[Key], Answer], keys: Sequence[Key]
) -> Iterator[tuple[Key, Answer]]:
    """Yield each key with its answer, in order. Blocks.

    Args:
        ask: Called for each key, by several threads in parallel. Its errors are raised
            here, in the order of the keys.
        keys: The arguments.
    """
    if len(keys) < 2:
        yield from ((key, ask(key)) for key in keys)
        return
    with ThreadPoolExecutor(min(MAX_THREADS, len(keys)), "jsync-spark-ask") as pool:
        try:
            yield from zip(keys, pool.map(ask, keys), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def read_ahead(
    read: Callable[[Key], Generator[Batch]], keys: Iterable[Key]
) -> Iterator[Batch]:
    """Yield the batches of each key, in order, while other threads open the next keys.

    An open key buffers only its first batch.

    Args:
        read: Reads a key. Another thread reads the first batch, and the calling thread
            the rest.
        keys: The keys.
    """
    rest = iter(keys)
    started: deque[Future[tuple[list[Batch], Generator[Batch]]]] = deque()
    with ThreadPoolExecutor(PREFETCH, "jsync-spark-ahead") as pool:
        try:
            while True:
                for key in islice(rest, PREFETCH + 1 - len(started)):
                    started.append(pool.submit(_begin, read(key)))
                if not started:
                    return
                first, others = started[0].result()
                yield from first
                yield from others
                started.popleft()
        finally:
            for one in started:
                if not one.cancel() and one.exception() is None:
                    one.result()[1].close()


def _begin(batches: Generator[Batch]) -> tuple[list[Batch], Generator[Batch]]:
    return list(islice(batches, 1)), batches
