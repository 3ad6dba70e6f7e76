"""Decorators of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

Decorator: TypeAlias = "Callable[[Callable[..., Any]], Callable[..., Any]]"


def with_options(*options: Decorator) -> Decorator:
    """Return a decorator that adds options, in the order of the help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
