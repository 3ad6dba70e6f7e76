"""Requests for one reply or many, through the shared inbox of the connection."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from .. import errors
from .._fast import Mailbox, safe_finalizer
from ..errors import (
    ConcurrentUseError,
    ConfigError,
    ConnectionLostError,
    NoRespondersError,
)
from ..validation import (
    check_count,
    check_optional_callable,
    check_seconds,
    format_seconds,
)
from .clock import deadline_after
from .resources import NotCopyable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    from .._fast import Msg
    from ..headers import HeadersLike
    from ..validation import Seconds
    from .session import Session

Data = bytes | bytearray | memoryview


def request(
    session: Session,
    subject: str,
    data: Data,
    timeout: Seconds,
    headers: HeadersLike | None = None,
) -> Msg:
    """Send a request and wait for its reply, for `Connection.request`."""
    timeout = check_seconds(timeout, "timeout")
    return request_until(
        session, subject, data, timeout, monotonic() + timeout, headers
    )


def request_until(
    session: Session,
    subject: str,
    data: Data,
    timeout: float,
    deadline: float,
    headers: HeadersLike | None,
    others: list[bytes] | None = None,
) -> Msg:
    """Send a request and wait for its reply. The `timeout` is checked by the caller.

    With `others`, only a stream's reply counts, and the list gets the first reply of
    another responder.
    """
    write_buffer, reply_mux = session.write_buffer, session.reply_mux
    write_buffer.check_process()
    if timeout <= 0:
        # Do not send: the service would work for a reply that no caller waits for.
        raise errors.TimeoutError(
            f"no time for a request to {subject!r}: timeout is {format_seconds(max(timeout, 0))}"
        )
    if not reply_mux.is_open:
        session.open_replies()
    msg = reply_mux.request(write_buffer, subject, data, timeout, headers, others)
    while msg is False:
        session.wait_connected(deadline)
        session.open_replies()
        left = deadline - monotonic()
        msg = reply_mux.request(write_buffer, subject, data, left, headers, others)
    if msg is None:
        raise errors.TimeoutError(
            f"no reply to {subject!r} within {format_seconds(timeout)}"
        )
    if msg.status == 503 and not msg.data:
        raise NoRespondersError(
            f"no responders for {subject!r}: no client subscribes to it"
        )
    return msg


def request_many(
    session: Session,
    subject: str,
    data: Data,
    timeout: Seconds,
    stall: Seconds | None,
    max_messages: int | None,
    sentinel: Callable[[Msg], bool] | None,
    headers: HeadersLike | None,
) -> Iterator[Msg]:
    """Send a request, and return an iterator of its replies.

    This is the implementation of `Connection.request_many`.
    """
    timeout = check_seconds(timeout, "timeout")
    deadline = deadline_after(timeout)
    if stall is not None:
        stall = check_seconds(stall, "stall")
        if stall <= 0:
            raise ConfigError(f"stall has to be above 0 seconds, not {stall!r}")
    if max_messages is not None:
        check_count(max_messages, "max_messages", 1)
    check_optional_callable(sentinel, "sentinel")
    session.write_buffer.check_process()
    if timeout <= 0:
        raise errors.TimeoutError(
            f"no time for a request to {subject!r}: timeout is {format_seconds(max(timeout, 0))}"
        )
    mailbox, token = open_request(session, subject, data, deadline, headers)
    return ReplyIterator(
        session, mailbox, token, subject, deadline, stall, max_messages, sentinel
    )


def open_request(
    session: Session,
    subject: str,
    data: Data,
    deadline: float,
    headers: HeadersLike | None = None,
) -> tuple[Mailbox, int]:
    """Publish a request. Return the mailbox of its replies, and the token to discard.

    The loss of the connection or a refused permission closes the mailbox.
    """
    session.write_buffer.check_process()
    while True:
        mailbox = Mailbox(session.write_buffer, 0, subject=subject)
        # Right after another request of this thread, the I/O thread does not read the
        # socket for a moment, and the waiting thread reads it.
        mailbox.alone = True
        token = session.reply_mux.add(mailbox)
        try:
            session.open_replies()
            if _publish_request(session, subject, data, token, headers, deadline):
                return mailbox, token
        except BaseException:
            session.reply_mux.discard(token)
            raise
        session.reply_mux.discard(token)


def _publish_request(
    session: Session,
    subject: str,
    data: Data,
    token: int,
    headers: HeadersLike | None,
    deadline: float,
) -> bool:
    """Send the request. If the connection was lost, wait for the next, return False."""
    reply = f"{session.reply_mux.prefix}{token}"
    try:
        session.write_buffer.publish(subject, data, reply, headers, request=True)
    except ConnectionLostError:
        session.wait_connected(deadline)
        return False
    return True


class ReplyIterator(NotCopyable):
    """The replies to one request, as they come. `Connection.request_many` returns it.

    The connection keeps the token until the iteration ends or the object is collected.
    This is not a generator, because the `finally` of one would not run if no reply is ever
    taken.
    """

    def __init__(
        self,
        session: Session,
        mailbox: Mailbox,
        token: int,
        subject: str,
        deadline: float,
        stall: float | None,
        max_messages: int | None,
        sentinel: Callable[[Msg], bool] | None,
    ) -> None:
        self._replies = session.reply_mux
        self._mailbox = mailbox
        self._token = token
        self._subject = subject
        self._deadline = deadline
        self._stall = stall
        self._max_messages = max_messages
        self._sentinel = sentinel
        self._count = 0
        self._ended = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Msg:
        if self._ended:
            raise StopIteration
        try:
            msg = self._take()
        except ConcurrentUseError:
            raise  # another thread is iterating, and may continue
        except BaseException:
            self.close()
            raise
        if msg is None:
            self.close()
            raise StopIteration
        return msg

    def _take(self) -> Msg | None:
        """Wait for the next reply and return it, or None at the end."""
        if self._max_messages is not None and self._count >= self._max_messages:
            return None
        until = self._deadline
        if self._stall is not None and self._count:
            until = min(until, monotonic() + self._stall)
        msg = self._mailbox.get_before(until)
        if msg is None:
            if self._mailbox.failure is not None:
                raise self._mailbox.failure
            return None
        if self._sentinel is not None and self._sentinel(msg):
            return None
        if msg.status == 503 and not msg.data:
            raise NoRespondersError(
                f"no responders for {self._subject!r}: no client subscribes to it"
            )
        self._count += 1
        return msg

    def close(self) -> None:
        """End the iteration, and drop the replies that have come. Does not block.

        You may call it from any thread, and twice.
        """
        self._ended = True
        self._replies.discard(self._token)
        self._mailbox.close(discard=True)

    @safe_finalizer
    def __del__(self) -> None:
        token = getattr(self, "_token", None)
        if token is not None:  # None if Ctrl-C interrupted __init__
            self._replies.discard(token)

    def __repr__(self) -> str:
        state = "ended" if self._ended else "open"
        return f"<ReplyIterator of {self._subject!r} {state}, {self._count} taken>"
