"""An instance of the service of the campaign, which runs in the test or in a process.

`python -m tests.faults.service_host URL` runs one until it is killed.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

import jsync

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 3
MAX_PENDING = 20
"""The requests that may wait for a thread of an instance. As many more are refused, and the rest is
dropped."""
TOO_LARGE = b"x" * (2 << 20)
FAILING = {"raise", "broken", "fail", "error", "twice", "large", "largest"}
"""The kinds of requests whose answer is one error."""


class BrokenError(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise LookupError("no text")


def handle(request: jsync.Request) -> bytes | None:
    """Answer, fail, answer later, or do several of these, as the request says."""
    answer = request.data[::-1]
    match request.data.split()[0]:
        case b"raise":
            raise LookupError("not for the caller")
        case b"broken":
            raise BrokenError
        case b"fail":
            raise jsync.errors.ServiceError(409, "refused", request.data)
        case b"error":
            request.error(404, request.data.decode())
            return None
        case b"twice":
            request.error(404, request.data.decode())
            raise LookupError("after the answer")
        case b"largest":
            request.error(404, "too large to be sent", TOO_LARGE)
        case b"large":
            return TOO_LARGE
        case b"later":
            threading.Timer(0.01, request.respond, (answer,)).start()
            return None
        case b"slow":
            time.sleep(0.05)
    return answer


def begin(
    nc: jsync.Connection,
    *,
    handled: list[str],
    exposed: bool = False,
    on_done: Callable[[jsync.Service], object] | None = None,
) -> jsync.Service:
    """Start an instance, and return once the server has its subscriptions.

    `handled` gets the kind of each request that its handler is called with.
    """

    def note_and_handle(request: jsync.Request):  # type: ignore[no-untyped-def]
        handled.append(request.data.split()[0].decode())
        return handle(request)

    service = nc.service("work", "1.0.0", expose_errors=exposed, on_done=on_done)
    service.endpoint("work", workers=WORKERS, max_pending_messages=MAX_PENDING)(
        note_and_handle
    )
    nc.flush()
    return service


def main(url: str) -> None:
    with jsync.connect(
        url, reconnect_wait=0.05, max_reconnects=-1, on_error=lambda _: None
    ) as nc:
        begin(nc, handled=[], exposed=True)
        print("ready", flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
