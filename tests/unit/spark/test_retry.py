"""Tests of how long the data source waits for a server, and when it does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync import errors
from jsync.spark import retry
from jsync.spark.retry import retry_until_available

if TYPE_CHECKING:
    from collections.abc import Callable


def asked(*answers: Exception | str) -> tuple[Callable[[], str], list[Exception | str]]:
    """Return a call that gives one result after the other, and the list of remaining results."""
    left = list(answers)

    def ask() -> str:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask, left


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_INTERVAL", 0)


def test_a_server_that_is_away_is_asked_again() -> None:
    ask, left = asked(errors.ConnectionLostError("lost"), errors.TimeoutError(), "here")
    assert retry_until_available(ask) == "here"
    assert not left


def test_a_server_that_refuses_connections_is_asked_again() -> None:
    ask, left = asked(errors.ConnectionError("connection refused"), "here")
    assert retry_until_available(ask) == "here"
    assert not left


def test_a_rejected_client_does_not_try_again() -> None:
    ask, left = asked(errors.AuthenticationError("wrong password"), "never asked for")
    with pytest.raises(errors.AuthenticationError):
        retry_until_available(ask)
    assert left == ["never asked for"]


def test_a_connection_that_stays_closed_is_not_awaited() -> None:
    closed = errors.ConnectionClosedError("closed")
    ask, left = asked(closed, closed, "never asked for")
    with pytest.raises(errors.ConnectionClosedError):
        retry_until_available(ask)
    assert left == ["never asked for"]


def test_a_closed_connection_may_be_replaced() -> None:
    ask, left = asked(
        errors.ConnectionClosedError("closed"),
        errors.NoServersError("none yet"),
        errors.ConnectionClosedError("closed again"),
        "here",
    )
    assert retry_until_available(ask) == "here"
    assert not left


def test_after_its_time_the_last_error_is_raised() -> None:
    ask, left = asked(errors.TimeoutError("late"), "never asked for")
    with pytest.raises(errors.TimeoutError):
        retry_until_available(ask, seconds=0)
    assert left
