"""Checks whether the rest of a broken ingest can be sent again without duplicates.

If the leader of a stream changes during a batch, the former leader may acknowledge fewer
messages than the stream stores in the end. The new leader answers only after it has stored
all messages that can still come from the former one.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from ... import errors
from ...errors import ConnectionLostError, Error, MessageNotFoundError
from ..management import stream_info
from ..stored.get import get_message
from ..stream_end.driver import stream_end

if TYPE_CHECKING:
    from ...models import StreamInfo
    from ..api import API
    from .engine import RecoveryPoint

MAX_MESSAGES: Final = 1000
"""The most messages of other publishers that are read."""


def find_ambiguity(
    api: API, point: RecoveryPoint, data: bytes | None, deadline: float
) -> str | None:
    """Return why the stream may hold more of the ingest than `point` says, or None if not.

    `data` is the payload of the next message of the ingest, which would be stored first, or
    None if it is unknown. Blocks until `deadline` at most. Raises `ConnectionError` if the
    connection is lost or closed.
    """
    try:
        info = stream_end(api, point.stream, deadline).info
        if point.final and (info.config.num_replicas or 1) == 1:
            return None  # no other server has ever led the stream
        last = info.state.last_seq
        if point.following is not None and last == point.sequence + point.following:
            return None
        return _find_ambiguity_among(api, point, info, data, deadline)
    except errors.ConnectionError:
        raise
    except Error as error:
        return str(error)


def is_replicated(api: API, subject: str, deadline: float) -> bool:
    """Return whether the stream of `subject` has replicas. True if that is unknown.

    Blocks until `deadline` at most, also while there is no connection.
    """
    while True:
        try:
            reply = api.request(
                "STREAM.NAMES", {"subject": subject}, timeout=deadline - monotonic()
            )
            names = list(reply.get("streams") or [])
            if len(names) != 1:
                return True
            info = stream_info(api, str(names[0]), timeout=deadline - monotonic())
            return info.config.num_replicas != 1
        except ConnectionLostError:
            try:
                api.session.wait_connected(deadline)
            except Error:
                return True
        except Error:
            return True


def _find_ambiguity_among(
    api: API,
    point: RecoveryPoint,
    info: StreamInfo,
    data: bytes | None,
    deadline: float,
) -> str | None:
    """Return why one of the messages after `point` may be the next one of the ingest."""
    last = info.state.last_seq
    if last < point.sequence:
        return f"stream {point.stream!r} was deleted and created again"
    others = f"{last - point.sequence} messages follow {point.sequence} in stream {point.stream!r}"
    if last - point.sequence > MAX_MESSAGES or data is None:
        return f"{others}, and may belong to the ingest"
    if info.config.allow_msg_counter:
        return f"{others}, which stores counters, and may belong to the ingest"
    for sequence in range(point.sequence + 1, last + 1):
        try:
            found = get_message(
                api,
                point.stream,
                sequence=sequence,
                direct=False,
                timeout=deadline - monotonic(),
            )
        except MessageNotFoundError:
            return (
                f"message {sequence} of stream {point.stream!r} is gone, and may have "
                "belonged to the ingest"
            )
        # Compare the data: mappings and transforms change subjects.
        if found.data == data:
            return f"message {sequence} of stream {point.stream!r} may belong to the ingest"
    return None
