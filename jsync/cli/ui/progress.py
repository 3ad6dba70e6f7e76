"""A progress bar on the standard error, if that is a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from .console import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType


class ProgressState(NamedTuple):
    """The progress at one moment."""

    what: str
    done: float
    total: float | None
    """The end, in the unit of `done`, or None if it is not known."""
    messages: int
    """The number of messages so far."""


class Bar(Progress):
    """A bar that shows the result of `get_state` several times a second, on another thread.

    `get_state` is called on that thread, so it may only read. Lines that are written to the
    standard error while the bar runs stand above it.
    """

    def __init__(
        self, get_state: Callable[[], ProgressState], verb: str, *, shown: bool = True
    ) -> None:
        self._get_state = get_state
        self._only: TaskID | None = None
        super().__init__(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Count(verb),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console(err=True),
            transient=True,
            disable=not (shown and sys.stderr.isatty()),
        )
        self._only = self.add_task("", total=None, count=0)

    def get_renderables(self) -> Iterable[RenderableType]:
        if self._only is not None:
            what, done, total, messages = self._get_state()
            self.update(
                self._only,
                description=what,
                completed=done,
                total=total,
                count=messages,
            )
        yield self.make_tasks_table(self.tasks)


class _Count(ProgressColumn):
    """The column `123,456 stored, 65,432/s`."""

    def __init__(self, verb: str) -> None:
        super().__init__(Column(no_wrap=True))
        self._verb = verb

    def render(self, task: Task) -> Text:
        count: int = task.fields["count"]
        rate = f", {count / task.elapsed:,.0f}/s" if count and task.elapsed else ""
        return Text(f"{count:,} {self._verb}{rate}")
