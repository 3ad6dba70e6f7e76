"""Series of requests to the API, where each may depend on earlier replies. Pure.

A generator yields the requests, and does not know which thread sends them. `api.answered`
sends them from a thread that may wait, and `ordered.read` from the I/O thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from .versions import NOTHING, Needs

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

Made = TypeVar("Made")

Answer: TypeAlias = dict[str, Any] | Exception
"""A reply, or the error that came instead."""


class Ask(NamedTuple):
    """A request to the API."""

    subject: str
    payload: Mapping[str, Any] | None = None
    needs: Needs = NOTHING


def reply_of(answer: Answer) -> dict[str, Any]:
    """Return the reply, or raise the error that came instead."""
    if isinstance(answer, Exception):
        raise answer
    return answer


Steps: TypeAlias = "Generator[Ask, dict[str, Any], Made]"
"""A generator of requests, which returns a result made from their replies."""


def advance(steps: Steps[Any], answer: Answer | None) -> Ask:
    """Send the answer to the last request, and return the next request. None begins.

    Raises `StopIteration` with the result of the steps, or the error of an answer.
    """
    if answer is None:
        return next(steps)
    if isinstance(answer, Exception):
        return steps.throw(answer)
    return steps.send(answer)
