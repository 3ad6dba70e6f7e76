"""Every command: where it is, and what it does in a line.

The lines are all that `jsync --help` needs, so that no command is imported for it. A test
holds them against the commands' own help.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Command(NamedTuple):
    """Where a command is, and what it does."""

    where: str
    """`module:name`, below `jsync.cli`."""
    help: str


SECTIONS: Final[dict[str, dict[str, Command]]] = {
    "JetStream": {
        "stream": Command("stream:stream", "Create, look at and change streams."),
    },
    "Data": {
        "ingest": Command("ingest.command:ingest", "Rows of files into a stream."),
    },
}

HIDDEN: Final = {
    "str": "stream",
    "s": "stream",
}
"""Other names of commands, which the nats command line tool has."""
