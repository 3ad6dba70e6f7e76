"""Find subscriptions that a server with a limit has refused. Pure: no socket, thread or clock."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

UNCERTAIN: Final = 0
"""A command for the server to end a subscription by itself, at a time that it does not tell."""


def refused_subscriptions(commands: Sequence[int], rejections: int) -> set[int] | None:
    """Find the subscriptions that the server refused with an error that names none.

    The server handles commands in their order, and refuses a SUB while the connection has its
    maximum number of subscriptions. How many more it might have had before the commands is
    not known, but each number leads to other rejections, so their count tells.

    Args:
        commands: The sid of each SUB, and the negative sid of each UNSUB, in their order.
        rejections: The number of errors of the server.

    Returns:
        The sids, or None if the commands do not tell which.
    """
    if UNCERTAIN in commands:
        return None
    count = len(commands)
    rooms = range(-count, count + 1)
    at = bisect_left(
        rooms, -rejections, key=lambda room: -len(_refused_with(commands, room))
    )
    refused = _refused_with(commands, rooms[at]) if at < len(rooms) else set()
    return refused if len(refused) == rejections else None


def _refused_with(commands: Sequence[int], room: int) -> set[int]:
    """Find the sids that are refused if the connection may have `room` more subscriptions."""
    refused: set[int] = set()
    for sid in commands:
        if sid < 0:
            room += -sid not in refused
        elif room > 0:
            room -= 1
        else:
            refused.add(sid)
    return refused
