"""Requests to the JetStream API that nobody waits for: the reply comes to a callback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .._fast import Mailbox
from ..errors import (
    JetStreamError,
    JetStreamNotEnabledError,
    TimeoutError as LateError,
)
from .replies import read_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .api import API

Answer = dict[str, Any] | Exception


class Inquiry:
    """One request, sent when it is made; `then(answer)` is called on the I/O thread.

    Once, with the reply or with what `API.request` would raise, at the latest after the
    API's timeout. Not at all after `cancel`, nor when the connection breaks or closes:
    who asks has to hear of that by itself.
    """

    def __init__(
        self,
        api: API,
        subject: str,
        payload: Mapping[str, Any] | None,
        then: Callable[[Answer], object],
    ) -> None:
        session = api.session
        self._session = session
        self._then: Callable[[Answer], object] | None = then
        self._subject = f"{api.prefix}.{subject}"
        self._box = Mailbox(session.outbox, 0, subject=self._subject)
        self._box.on_first = self._arrived
        self._timeout = api.timeout
        session.open_replies()
        self._token = session.replies.add(self._box)
        self._timer = session.call_later(api.timeout, self._late)
        data = b"" if payload is None else msgspec.json.encode(payload)
        reply = f"{session.replies.prefix}{self._token}"
        try:
            session.outbox.publish(self._subject, data, reply, request=True)
        except BaseException:
            self.cancel()
            raise

    def answer_to(self, then: Callable[[Answer], object]) -> None:
        """Have another callback called, unless one has been."""
        if self._then is not None:
            self._then = then

    def cancel(self) -> None:
        """Forget it; from any thread."""
        self._then = None
        self._timer.cancel()
        self._session.replies.discard(self._token)

    def _arrived(self) -> None:
        msg = self._box.get(0)
        if msg is None:
            return
        answer: Answer
        if msg.status == 503 and not msg.data:
            answer = JetStreamNotEnabledError(
                f"nobody answers on {self._subject}", code=503, err_code=10076
            )
        else:
            try:
                answer = read_reply(msg.data)
            except JetStreamError as error:
                answer = error
        self._answer(answer)

    def _late(self) -> None:
        failure = self._box.failure  # the permission to ask is missing, for one
        self._answer(
            failure
            or LateError(f"no reply to {self._subject!r} within {self._timeout} s")
        )

    def _answer(self, answer: Answer) -> None:
        then = self._then
        self.cancel()
        if then is not None:
            then(answer)

    def __repr__(self) -> str:
        return f"<Inquiry {self._subject} {'open' if self._then else 'ended'}>"
