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


class Presence:
    """Looks up a consumer after a sign that it is gone, such as no responders.

    The deletion of a consumer is announced only to clients that are connected at that moment.
    `gone` is called on the I/O thread once two answers in a row say that the consumer, or its
    stream, does not exist. A missing answer or any other error proves nothing.
    """

    def __init__(
        self,
        api: API,
        name: str,
        on_deleted: Callable[[ConsumerDeletedError], object],
    ) -> None:
        """Prepare a check. The `name` is the stream and the consumer, joined by a dot."""
        self._api = api
        self._name = name
        self._on_deleted = on_deleted
        # Guards the inquiry and the timer. Re-entrant, because a signal handler may stop
        # the pull in the middle.
        self._lock = ForkSafeRLock()
        self._inquiry: CallbackRequest | None = None
        self._timer: Timer | None = None
        self._stopped = False

    def check(self) -> None:
        """Check whether the consumer exists, unless a request is open. Does not block."""
        self._request(None)

    def _request(self, before: Exception | None) -> None:
        """Send a request. `before` is an earlier answer that the consumer is gone."""
        with self._lock:
            if self._stopped or self._inquiry is not None or self._timer is not None:
                return
            subject, then = (
                f"CONSUMER.INFO.{self._name}",
                partial(self._on_reply, before),
            )
            # While disconnected this fails, and the next sign comes after the reconnect.
            with contextlib.suppress(Error):
                self._inquiry = CallbackRequest(self._api, subject, None, then)

    def _on_reply(self, before: Exception | None, answer: ReplyOrError) -> None:
        with self._lock:
            self._inquiry = None
        try:
            unwrap(answer)
        except (ConsumerNotFoundError, StreamNotFoundError) as error:
            if before is not None:
                call = self._on_deleted
                self.stop()
                gone = ConsumerDeletedError(
                    f"consumer {self._name} does not exist any more"
                )
                gone.__cause__ = error
                call(gone)
                return
            with self._lock:
                if not self._stopped:
                    again = partial(self._confirm, error)
                    self._timer = self._api.session.call_later(CONFIRM_SECONDS, again)
        except PermissionsError:
            self.stop()  # this user may not send such requests
        except Error:
            pass  # the next sign checks again

    def _confirm(self, before: Exception) -> None:
        with self._lock:
            self._timer = None
        self._request(before)

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
        self._on_deleted = _nobody  # breaks the reference cycle with the owner

    def __repr__(self) -> str:
        return f"<Presence of {self._name}>"


def _nobody(_: ConsumerDeletedError) -> None:
    """Ignore the error, because the owner is gone."""
