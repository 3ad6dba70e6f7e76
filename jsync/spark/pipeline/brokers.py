"""A check that the brokers of Kafka can be reached, before Spark starts."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .diagnostics import Diagnostics
    from .toml_lines import Key

BROKER_SECONDS: Final = 5.0
"""Seconds for a connection to a broker of Kafka."""
_BROKERS: Final = "kafka.bootstrap.servers"
_BROKER: Final = re.compile(r"(?:[\w.%-]*://)?\[?([\w.%:-]+?)\]?:(\d+)")


def check_brokers(options: Mapping[str, str], key: Key, problems: Diagnostics) -> None:
    """Check that a broker of Kafka takes connections. Blocks.

    Spark would try for minutes, and then report that the topic does not exist.
    """
    servers = next((v for k, v in options.items() if k.lower() == _BROKERS), "")
    failed = []
    for server in filter(None, map(str.strip, servers.split(","))):
        address = _BROKER.fullmatch(server)
        if address is None:
            failed.append(f"{server} (no port)")
            continue
        try:
            place = (address[1], int(address[2]))
            socket.create_connection(place, BROKER_SECONDS).close()
        except (OSError, OverflowError) as error:
            failed.append(f"{server} ({getattr(error, 'strerror', None) or error})")
        else:
            return
    if failed:
        message = f"no broker of Kafka takes a connection: {', '.join(failed)}"
        problems.add((*key, "options", _BROKERS), message)
