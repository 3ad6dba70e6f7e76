"""Tests of the search for subscriptions that a server with a limit has refused."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from jsync.core.subscription_limit import UNCERTAIN, refused_subscriptions

pytestmark = pytest.mark.hypothesis


class LimitedServer:
    """A server that allows so many subscriptions, told in its own words."""

    def __init__(self, limit: int, subscribed: set[int]) -> None:
        self.limit = limit
        self.subscribed = subscribed
        self.refused: list[int] = []

    def handle(self, command: int) -> None:
        if command < 0:
            self.subscribed.discard(-command)
        elif len(self.subscribed) >= self.limit:
            self.refused.append(command)
        else:
            self.subscribed.add(command)


steps = st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=40)
"""Each step is a SUB, or the UNSUB of one of the known subscriptions, by its index."""


@given(st.integers(0, 6), steps, st.integers(0, 10))
def test_the_count_of_rejections_tells_which(
    older: int, steps: list[int | None], limit: int
) -> None:
    known = list(range(1, older + 1))
    server = LimitedServer(limit, set(known))
    commands: list[int] = []
    for sid, step in enumerate(steps, older + 1):
        if step is None:
            known.append(sid)
            commands.append(sid)
        elif known:
            commands.append(-known.pop(step % len(known)))
    for command in commands:
        server.handle(command)
    found = refused_subscriptions(commands, len(server.refused))
    assert found == {*server.refused}


@pytest.mark.parametrize(
    ("commands", "rejections"),
    [([1, 2], 3), ([1, -1, 2], 3), ([], 1), ([1, UNCERTAIN, 2], 1)],
)
def test_an_impossible_or_uncertain_count_tells_nothing(
    commands: list[int], rejections: int
) -> None:
    assert refused_subscriptions(commands, rejections) is None
