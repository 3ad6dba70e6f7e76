"""Get messages of a stream without a consumer, one by one or in batches, and delete them."""

from __future__ import annotations

import contextlib
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from ... import errors
from ..._fast import check_publish_subject
from ...core.clock import deadline_after
from ...core.requests import open_request, request_until
from ...errors import (
    ConfigError,
    ConnectionLostError,
    DirectGetError,
    DirectGetNotAllowedError,
    Error,
    InvalidSubjectError,
    JetStreamError,
    JetStreamNotEnabledError,
    JetStreamUnavailableError,
    MessageDeleteError,
    MessageNotFoundError,
    NoRespondersError,
    PermissionsError,
)
from ...models import StoredMessage, check_filter
from ...models.codec import wire_time
from ...models.stored import is_stored, parse_direct_headers
from ...validation import check_int, format_seconds
from ..features import DIRECT_BATCH, GET_BY_TIME
from ..management import stream_info
from ..publishing.publish import RETRY_SECONDS
from ..stream_end.driver import stream_pending
from .engine import ReadAction, direct_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ..._fast import DirectGetReply, Msg
    from ...models import StreamInfo
    from ...validation import Seconds
    from ..api import API
    from .engine import Item, PagedReader

MIN_POLL_INTERVAL, MAX_POLL_INTERVAL = 0.02, 0.5
"""The first and the longest pause before servers that lag behind the leader are retried."""
MIRROR_CHECK_SECONDS = 1.0
"""Seconds for which it is taken as known that a mirror keeps the subjects of its origin."""
MAX_DELETED = 100_000
"""The most deleted messages of a mirror that are compared with those of its origin."""
ELECTION_SECONDS = 1.0
"""Seconds to wait for the answer of a leader that may be in an election."""

_encode = msgspec.json.Encoder().encode


def get_message(
    api: API,
    stream: str,
    *,
    sequence: int | None = None,
    last_by_subject: str | None = None,
    next_by_subject: str | None = None,
    start_time: datetime | None = None,
    direct: bool,
    timeout: Seconds | None,
) -> StoredMessage:
    """Do the work of `Stream.get_message`, first by a direct get if `direct`."""
    query = _get_query(sequence, last_by_subject, next_by_subject, start_time)
    if start_time is not None:
        api.require(GET_BY_TIME)
    deadline = monotonic() + api.seconds(timeout)
    if direct:
        with contextlib.suppress(NoRespondersError):
            message = _direct_get(api, stream, query, deadline)
            # A mirror may lack some subjects, and so skip the right message.
            if message is not None and (
                message.stream == stream
                or (
                    _is_exact(query)
                    and _keeps_subjects(api, message.stream, stream, deadline)
                )
            ):
                return message
    reply = api.request(
        f"STREAM.MSG.GET.{stream}", query, timeout=deadline - monotonic()
    )
    message = reply.get("message")
    if not isinstance(message, dict):
        raise JetStreamError(f"not a stored message: {reply!r}")
    return StoredMessage.from_api(stream, message)


def direct_get_of_subject(
    api: API, stream: str, subject: str, deadline: float
) -> tuple[Msg, DirectGetReply] | None:
    """Get the last message of a subject from any server that has all messages of the stream.

    Args:
        api: The API.
        stream: The name of the stream.
        subject: A subject without wildcards, which the caller has checked.
        deadline: The end of the wait, by `monotonic`.

    Returns:
        The reply and the fields of its headers. None: the server lacks the message, or may
        lack it, so query the leader.

    Raises:
        NoRespondersError: No server answers direct gets.
        DirectGetError: The server refuses the request.
        JetStreamError: The reply is not a stored message.
    """
    request = f"{api.prefix}.DIRECT.GET.{stream}.{subject}"
    left = deadline - monotonic()
    msg = request_until(api.session, request, b"", left, deadline, None)
    if msg.status is not None and not is_stored(msg):
        if msg.status == 404:
            return None
        raise direct_error(msg.status, msg.status_text)
    answer = parse_direct_headers(msg, batched=False)
    if answer is None:
        raise JetStreamError("not a stored message, but one of a batch")
    if answer.stream == stream or _keeps_subjects(api, answer.stream, stream, deadline):
        return msg, answer
    return None


