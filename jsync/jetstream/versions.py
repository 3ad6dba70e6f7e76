"""The line of nats-server that responds, and the features that it is too old for. Pure.

The needs of a request are `{feature: the line that brought it}`, without the features that
all servers since 2.10 have. If the connected server is new enough, no request is sent to
find out. If it is too old, newer servers may still be behind it, for example behind a leaf
node. So jsync requests `INFO` of the API, once for each connection, and the reply has the
API level of the server that responds (ADR-44). Without a reply, for example for lack of a
permission, the connected server decides.

Older servers behind a newer one are recognized by their behaviour. Since 2.12, servers
reject unknown fields (err_code 10025). Earlier ones silently ignored them, which the
metadata of the reply shows, because `_nats.level` is low or missing. Unknown requests get
no reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import UnsupportedFeatureError
from ..models.server_version import MIN_VERSION, ServerVersion, parse_version

if TYPE_CHECKING:
    from ..core.protocol import ServerInfo

Needs: TypeAlias = "Mapping[str, ServerVersion]"

NOTHING: Final[Needs] = {}
PAUSE: Final[Needs] = {"pausing of consumers": (2, 11)}
UNPIN: Final[Needs] = {"unpinning of priority groups": (2, 11)}
RESET: Final[Needs] = {"resetting of consumers": (2, 14)}
GET_BY_TIME: Final[Needs] = {"getting a message by its time": (2, 11)}
FAST_INGEST: Final[Needs] = {"fast ingest": (2, 14)}
DIRECT_BATCH: Final[Needs] = {"batched direct get": (2, 11)}
PENDING_BEHIND: Final[Needs] = {"exact counts of direct gets": (2, 12)}
"""nats-server 2.11 counts a message itself among those that follow it."""
CANCEL_AND_PUBLISH: Final[Needs] = {"cancelling a schedule by a message": (2, 14)}
RESTORE_RENAMED: Final[Needs] = {"restoring a stream under another name": (2, 15)}
RESTORE_ARCHIVE: Final[Needs] = {"backups made by nats-server 2.15": (2, 15)}
MEMORY_BACKUP: Final[Needs] = {"backups of streams in memory": (2, 15)}
PRIORITY_GROUPS: Final[Needs] = {"priority groups": (2, 11)}
WHOLE_SUBJECTS: Final[Needs] = {"partitions by the whole subject": (2, 12)}
PRIORITIES: Final[Needs] = {"priorities of pulls": (2, 12)}

_LEVELS: Final[tuple[ServerVersion, ...]] = (
    *(MIN_VERSION, (2, 11), (2, 12), (2, 12), (2, 14), (2, 15)),
)
_NEWEST: Final = _LEVELS[-1]


def line_of_level(level: int) -> ServerVersion:
    """Return the line with that API level, or the newest known one if it is unknown."""
    return _LEVELS[level] if 0 <= level < len(_LEVELS) else _NEWEST


def line_of_server(info: ServerInfo) -> ServerVersion:
    """Return the line of the server that sent this INFO, or the newest if unknown."""
    if info.api_lvl:
        return line_of_level(info.api_lvl)
    try:
        return parse_version(info.version)
    except ValueError:
        return _NEWEST


def line_of_config(config: Mapping[str, Any]) -> tuple[ServerVersion, str]:
    """Return line and version ("" if unknown) of the server that wrote this."""
    metadata = config.get("metadata")
    if not isinstance(metadata, Mapping):
        return MIN_VERSION, ""
    level = level_of(metadata)
    line = MIN_VERSION if level is None else line_of_level(level)
    version = metadata.get("_nats.ver")
    return line, version if isinstance(version, str) else ""


def level_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the API level of the server that wrote this, or None if unknown."""
    level = metadata.get("_nats.level")
    if isinstance(level, str) and level.isdecimal() and len(level) < 10:
        return int(level)
    return None


def lacking(needs: Needs, line: ServerVersion) -> Needs:
    """Return the needs that servers of `line` do not support."""
    return {what: since for what, since in needs.items() if since > line}


def unsupported(
    missing: Needs, version: str, outcome: str = "nothing was sent"
) -> UnsupportedFeatureError:
    """Make the error for missing features. `outcome` is the fate of the request."""
    whats = " and ".join(f"{what} (since {dotted(missing[what])})" for what in missing)
    return UnsupportedFeatureError(
        f"nats-server {version} does not support {whats}: {outcome}",
        feature=", ".join(missing),
        since=dotted(max(missing.values())),
        server_version=version,
    )


def dotted(line: ServerVersion) -> str:
    """Return `2.12` for `(2, 12)`."""
    return f"{line[0]}.{line[1]}"
