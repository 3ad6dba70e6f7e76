"""Tests of concurrent requests, and of streams that are started ahead of their turn."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from jsync.spark.parallel import PREFETCH, map_parallel, read_ahead

if TYPE_CHECKING:
    from collections.abc import Generator

FAR = 60.0


def test_answers_to_simultaneous_requests_come_in_order() -> None:
    together = threading.Barrier(3)

    def ask(number: int) -> int:
        together.wait(FAR)
        return number * 10

    assert list(map_parallel(ask, [3, 1, 2])) == [(3, 30), (1, 10), (2, 20)]
    assert list(map_parallel(lambda n: n, [1])) == [(1, 1)]
    assert list(map_parallel(ask, [])) == []


def test_an_error_ends_the_rest_in_its_turn() -> None:
    def ask(number: int) -> int:
        if number == 2:
            raise LookupError("two")
        return number

    answers = map_parallel(ask, [1, 2, 3])
    assert next(answers) == (1, 1)
    with pytest.raises(LookupError, match="two"):
        next(answers)


class Streams:
    """Streams of three batches, with the progress of reading each."""

    def __init__(self) -> None:
        self.given: dict[int, int] = {}
        self.closed: set[int] = set()

    def read(self, key: int) -> Generator[tuple[int, int]]:
        try:
            for batch in range(3):
                self.given[key] = batch + 1
                yield key, batch
        finally:
            self.closed.add(key)


def test_streams_are_read_in_turn_with_bounded_prefetch() -> None:
    streams = Streams()
    batches = read_ahead(streams.read, range(20))
    assert next(batches) == (0, 0)
    assert streams.given.keys() <= set(range(PREFETCH + 1))
    rest = list(batches)
    assert [(0, 0), *rest] == [(key, batch) for key in range(20) for batch in range(3)]
    assert streams.closed == set(range(20))


def test_a_stream_that_was_begun_holds_one_batch() -> None:
    streams = Streams()
    batches = read_ahead(streams.read, range(20))
    for _ in range(3):
        next(batches)
    assert {given for key, given in streams.given.copy().items() if key} <= {1}


def test_an_early_stop_closes_the_started_readers() -> None:
    streams = Streams()
    batches = read_ahead(streams.read, range(20))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert streams.closed == streams.given.keys()


def test_a_failing_stream_fails_in_its_turn() -> None:
    def read(key: int) -> Generator[int]:
        if key == 1:
            raise LookupError("one")
        yield key

    batches = read_ahead(read, [0, 1, 2])
    assert next(batches) == 0
    with pytest.raises(LookupError, match="one"):
        next(batches)
