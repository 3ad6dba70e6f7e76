"""Requests: one reply, or many, through the one inbox of the connection."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from .._fast import Mailbox
from ..checks import callback, count, seconds
from ..errors import (
    ConfigError,
    ConnectionLostError,
    NoRespondersError,
    TimeoutError as LateError,
)
from .deadline import deadline_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .._fast import Msg
    from ..checks import Seconds
    from ..headers import HeadersLike
    from .session import Session

Data = bytes | bytearray | memoryview


def request(
    session: Session,
    subject: str,
    data: Data,
    timeout: Seconds,
    headers: HeadersLike | None = None,
) -> Msg:
    """What `Connection.request` does."""
    timeout = seconds(timeout, "timeout")
    return ask(session, subject, data, timeout, monotonic() + timeout, headers)


def ask(
    session: Session,
    subject: str,
    data: Data,
    timeout: float,
    deadline: float,
    headers: HeadersLike | None,
) -> Msg:
    """A request whose `timeout` has been looked at, and ends at `deadline`."""
    outbox, replies = session.outbox, session.replies
    outbox.check_process()
    if timeout <= 0:
        # Do not send: the service would do work that nobody waits for.
        raise LateError(f"no time for a request to {subject!r}: timeout is {timeout} s")
    session.open_replies()
    msg = replies.ask(outbox, subject, data, timeout, headers)
    while msg is False:
        session.await_connected(deadline)
        session.open_replies()
        msg = replies.ask(outbox, subject, data, deadline - monotonic(), headers)
    if msg is None:
        raise LateError(f"no reply to {subject!r} within {timeout} s")
    if msg.status == 503 and not msg.data:
        raise NoRespondersError(f"nobody is subscribed to {subject!r}")
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
    """What `Connection.request_many` does: the request now, the replies as iterated."""
    timeout = seconds(timeout, "timeout")
    deadline = deadline_after(timeout)
    if stall is not None:
        stall = seconds(stall, "stall")
        if stall <= 0:
            raise ConfigError(f"stall has to be above 0 seconds, not {stall!r}")
    if max_messages is not None:
        count(max_messages, "max_messages", 1)
    callback(sentinel, "sentinel")
    session.outbox.check_process()
    if timeout <= 0:
        raise LateError(f"no time for a request to {subject!r}: timeout is {timeout} s")
    mailbox, token = request_replies(session, subject, data, deadline, headers)
    replies = _replies(mailbox, deadline, stall, max_messages, sentinel)
    return _discarding(session, token, replies, subject)


def request_replies(
    session: Session,
    subject: str,
    data: Data,
    deadline: float,
    headers: HeadersLike | None = None,
) -> tuple[Mailbox, int]:
    """Publish a request: where its replies come, until the token is discarded.

    The loss of the connection closes the mailbox, and so does a refused permission.
    """
    session.outbox.check_process()
    while True:
        mailbox = Mailbox(session.outbox, 0, subject=subject)
        # After another request of this thread, the I/O thread leaves the socket alone
        # for a moment, and the waiting thread reads it.
        mailbox.alone = True
        token = session.replies.add(mailbox)
        try:
            session.open_replies()
            if _published(session, subject, data, token, headers, deadline):
                return mailbox, token
        except BaseException:
            session.replies.discard(token)
            raise
        session.replies.discard(token)


def _published(
    session: Session,
    subject: str,
    data: Data,
    token: int,
    headers: HeadersLike | None,
    deadline: float,
) -> bool:
    """Send the request; False when it has to be made anew, being connected by now."""
    reply = f"{session.replies.prefix}{token}"
    try:
        session.outbox.publish(subject, data, reply, headers, request=True)
    except ConnectionLostError:
        session.await_connected(deadline)
        return False
    return True


def _replies(
    mailbox: Mailbox,
    deadline: float,
    stall: float | None,
    max_messages: int | None,
    sentinel: Callable[[Msg], bool] | None,
) -> Iterator[Msg]:
    count = 0
    while max_messages is None or count < max_messages:
        until = deadline
        if stall is not None and count:
            until = min(until, monotonic() + stall)
        msg = mailbox.get_before(until)
        if msg is None:
            if mailbox.failure is not None:
                raise mailbox.failure
            return
        if sentinel is not None and sentinel(msg):
            return
        count += 1
        yield msg


def _discarding(
    session: Session, token: int, replies: Iterator[Msg], subject: str
) -> Iterator[Msg]:
    try:
        for msg in replies:
            if msg.status == 503 and not msg.data:
                raise NoRespondersError(f"nobody is subscribed to {subject!r}")
            yield msg
    finally:
        session.replies.discard(token)
