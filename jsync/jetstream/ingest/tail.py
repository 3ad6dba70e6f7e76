"""Whether the rest of a broken ingest may be sent again: what its stream holds behind it.

A batch that breaks while its stream changes leaders is answered by two of them, and the one
that has been deposed may say less than what the stream goes on to store. A leader that has
been elected answers once it has stored all that can still come of the old one.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from ...errors import (
    ConnectionError as BrokenError,
    ConnectionLostError,
    Error,
    JetStreamUnavailableError,
    MessageNotFoundError,
    TimeoutError as LateError,
)
from ..management import stream_info
from ..stored.get import get_message

if TYPE_CHECKING:
    from ...models import StreamInfo
    from ..api import API
    from .engine import Tail

POLL_SECONDS: Final = 0.1
ELECTION_SECONDS: Final = 1.0
"""How long to wait for the answer of a leader that may be being elected."""
MOST_MESSAGES: Final = 1000
"""Messages of others that are looked at, at most."""


def doubt_about(
    api: API, tail: Tail, data: bytes | None, deadline: float
) -> str | None:
    """Why the stream may hold more of the ingest than `tail` says; None: it does not.

    `data` is the payload of its next message, which would be the first to be there; None
    when that is not known. Blocks, until `deadline` at most. A lost connection is raised.
    """
    try:
        info = _led(api, tail.stream, deadline)
        if tail.final and (info.config.num_replicas or 1) == 1:
            return None  # no other server has ever led the stream
        last = info.state.last_seq
        if tail.behind is not None and last == tail.sequence + tail.behind:
            return None
        return _doubt_among(api, tail, info, data, deadline)
    except BrokenError:
        raise
    except Error as error:
        return str(error)


def is_replicated(api: API, subject: str, deadline: float) -> bool:
    """Whether the stream of `subject` has replicas, or that cannot be known.

    Blocks, until `deadline` at most, also for the connection.
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
                api.session.await_connected(deadline)
            except Error:
                return True
        except Error:
            return True


def _led(api: API, stream: str, deadline: float) -> StreamInfo:
    """The stream as its leader has it, when there is one again."""
    while True:
        left = deadline - monotonic()
        try:
            info = stream_info(api, stream, timeout=min(left, ELECTION_SECONDS))
        except (LateError, JetStreamUnavailableError):
            if left <= ELECTION_SECONDS:
                raise
            continue
        cluster = info.cluster
        if cluster is None or cluster.is_of_leader:
            return info
        if left <= POLL_SECONDS:
            raise LateError("the stream has no leader")
        api.session.sleep(POLL_SECONDS)


def _doubt_among(
    api: API, tail: Tail, info: StreamInfo, data: bytes | None, deadline: float
) -> str | None:
    """Why one of the messages behind `tail` may be the next one of the ingest."""
    last = info.state.last_seq
    if last < tail.sequence:
        return f"stream {tail.stream!r} was deleted and created again"
    behind = f"{last - tail.sequence} messages follow {tail.sequence} in stream {tail.stream!r}"
    if last - tail.sequence > MOST_MESSAGES or data is None:
        return f"{behind}, and may belong to the ingest"
    if info.config.allow_msg_counter:
        return f"{behind}, which stores counters, and may belong to the ingest"
    for sequence in range(tail.sequence + 1, last + 1):
        try:
            found = get_message(
                api,
                tail.stream,
                sequence=sequence,
                direct=False,
                timeout=deadline - monotonic(),
            )
        except MessageNotFoundError:
            return (
                f"message {sequence} of stream {tail.stream!r} is gone, and may have "
                "belonged to the ingest"
            )
        # Compare the data: mappings and transforms change subjects.
        if found.data == data:
            return (
                f"message {sequence} of stream {tail.stream!r} may belong to the ingest"
            )
    return None
