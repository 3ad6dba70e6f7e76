"""Output by `rich`: tables, bars and live screens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from jsync.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType
    from rich.segment import Segment


class _SafeConsole(Console):
    """A console that escapes all text, but not the control codes of `rich`."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))


def console(*, err: bool = False) -> Console:
    """Return the console of the standard output, or of the standard error."""
    return _SafeConsole(stderr=err)
