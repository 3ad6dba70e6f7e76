"""Lists of streams and consumers, even if some of them do not answer."""

from __future__ import annotations

from operator import methodcaller
from typing import TYPE_CHECKING, TypeVar

from jsync.errors import IncompleteListError

from .output import OutputSettings, write_json, write_row, write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


Info = TypeVar("Info")


def write_names(names: Iterable[str], settings: OutputSettings) -> None:
    """Write names, one on each line."""
    if settings.json:
        write_json(list(names))
    else:
        for name in names:
            write_row([name])


def write_infos(
    infos: Iterable[Info],
    settings: OutputSettings,
    columns: Sequence[str],
    row: Callable[[Info], Sequence[object]],
    document: Callable[[Info], object] = methodcaller("to_wire"),
) -> None:
    """Write the infos that arrive, and then raise the error for the missing ones.

    `row` returns the cells of one info, and `document` its JSON. Iteration may block,
    and may raise the errors of a list request. Raises `IncompleteListError` if some of
    the infos are missing.
    """
    found, missing = collect(infos)
    if settings.json:
        write_json([document(info) for info in found])
    else:
        write_table(columns, [row(info) for info in found])
    if missing is not None:
        raise missing


def collect(infos: Iterable[Info]) -> tuple[list[Info], IncompleteListError | None]:
    """Return the infos that arrive, and the error for the missing ones.

    Iteration may block.
    """
    found: list[Info] = []
    try:
        for info in infos:
            found.append(info)  # noqa: PERF402 - the items before an error count
    except IncompleteListError as error:
        return found, error
    return found, None
