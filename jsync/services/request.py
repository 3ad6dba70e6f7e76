"""`Request`: the argument of handlers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ServiceError
from ..validation import check_count, check_str

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._fast import Msg
    from ..headers import Headers, HeadersLike


class Request:
    """A request to an endpoint.

    A handler returns its answer, or sends one or several answers with `respond` and
    `error`. The handler may keep the request, and answer later from any thread.

    Example:
        ```python
        service = nc.service("prices", "1.0.0")

        @service.endpoint("total")
        def total(request: jsync.Request) -> None:
            if request.data:
                request.respond(b"42")
            else:
                request.error(400, "no data")

        print(nc.request("total", b"abc").data)
        service.stop()
        ```
    """

    __slots__ = ("_failed", "answered_error", "counted_error", "msg")

    def __init__(
        self, msg: Msg, failed: Callable[[ServiceError], object] | None = None
    ) -> None:
        self.msg = msg
        """The message of the request."""
        self._failed = failed
        self.counted_error = False
        """True once `error` was called and the statistics have counted the error."""
        self.answered_error = False
        """True once `error` has sent its answer. No other answer follows it."""

    @property
    def subject(self) -> str:
        """The subject that the request was sent to."""
        return self.msg.subject

    @property
    def data(self) -> bytes:
        """The payload."""
        return self.msg.data

    @property
    def headers(self) -> Headers | None:
        """The headers, or None if there are none."""
        return self.msg.headers

    @property
    def reply(self) -> str | None:
        """The subject for the answer, or None if nobody waits for an answer."""
        return self.msg.reply

    def respond(self, data: bytes = b"", *, headers: HeadersLike | None = None) -> None:
        """Send an answer. Does not block.

        Args:
            data: The payload.
            headers: The headers of the answer.

        Raises:
            NoReplySubjectError: The message was published, so nobody waits for an answer.
            MaxPayloadError: The answer is larger than the server accepts.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with nc.service("prices", "1.0.0") as service:

                @service.endpoint("price")
                def price(request: jsync.Request) -> None:
                    request.respond(b"9.50")

                print(nc.request("price", b"book").data)
            ```
        """
        self.msg.respond(data, headers=headers)

    def error(
        self,
        code: int,
        description: str,
        data: bytes = b"",
        *,
        headers: HeadersLike | None = None,
    ) -> None:
        """Send an error as the answer. Does not block.

        The statistics count the error. Raising `ServiceError` sends the same answer, and
        ends the handler. After `error`, jsync sends no answer for the result of the handler, nor
        for its exception.

        Args:
            code: The number of the error, such as 404. HTTP codes are usual.
            description: A text that the requester may show to a user.
            data: The payload.
            headers: More headers.

        Raises:
            ConfigError: `code` or `description` is not valid. Nothing is sent.
            NoReplySubjectError: The message was published, so nobody waits for an answer.
            MaxPayloadError: The answer is larger than the server accepts.
            ConnectionClosedError: The connection is closed.
        """
        error = ServiceError(
            check_count(code, "code", 0), check_str(description, "description"), data
        )
        if (
            self._failed is not None
            and self.msg.reply is not None
            and not self.counted_error
        ):
            self.counted_error = True
            self._failed(error)
        self.msg.respond(data, headers={**(headers or {}), **error.headers})
        self.answered_error = True

    def __repr__(self) -> str:
        return f"<Request to {self.subject!r}, {len(self.data)} bytes>"
