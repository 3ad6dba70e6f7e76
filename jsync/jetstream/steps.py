"""Series of requests to the API, where each may depend on earlier replies. Pure.

A generator yields the requests, and does not know which thread sends them. `api.answered`
sends them from a thread that may wait, and `ordered.read` from the I/O thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from .features import NO_FEATURES, Features

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

Made = TypeVar("Made")

ReplyOrError: TypeAlias = dict[str, Any] | Exception
"""A reply, or the error that came instead."""


class APIRequest(NamedTuple):
    """A request to the API."""

    subject: str
    payload: Mapping[str, Any] | None = None
    features: Features = NO_FEATURES


def unwrap(answer: ReplyOrError) -> dict[str, Any]:
    """Return the reply, or raise the error that came instead."""
    if isinstance(answer, Exception):
        raise answer
    return answer


Steps: TypeAlias = "Generator[APIRequest, dict[str, Any], Made]"
"""A generator of requests, which returns a result made from their replies."""


def send_next(steps: Steps[Any], answer: ReplyOrError | None) -> APIRequest:
    """Send the answer to the last request, and return the next request. None begins.

    Raises `StopIteration` with the result of the steps, or the error of an answer.
    """
    if answer is None:
        return next(steps)
    if isinstance(answer, Exception):
        return steps.throw(answer)
    return steps.send(answer)
