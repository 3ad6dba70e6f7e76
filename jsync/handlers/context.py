"""A context manager around each call of a handler. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def wrap_in_context(
    around: Callable[[Argument], AbstractContextManager[Any]] | None,
    call: Callable[[Argument], Result],
) -> Callable[[Argument], Result]:
    """Return `call`, wrapped in a new context manager of `around` for each call.

    Without `around`, return `call` itself.
    """
    if around is None:
        return call

    def call_in_context(argument: Argument) -> Result:
        with around(argument):
            return call(argument)
        raise RuntimeError("around: its context manager suppressed an exception")

    return call_in_context
