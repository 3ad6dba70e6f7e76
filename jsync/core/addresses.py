"""The addresses of a host name, in the order in which to try them.

Pure: the connection resolves the name, and passes in the shuffling.
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Address: TypeAlias = tuple[int, int, int, str, tuple[Any, ...]]
"""One address, as `socket.getaddrinfo` returns it."""


def in_order(
    found: Iterable[Address], shuffle: Callable[[list[Address]], None] | None
) -> list[Address]:
    """Return the addresses in an order that spreads clients and alternates families.

    The addresses of each family are shuffled (ADR-11), unless `shuffle` is None. The
    system's first family comes first, and alternates with the other one, so that a host
    with unreachable IPv6 does not wait for each of its IPv6 addresses.
    """
    families: dict[int, list[Address]] = {}
    for address in dict.fromkeys(found):
        families.setdefault(address[0], []).append(address)
    if shuffle is not None:
        for addresses in families.values():
            shuffle(addresses)
    rounds = zip_longest(*families.values())
    return [address for address in chain.from_iterable(rounds) if address is not None]
