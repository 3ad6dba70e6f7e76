"""Lists of streams and consumers: all of them, or those that answer."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, TypeVar

from jsync.errors import IncompleteListError

from .output import write_json, write_row, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .settings import Settings

Info = TypeVar("Info")


def write_names(names: Iterable[str], settings: Settings) -> None:
    """Write names, a line each."""
    if settings.json:
        write_json(list(names))
    else:
        for name in names:
            write_row([name])


def write_infos(
    infos: Iterable[Info],
    settings: Settings,
    columns: Sequence[str],
    row: Callable[[Info], Sequence[object]],
    document: Callable[[Info], object] = methodcaller("to_wire"),
) -> None:
    """Write what there is of each; then raise `IncompleteListError` for those that fail.

    `row` makes its cells of each, and `document` its JSON. Iterating may block, and raise what listing raises.
    """
    found, missing = gathered(infos)
    if settings.json:
        write_json([document(info) for info in found])
    else:
        write_table(columns, [row(info) for info in found])
    if missing is not None:
        raise missing


def gathered(
    infos: Iterable[Info],
) -> tuple[list[Info], IncompleteListError | None]:
    """Those that answer, and the error for the others. Iterating may block."""
    found: list[Info] = []
    try:
        for info in infos:
            found.append(info)  # noqa: PERF402 - the items before an error count
    except IncompleteListError as error:
        return found, error
    return found, None
