"""Removal of delete markers, and of the remaining history of their keys."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ..management import purge_stream, stream_info
from ..watching.driver import open_watch
from .engine import is_readable
from .watch import Watch

if TYPE_CHECKING:
    from ...validation import Seconds
    from ..api import API
    from .engine import BucketLayout

MARKER_RETENTION = 30 * 60.0


def purge_markers(
    api: API, layout: BucketLayout, older_than: float, timeout: Seconds | None
) -> int:
    """Do the work of `KeyValue.purge_deletes`. Return the number of removed markers.

    Each purge has a bound by revision, so that a value that was put after the marker stays.
    """
    if isinstance(older_than, bool) or not isinstance(older_than, int | float):
        raise ConfigError(f"older_than has to be seconds, not {older_than!r}")
    if not 0 <= older_than < 1e9:
        raise ConfigError(f"older_than has to be 0 or more, not {older_than!r}")
    with open_watch(
        api, layout, (), Watch, headers_only=True, timeout=timeout
    ) as watch:
        markers = [entry for entry in watch.initial() if entry.operation != "PUT"]
    # The markers have the time of the server, from which that of this machine may differ.
    now = stream_info(api, layout.stream, timeout=timeout).ts or datetime.now(UTC)
    limit = now - timedelta(seconds=older_than)
    removed = 0
    for marker in markers:
        # A purge by the subject of another client's key `a.*` would also remove the values of all
        # keys that it matches, and no purge can name a key that is not text. Buckets deny the
        # deletion of one message.
        if not is_readable(marker.key, layout.read):
            continue
        old = marker.created <= limit
        if not old and marker.revision == 1:
            continue
        purge_stream(
            api,
            layout.stream,
            subject=layout.read + marker.key,
            sequence=marker.revision + old,
            keep=None,
            timeout=timeout,
        )
        removed += old
    return removed
