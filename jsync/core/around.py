"""A context manager around each call of a handler. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Taken = TypeVar("Taken")
Given = TypeVar("Given")


def inside(
    around: Callable[[Taken], AbstractContextManager[Any]] | None,
    call: Callable[[Taken], Given],
) -> Callable[[Taken], Given]:
    """Return `call`, wrapped in a new context manager of `around` for each call.

    Without `around`, return `call` itself.
    """
    if around is None:
        return call

    def called(taken: Taken) -> Given:
        with around(taken):
            return call(taken)
        raise RuntimeError("around: its context manager suppressed an exception")

    return called
