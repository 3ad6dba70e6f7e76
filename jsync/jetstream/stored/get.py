"""Messages got from a stream and deleted in it, one by one or many, without a consumer."""

from __future__ import annotations

import contextlib
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import msgspec

from ..._fast import check_publish_subject
from ...checks import whole
from ...core.deadline import deadline_after
from ...core.requests import request, request_replies
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
    TimeoutError as LateError,
)
from ...models import StoredMessage, check_filter
from ...models.codec import wire_time
from ...models.stored import is_stored
from ..management import stream_info
from ..publishing.publish import RETRY_SECONDS
from ..stream_end.driver import stream_rest
from ..versions import DIRECT_BATCH, GET_BY_TIME
from .engine import Step, direct_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ...checks import Seconds
    from ..api import API
    from .engine import Item, Pages

FIRST_LOOK, LAST_LOOK = 0.02, 0.5
"""How soon servers are asked again for what the leader has, at first and at last."""
ELECTION_SECONDS = 1.0
"""How long to wait for the answer of a leader that may be being elected."""

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
    """What `Stream.get_message` does, by a direct get first if `direct`."""
    wanted = _wanted(sequence, last_by_subject, next_by_subject, start_time)
    if start_time is not None:
        api.require(GET_BY_TIME)
    deadline = deadline_after(api.seconds(timeout))
    if direct:
        with contextlib.suppress(NoRespondersError):
            message = _direct_get(api, stream, wanted, deadline)
            # A mirror may not have all subjects, and so pass over the right message.
            if message is not None and (message.stream == stream or _is_exact(wanted)):
                return message
    reply = api.request(
        f"STREAM.MSG.GET.{stream}", wanted, timeout=deadline - monotonic()
    )
    message = reply.get("message")
    if not isinstance(message, dict):
        raise JetStreamError(f"not a stored message: {reply!r}")
    return StoredMessage.from_api(stream, message)


def direct_get_last(
    api: API, stream: str, subject: str, timeout: Seconds | None
) -> StoredMessage | None:
    """The last message of a subject that any one server has, if any: it may be old.

    Raises `NoRespondersError` if no server answers direct gets.
    """
    wanted = _wanted(None, subject, None, None)
    return _direct_get(api, stream, wanted, deadline_after(api.seconds(timeout)))


def _wanted(
    sequence: int | None,
    last_by_subject: str | None,
    next_by_subject: str | None,
    start_time: datetime | None,
) -> dict[str, Any]:
    """The request for one message; raises `ConfigError`."""
    if last_by_subject is not None:
        if (sequence, next_by_subject, start_time) != (None, None, None):
            raise ConfigError("last_by_subject excludes the other arguments")
        check_filter(last_by_subject, "last_by_subject")
        return {"last_by_subj": last_by_subject}
    if sequence is not None and start_time is not None:
        raise ConfigError("sequence and start_time exclude each other: give one")
    wanted: dict[str, Any] = {}
    if sequence is not None:
        wanted["seq"] = whole(sequence, "sequence", 1)
    if start_time is not None:
        wanted["start_time"] = wire_time(start_time, "start_time")
        # Without a subject the server would return the message of that moment, not the
        # next.
        wanted["next_by_subj"] = ">"
    if next_by_subject is not None:
        check_filter(next_by_subject, "next_by_subject")
        wanted["next_by_subj"] = next_by_subject
    if not wanted:
        raise ConfigError(
            "which message: give sequence, last_by_subject, next_by_subject or start_time"
        )
    return wanted


def _direct_get(
    api: API, stream: str, wanted: dict[str, Any], deadline: float
) -> StoredMessage | None:
    """The message, from any server that has it; None: ask the leader.

    Raises `NoRespondersError` if no server answers direct gets.
    A replica or a mirror may lag, so what it does not have may be there all the same.
    """
    subject, data = f"{api.prefix}.DIRECT.GET.{stream}", b""
    literal = wanted.get("last_by_subj")
    if literal is not None and _is_literal(literal):
        # Name the subject in the request, so that permissions can be given by it.
        subject = f"{subject}.{literal}"
    else:
        data = _encode(wanted)
    msg = request(api.session, subject, data, deadline - monotonic())
    if msg.status is not None and not is_stored(msg):
        if msg.status == 404:
            return None
        raise direct_error(msg.status, msg.status_text)
    return StoredMessage.from_direct(msg)


def _is_exact(wanted: dict[str, Any]) -> bool:
    """Whether only messages of one subject, or of one sequence, come into question."""
    subject = wanted.get("last_by_subj")
    return "next_by_subj" not in wanted and (subject is None or _is_literal(subject))


def _is_literal(subject: str) -> bool:
    try:
        check_publish_subject(subject)
    except InvalidSubjectError:
        return False
    return True


def get_messages(
    api: API,
    stream: str,
    pages: Pages[Item],
    timeout: Seconds | None,
    *,
    alone: bool = False,
) -> Iterator[Item]:
    """What `Stream.get_messages` and `get_last_messages` do.

    `alone`: one server has the stream, and so is its leader.

    A page that does not come, or whose rest does not, for the loss of the connection or of
    who answered, is asked for again from there: reading twice does no harm.
    """
    api.require(DIRECT_BATCH)
    return _read(api, stream, pages, api.seconds(timeout), alone)


