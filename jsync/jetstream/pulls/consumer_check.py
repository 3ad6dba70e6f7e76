"""Finds out whether a consumer still exists when requests to it have no responders."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from ...core.sync import ForkSafeRLock
from ...errors import (
    ConsumerDeletedError,
    ConsumerNotFoundError,
    Error,
    PermissionsError,
    StreamNotFoundError,
)
from ...models import ConsumerInfo
from ..api import CallbackRequest
from ..steps import unwrap

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.timers import Timer
    from ..api import API
    from ..steps import ReplyOrError

CONFIRM_SECONDS: Final = 5.0
"""Seconds until the second request. Another program may create the consumer again until then, and
the servers of a cluster may not know all consumers right after their start."""


class ConsumerCheck:
    """Looks up a consumer after a sign that it is gone, such as no responders.

    The deletion of a consumer is announced only to clients that are connected at that moment.
    `on_deleted` is called on the I/O thread once two answers in a row say that the consumer, or
    its stream, does not exist. A missing answer or any other error proves nothing.
    """

    def __init__(
        self,
        api: API,
        name: str,
        on_deleted: Callable[[ConsumerDeletedError], object],
        replaced: Callable[[ConsumerInfo], str | None] | None = None,
    ) -> None:
        """Prepare a check. The `name` is the stream and the consumer, joined by a dot.

        If `replaced` is given and returns a reason for a consumer of this name, this is not
        the consumer that was read, and counts as deleted.
        """
        self._api = api
        self._name = name
        self._on_deleted = on_deleted
        self._replaced = replaced
        # Guards the inquiry and the timer. Re-entrant, because a signal handler may stop
        # the pull in the middle.
        self._lock = ForkSafeRLock()
        self._inquiry: CallbackRequest | None = None
        self._timer: Timer | None = None
        self._stopped = False

    def check(self) -> None:
        """Check whether the consumer exists, unless a request is open. Does not block."""
        self._request(again=False)

    def _request(self, *, again: bool) -> None:
        """Send a request, `again` after an answer that the consumer is gone."""
        with self._lock:
            if self._stopped or self._inquiry is not None or self._timer is not None:
                return
            subject, then = (
                f"CONSUMER.INFO.{self._name}",
                partial(self._on_reply, again),
            )
            # While disconnected this fails, and the next sign comes after the reconnect.
            with contextlib.suppress(Error):
                self._inquiry = CallbackRequest(self._api, subject, None, then)

    def _on_reply(self, again: bool, reply: ReplyOrError) -> None:
        with self._lock:
            self._inquiry = None
        cause: Error | None = None
        try:
            found = unwrap(reply)
            replaced = self._replaced
            if replaced is None:
                return
            reason = replaced(ConsumerInfo.from_wire(found))
            if reason is None:
                return
        except (ConsumerNotFoundError, StreamNotFoundError) as error:
            reason, cause = "does not exist any more", error
        except PermissionsError:
            self.stop()  # this user may not send such requests
            return
        except Error:
            return  # the next sign checks again
        if again:
            call = self._on_deleted
            self.stop()
            gone = ConsumerDeletedError(f"consumer {self._name} {reason}")
            gone.__cause__ = cause
            call(gone)
            return
        with self._lock:
            if not self._stopped:
                self._timer = self._api.session.call_later(
                    CONFIRM_SECONDS, self._confirm
                )

    def _confirm(self) -> None:
        with self._lock:
            self._timer = None
        self._request(again=True)

    def reset(self) -> None:
        """Forget earlier answers and the open request, because the connection was lost."""
        with self._lock:
            inquiry, self._inquiry = self._inquiry, None
            timer, self._timer = self._timer, None
        if inquiry is not None:
            inquiry.cancel()
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        """Send no more requests, and report nothing."""
        self.close_nowait()
        self.reset()

    def close_nowait(self) -> None:
        """Report nothing any more. Takes no lock, so finalisers may call it."""
        self._stopped = True
        # Break the reference cycle with the owner.
        self._on_deleted, self._replaced = _ignore, None

    def __repr__(self) -> str:
        return f"<ConsumerCheck of {self._name}>"


def _ignore(_: ConsumerDeletedError) -> None:
    """Ignore the error, because the owner is gone."""
