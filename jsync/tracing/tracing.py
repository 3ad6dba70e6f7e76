"""`Connection.trace`: send a message, and learn which way it takes."""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Final

from .. import errors
from ..core.subscription import subscribe
from ..errors import ConfigError
from ..headers import Headers
from ..jetstream.features import missing_features, unsupported, version_of_server
from ..validation import check_bool, check_seconds, format_seconds
from .engine import DESTINATION, ONLY, Collector

if TYPE_CHECKING:
    from ..core.requests import Data
    from ..core.session import HasSession
    from ..headers import HeadersLike
    from ..jetstream.features import Features
    from ..validation import Seconds
    from .engine import Trace

TRACES: Final[Features] = {"traces of messages": (2, 11)}


def trace(
    owner: HasSession,
    subject: str,
    data: Data,
    headers: HeadersLike | None,
    *,
    deliver: bool,
    timeout: Seconds,
) -> Trace:
    """Send a message and collect its trace, for `Connection.trace`."""
    timeout = check_seconds(timeout, "timeout")
    check_bool(deliver, "deliver")
    session = owner._session
    # An older server would deliver the message, and report nothing.
    if missing := missing_features(TRACES, version_of_server(session.info)):
        raise unsupported(missing, session.info.version)
    given = Headers(headers or {})
    for name in (DESTINATION, ONLY):
        if name in given:
            raise ConfigError(f"headers: {name} belongs to the trace itself")
    inbox = f"{session.options.inbox_prefix}.{os.urandom(11).hex()}"
    added = {name: given.get_all(name) for name in given}
    added[DESTINATION] = [inbox]
    if not deliver:
        added[ONLY] = ["true"]
    found = Collector()
    deadline = monotonic() + timeout
    with subscribe(owner, inbox) as sub:
        session.write_buffer.publish(subject, data, None, added)
        while not found.complete:
            try:
                found.take(sub.next(max(0.0, deadline - monotonic())).data)
            except errors.TimeoutError:
                break
    result = found.trace()
    if not result.hops:
        raise errors.TimeoutError(
            f"no server told of the message within {format_seconds(timeout)}"
        )
    return result