def _get_query(
    sequence: int | None,
    last_by_subject: str | None,
    next_by_subject: str | None,
    start_time: datetime | None,
) -> dict[str, Any]:
    """Make the request for one message. Raises `ConfigError` if it is not clear which."""
    if last_by_subject is not None:
        if (sequence, next_by_subject, start_time) != (None, None, None):
            raise ConfigError("last_by_subject excludes the other arguments")
        check_filter(last_by_subject, "last_by_subject")
        return {"last_by_subj": last_by_subject}
    if sequence is not None and start_time is not None:
        raise ConfigError("sequence and start_time exclude each other: give one")
    query: dict[str, Any] = {}
    if sequence is not None:
        query["seq"] = check_int(sequence, "sequence", 1)
    if start_time is not None:
        query["start_time"] = wire_time(start_time, "start_time")
        # Without a subject the server would return the message of that moment, not the
        # next.
        query["next_by_subj"] = ">"
    if next_by_subject is not None:
        check_filter(next_by_subject, "next_by_subject")
        query["next_by_subj"] = next_by_subject
    if not query:
        raise ConfigError(
            "which message: give sequence, last_by_subject, next_by_subject or start_time"
        )
    return query


def _direct_get(
    api: API, stream: str, query: dict[str, Any], deadline: float
) -> StoredMessage | None:
    """Get a message from any server. None: that server lacks it, so query the leader.

    A replica or a mirror may lag, so a message that it lacks may exist on the leader. Raises
    `NoRespondersError` if no server answers direct gets.
    """
    subject, data = f"{api.prefix}.DIRECT.GET.{stream}", b""
    literal = query.get("last_by_subj")
    if literal is not None and _is_literal(literal):
        # Append the subject to that of the request, so that permissions can depend on it.
        subject = f"{subject}.{literal}"
    else:
        data = _encode(query)
    left = deadline - monotonic()
    msg = request_until(api.session, subject, data, left, deadline, None)
    if msg.status is not None and not is_stored(msg):
        if msg.status == 404:
            return None
        raise direct_error(msg.status, msg.status_text)
    return StoredMessage.from_direct(msg)


def _keeps_subjects(api: API, mirror: str, stream: str, deadline: float) -> bool:
    """Check whether a mirror has the messages of a stream on their own subjects.

    Blocks for a request at most once a second for each mirror.
    """
    now, which = monotonic(), (stream, mirror)
    if now - api.mirrors.get(which, -inf) < MIRROR_CHECK_SECONDS:
        return True
    try:
        source = stream_info(
            api, mirror, timeout=max(0.0, deadline - now)
        ).config.mirror
    except Error:
        return False
    if source is None or source.name != stream or source.subject_transforms:
        return False
    api.mirrors[which] = now
    return True


def _is_exact(query: dict[str, Any]) -> bool:
    """Return whether the request can match only one subject or one sequence."""
    subject = query.get("last_by_subj")
    return "next_by_subj" not in query and (subject is None or _is_literal(subject))


def _is_literal(subject: str) -> bool:
    try:
        check_publish_subject(subject)
    except InvalidSubjectError:
        return False
    return True


def get_messages(
    api: API,
    stream: str,
    pages: PagedReader[Item],
    timeout: Seconds | None,
    *,
    alone: bool = False,
) -> Iterator[Item]:
    """Do the work of `Stream.get_messages` and `get_last_messages`.

    If `alone`, only one server has the stream, so that any answer of it is the leader's.

    If the connection or the answering server is lost during a page, the rest of the page is
    requested again, because reading twice does no harm.
    """
    api.require(DIRECT_BATCH)
    return _read(api, stream, pages, api.seconds(timeout), alone)


def _read(
    api: API, stream: str, pages: PagedReader[Item], seconds: float, alone: bool
) -> Iterator[Item]:
    session = api.session
    subject = f"{api.prefix}.DIRECT.GET.{stream}"
    until = monotonic() + seconds
    pause = MIN_POLL_INTERVAL
    step = ReadAction.REQUEST
    pages.whole.add(stream)
    while step is not ReadAction.END:
        data = _encode(pages.request())
        mailbox, token = open_request(session, subject, data, deadline_after(seconds))
        step = ReadAction.WAIT
        try:
            while step is ReadAction.WAIT:
                if items := pages.take_ready(mailbox):
                    yield from items
                    pause = MIN_POLL_INTERVAL
                    until = monotonic() + seconds
                try:
                    msg = mailbox.next(seconds)
                    answer: Item | ReadAction = pages.take(msg)
                    if answer is ReadAction.MIRROR and _is_whole(
                        api, stream, pages, until
                    ):
                        answer = pages.take(msg)
                except (ConnectionLostError, errors.TimeoutError) as error:
                    answer = pages.on_interrupt(error)
                    until = monotonic() + seconds
                except DirectGetNotAllowedError as error:
                    _await_server(api, stream, error, until)
                    answer = ReadAction.REQUEST
                if isinstance(answer, ReadAction):
                    step = answer
                    continue
                pause = MIN_POLL_INTERVAL
                yield answer
                until = monotonic() + seconds
                if pages.done:
                    return
        finally:
            session.reply_mux.discard(token)
        if step is ReadAction.MIRROR:
            step = ReadAction.REQUEST
            if monotonic() + pause >= until:
                raise DirectGetNotAllowedError(
                    f"mirror {pages.answered_by!r} answers direct gets of stream {stream!r}, "
                    "and lacks some of its messages: read with a consumer, or set "
                    "mirror_direct=False on the mirror"
                )
            session.sleep(pause)
            pause = min(2 * pause, MAX_POLL_INTERVAL)
        if step is ReadAction.CONFIRM and alone and pages.answered_by == stream:
            return
        if step is ReadAction.CONFIRM:
            left = _left(api, stream, pages, seconds)
            step = ReadAction.END if left is None else ReadAction.REQUEST
            if left is not None:
                if monotonic() + pause >= until:
                    raise errors.TimeoutError(
                        f"no server that answers has message {left} of stream {stream}, "
                        f"which its leader has, within {format_seconds(seconds)}"
                    )
                session.sleep(pause)
                pause = min(2 * pause, MAX_POLL_INTERVAL)


