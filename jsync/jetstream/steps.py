"""Requests to the API that follow from each other's replies: pure.

A generator of them knows neither who sends them nor how long that takes. `api.answered` sends
them from a thread that may wait, and `ordered.read` from the I/O thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from .versions import NOTHING, Needs

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

Made = TypeVar("Made")

Answer: TypeAlias = dict[str, Any] | Exception
"""A reply, or the error that came in its place."""


class Ask(NamedTuple):
    """A request to the API."""

    subject: str
    payload: Mapping[str, Any] | None = None
    needs: Needs = NOTHING


def reply_of(answer: Answer) -> dict[str, Any]:
    """The reply, or raise the error that came in its place."""
    if isinstance(answer, Exception):
        raise answer
    return answer


Steps: TypeAlias = "Generator[Ask, dict[str, Any], Made]"
"""Requests, and what is made of their replies."""


def advance(steps: Steps[Any], answer: Answer | None) -> Ask:
    """Take the answer to the last request, and return the next. None begins.

    Raises `StopIteration` with what the steps have made, and the error of an answer.
    """
    if answer is None:
        return next(steps)
    if isinstance(answer, Exception):
        return steps.throw(answer)
    return steps.send(answer)