def _read(
    api: API, stream: str, pages: Pages[Item], seconds: float, alone: bool
) -> Iterator[Item]:
    session = api.session
    subject = f"{api.prefix}.DIRECT.GET.{stream}"
    until = monotonic() + seconds
    pause = FIRST_LOOK
    step = Step.ASK
    pages.whole.add(stream)
    while step is not Step.END:
        data = _encode(pages.request())
        mailbox, token = request_replies(
            session, subject, data, deadline_after(seconds)
        )
        step = Step.SKIP
        try:
            while step is Step.SKIP:
                if items := pages.take_ready(mailbox):
                    yield from items
                    pause = FIRST_LOOK
                    until = monotonic() + seconds
                try:
                    msg = mailbox.next(seconds)
                    answer: Item | Step = pages.take(msg)
                    if answer is Step.MIRROR and _is_whole(api, stream, pages, until):
                        answer = pages.take(msg)
                except (ConnectionLostError, LateError) as error:
                    answer = pages.interrupted(error)
                    until = monotonic() + seconds
                except DirectGetNotAllowedError as error:
                    _await_server(api, stream, error, until)
                    answer = Step.ASK
                if isinstance(answer, Step):
                    step = answer
                    continue
                pause = FIRST_LOOK
                yield answer
                until = monotonic() + seconds
                if pages.done:
                    return
        finally:
            session.replies.discard(token)
        if step is Step.MIRROR:
            step = Step.ASK
            if monotonic() + pause >= until:
                raise DirectGetNotAllowedError(
                    f"mirror {pages.answered_by!r} answers direct gets of stream {stream!r}, "
                    "and lacks some of its messages: read with a consumer, or set "
                    "mirror_direct=False on the mirror"
                )
            session.sleep(pause)
            pause = min(2 * pause, LAST_LOOK)
        if step is Step.CONFIRM and alone and pages.answered_by == stream:
            return
        if step is Step.CONFIRM:
            left = _left(api, stream, pages, seconds)
            step = Step.END if left is None else Step.ASK
            if left is not None:
                if monotonic() + pause >= until:
                    raise LateError(
                        f"no server that answers has message {left} of stream {stream}, "
                        f"which its leader has, within {seconds} s"
                    )
                session.sleep(pause)
                pause = min(2 * pause, LAST_LOOK)


def _is_whole(api: API, stream: str, pages: Pages[Any], until: float) -> bool:
    """Whether the mirror that answers has all that the stream has, but for the end; blocks."""
    name = pages.answered_by
    try:
        copy = stream_info(api, name, timeout=max(0.0, until - monotonic()))
        state = stream_info(api, stream, timeout=max(0.0, until - monotonic())).state
    except Error:
        return False
    source = copy.config.mirror
    if (
        source is None
        or source.name != stream
        or source.filter_subject
        or source.subject_transforms
        or copy.state.first_seq > max(1, state.first_seq)
        or copy.state.num_deleted > state.num_deleted
    ):
        return False
    pages.whole.add(name)
    return True


def _left(api: API, stream: str, pages: Pages[Any], seconds: float) -> int | None:
    """The sequence of a message that the leader has and the server had not; blocks."""
    if pages.is_complete:
        return None
    try:
        rest = stream_rest(api, lambda: pages.rest(stream), deadline_after(seconds))
    except (PermissionsError, JetStreamNotEnabledError):
        return None  # this client may not ask the leader
    return None if pages.confirmed(rest) else rest.first


def _await_server(
    api: API, stream: str, nobody: DirectGetNotAllowedError, until: float
) -> None:
    """Nobody answers: wait a moment if a leader may be about to, else raise why."""
    allowed = True
    try:
        info = stream_info(api, stream, timeout=ELECTION_SECONDS)
        allowed = bool(info.config.allow_direct)
    except (LateError, ConnectionLostError, JetStreamUnavailableError):
        pass  # during an election there is no answer either
    except (JetStreamNotEnabledError, PermissionsError):
        allowed = False  # this client may not use direct gets
    if not allowed:
        raise nobody
    if monotonic() + RETRY_SECONDS >= until:
        raise DirectGetError(
            f"no server that has stream {stream} answers", status=503
        ) from nobody
    sleep(RETRY_SECONDS)


def delete_message(
    api: API, stream: str, sequence: int, *, erase: bool, timeout: Seconds | None
) -> None:
    """Delete a message; erased, nothing of it is left on the disk."""
    wanted: dict[str, Any] = {"seq": whole(sequence, "sequence", 1)}
    if not erase:
        wanted["no_erase"] = True
    try:
        api.request(f"STREAM.MSG.DELETE.{stream}", wanted, timeout=timeout)
    except MessageDeleteError as error:
        # A file stream answers so for a missing message. A memory stream answers 10043.
        if error.description not in ("no message found", "stream store EOF"):
            raise
        raise MessageNotFoundError(
            f"sequence {sequence} not found (err_code {error.err_code})",
            code=404,
            err_code=error.err_code,
            description=error.description,
        ) from error