def _is_whole(api: API, stream: str, pages: PagedReader[Any], until: float) -> bool:
    """Check whether the mirror that answers lacks no message before its end. Blocks."""
    name = pages.answered_by

    def info(name: str, *, deleted: bool) -> StreamInfo:
        left = max(0.0, until - monotonic())
        return stream_info(api, name, deleted_details=deleted, timeout=left)

    try:
        copy = info(name, deleted=False)
        source = copy.config.mirror
        if (
            source is None
            or source.name != stream
            or source.filter_subject
            or source.subject_transforms
            or copy.state.num_deleted > MAX_DELETED
        ):
            return False
        missing: list[int] = []
        if copy.state.num_deleted:
            copy = info(name, deleted=True)
            missing = copy.state.deleted or []
        # Ask for this state last: what the mirror lacks has to be gone here, too.
        state = info(stream, deleted=bool(missing)).state
    except Error:
        return False
    if copy.state.first_seq > max(1, state.first_seq) or copy.state.num_deleted != len(
        missing
    ):
        return False
    gone = set(state.deleted or ())
    if any(
        sequence >= state.first_seq and sequence not in gone for sequence in missing
    ):
        return False
    pages.whole.add(name)
    return True


def _left(api: API, stream: str, pages: PagedReader[Any], seconds: float) -> int | None:
    """Query the leader for a message that the server lacks. Return its sequence, or None.

    Blocks.
    """
    if pages.is_complete:
        return None
    until, pause = deadline_after(seconds), MIN_POLL_INTERVAL
    while True:
        try:
            pending = stream_pending(api, lambda: pages.query_leader(stream), until)
        except (PermissionsError, JetStreamNotEnabledError):
            return None  # this client may not query the leader
        try:
            pages.check_end(pending)
        except DirectGetError:
            # A follower may have stored messages that its leader, a new one for example, is
            # about to store. So only a stream that stays behind was created again.
            if monotonic() + pause >= until:
                raise
            api.session.sleep(pause)
            pause = min(2 * pause, MAX_POLL_INTERVAL)
        else:
            return None if pages.confirmed(pending) else pending.first


def _await_server(
    api: API, stream: str, nobody: DirectGetNotAllowedError, until: float
) -> None:
    """Wait a moment if no server answers because of an election. Raises the reason if not."""
    allowed = True
    try:
        info = stream_info(api, stream, timeout=ELECTION_SECONDS)
        allowed = bool(info.config.allow_direct)
    except (errors.TimeoutError, ConnectionLostError, JetStreamUnavailableError):
        pass  # during an election there is no answer either
    except PermissionsError:
        allowed = False  # this client may not use direct gets
    except JetStreamNotEnabledError as error:
        # For example, the link of a leaf node to that domain is down.
        raise error from nobody
    if not allowed:
        raise nobody
    if monotonic() + RETRY_SECONDS >= until:
        raise DirectGetError(
            f"no server that has stream {stream} answers", status=503
        ) from nobody
    api.session.sleep(RETRY_SECONDS)


def delete_message(
    api: API, stream: str, sequence: int, *, erase: bool, timeout: Seconds | None
) -> None:
    """Delete a message. If `erase`, nothing of it is left on the disk."""
    query: dict[str, Any] = {"seq": check_int(sequence, "sequence", 1)}
    if not erase:
        query["no_erase"] = True
    try:
        api.request(f"STREAM.MSG.DELETE.{stream}", query, timeout=timeout)
    except MessageDeleteError as error:
        # The answer of a file stream for a missing message. A memory stream answers 10043.
        if error.description not in ("no message found", "stream store EOF"):
            raise
        raise MessageNotFoundError(
            f"sequence {sequence} not found (err_code {error.err_code})",
            code=404,
            err_code=error.err_code,
            description=error.description,
        ) from error
