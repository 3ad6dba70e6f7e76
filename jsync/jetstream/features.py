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

Features: TypeAlias = "Mapping[str, ServerVersion]"

NO_FEATURES: Final[Features] = {}
PAUSE: Final[Features] = {"pausing of consumers": (2, 11)}
UNPIN: Final[Features] = {"unpinning of priority groups": (2, 11)}
RESET: Final[Features] = {"resetting of consumers": (2, 14)}
GET_BY_TIME: Final[Features] = {"getting a message by its time": (2, 11)}
FAST_INGEST: Final[Features] = {"fast ingest": (2, 14)}
DIRECT_BATCH: Final[Features] = {"batched direct get": (2, 11)}
PENDING_BEHIND: Final[Features] = {"exact counts of direct gets": (2, 12)}
"""nats-server 2.11 counts a message itself among those that follow it."""
CANCEL_AND_PUBLISH: Final[Features] = {"cancelling a schedule by a message": (2, 14)}
RESTORE_RENAMED: Final[Features] = {"restoring a stream under another name": (2, 15)}
RESTORE_ARCHIVE: Final[Features] = {"backups made by nats-server 2.15": (2, 15)}
MEMORY_BACKUP: Final[Features] = {"backups of streams in memory": (2, 15)}
PRIORITY_GROUPS: Final[Features] = {"priority groups": (2, 11)}
WHOLE_SUBJECTS: Final[Features] = {"partitions by the whole subject": (2, 12)}
PRIORITIES: Final[Features] = {"priorities of pulls": (2, 12)}

_LEVELS: Final[tuple[ServerVersion, ...]] = (
    *(MIN_VERSION, (2, 11), (2, 12), (2, 12), (2, 14), (2, 15)),
)
_NEWEST: Final = _LEVELS[-1]


def version_of_api_level(level: int) -> ServerVersion:
    """Return the line with that API level, or the newest known one if it is unknown."""
    return _LEVELS[level] if 0 <= level < len(_LEVELS) else _NEWEST


def version_of_server(info: ServerInfo) -> ServerVersion:
    """Return the line of the server that sent this INFO, or the newest if unknown."""
    if info.api_lvl:
        return version_of_api_level(info.api_lvl)
    try:
        return parse_version(info.version)
    except ValueError:
        return _NEWEST


def version_of_config(config: Mapping[str, Any]) -> tuple[ServerVersion, str]:
    """Return line and version ("" if unknown) of the server that wrote this."""
    metadata = config.get("metadata")
    if not isinstance(metadata, Mapping):
        return MIN_VERSION, ""
    level = level_of(metadata)
    line = MIN_VERSION if level is None else version_of_api_level(level)
    version = metadata.get("_nats.ver")
    return line, version if isinstance(version, str) else ""


def level_of(metadata: Mapping[str, Any]) -> int | None:
    """Return the API level of the server that wrote this, or None if unknown."""
    level = metadata.get("_nats.level")
    if isinstance(level, str) and level.isdecimal() and len(level) < 10:
        return int(level)
    return None


def missing_features(needs: Features, line: ServerVersion) -> Features:
    """Return the needs that servers of `line` do not support."""
    return {what: since for what, since in needs.items() if since > line}


def unsupported(
    missing: Features, version: str, outcome: str = "nothing was sent"
) -> UnsupportedFeatureError:
    """Make the error for missing features. `outcome` is the fate of the request."""
    whats = " and ".join(
        f"{what} (since {format_version(missing[what])})" for what in missing
    )
    return UnsupportedFeatureError(
        f"nats-server {version} does not support {whats}: {outcome}",
        feature=", ".join(missing),
        since=format_version(max(missing.values())),
        server_version=version,
    )


def format_version(line: ServerVersion) -> str:
    """Return `2.12` for `(2, 12)`."""
    return f"{line[0]}.{line[1]}"
