"""Tests of the offsets of pages of a list that changes while it is read."""

from __future__ import annotations

import random

from jsync.jetstream.paging import Pages

SIZE = 8


def listed(
    entries: set[str], rng: random.Random, churn: float
) -> tuple[list[str], int]:
    """Read all pages of a list whose entries come and go, and count the requests."""
    pages, given, requests = Pages(), list[str](), 0
    while not pages.is_done:
        page = sorted(entries)[pages.offset :][:SIZE]
        requests += 1
        # An empty page has no total, as in a cluster.
        if pages.take(page, len(entries) if page else 0):
            given += [name for name in page if name not in given]
        for _ in range(SIZE):
            if rng.random() < churn and entries:
                entries.discard(rng.choice(sorted(entries)))
            if rng.random() < churn / 2:
                entries.add(f"{rng.randrange(1000):03}+")
    return given, requests


def names(count: int) -> set[str]:
    return {f"{number:03}" for number in range(count)}


def test_every_entry_that_stays_is_listed() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        entries = names(rng.randrange(80))
        before = set(entries)
        given, requests = listed(entries, rng, rng.choice([0.02, 0.1, 0.3]))
        assert before & entries <= set(given), seed
        assert len(given) == len(set(given)), seed
        assert requests < 200, seed


def test_a_list_whose_entries_stay_has_few_requests() -> None:
    for count in (0, 1, 7, 8, 9, 64, 65):
        given, requests = listed(names(count), random.Random(), 0)
        assert given == sorted(names(count))
        assert requests == max(1, -(-(count - 1) // (SIZE - 1)))


def test_entries_that_are_deleted_when_listed_hide_none() -> None:
    entries = names(100)
    pages, given = Pages(), list[str]()
    while not pages.is_done:
        page = sorted(entries)[pages.offset :][:SIZE]
        if pages.take(page, len(entries)):
            given += page
            entries -= set(page)
    assert given == sorted(names(100))


def test_the_same_page_again_and_again_ends() -> None:
    pages, requests = Pages(), 0
    while not pages.is_done:
        pages.take(["a", "b"], 1 << 60)
        requests += 1
    assert requests < 10
