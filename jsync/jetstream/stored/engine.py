"""Batched direct gets: the next request, and the meaning of each answer (ADR-31).

Pure: no socket, thread or clock. The server answers a request with a page of messages and a
`204 EOB`, and the next request continues after that page. Each message names the sequence of
the one before it, so messages that were lost on the way are noticed and requested again.

Any server that has the stream, or a mirror of it, may answer, and it may be behind the leader.
So the last page is not the end: the leader is queried for later messages. A mirror may also lack
messages in the middle, because of its filter or its limits, or because they were deleted
there. So only pages from mirrors that are `whole` are used.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ... import errors
from ...errors import (
    ConfigError,
    DirectGetError,
    DirectGetNotAllowedError,
    Error,
    TooManyResultsError,
)
from ...headers import Headers
from ...models import StoredMessage, check_filter
from ...models.codec import wire_time
from ...models.stored import is_stored, parse_direct_headers
from ...validation import check_int
from ..features import DIRECT_BATCH, unsupported
from ..replies import ONE_REPLY, api_error
from ..stream_end.engine import pending_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..._fast import DirectGetReply, Mailbox, Msg
    from ..steps import Steps
    from ..stream_end.engine import PendingMessages

Item = TypeVar("Item")

MAX_EMPTY_REPLIES = 3
"""Requests in a row without a message after which the read fails."""

PAGE_MESSAGES = 1000
PAGE_BYTES = 8 << 20
MAX_SUBJECTS = 1024
"""The most subjects that one request for the last messages may match."""


SINGLE_REPLIES = 2
"""Requests in a row with one message, and then silence, after which the read fails."""


class ReadAction(Enum):
    """The next step after an answer that is not a message."""

    WAIT = "wait for the next answer"
    REQUEST = "send the next request"
    CONFIRM = "the server has no more, so ask the leader"
    MIRROR = "a mirror answers, so ask what it has"
    END = "everything has come"


class PagedReader(ABC, Generic[Item]):
    """A read in pages: its position, the next request, and the meaning of each answer."""

    def __init__(
        self, make: Callable[[Msg, DirectGetReply], Item], batch: int, max_bytes: int
    ) -> None:
        self._make = make
        self._batch = check_int(batch, "batch", 1)
        self._max_bytes = check_int(max_bytes, "max_bytes", 1)
        self._next = 0  # the sequence to continue from, 0 before the first message
        self._previous = 0  # the last sequence of this page, 0 while the page is empty
        self.pending = 0
        """The number of messages still to come, as the last message reported it."""
        self._page_count = 0  # messages of this page
        self.answered_by = ""
        """The stream that sent the last message of this page, which may be a mirror."""
        self.whole: set[str] = set()
        """The streams that lack no message between two others. Empty: not known."""
        self._singles = 0  # pages in a row with one message, and then nothing
        self._end: int | None = None  # the last wanted sequence, once it is known
        self._futile = 0
        self._was_late = False  # an answer was late, and no message has come since
        self.done = False
        """True if the last returned message was the last wanted one."""

    def request(self) -> dict[str, Any]:
        """Make the next request, and begin a new page."""
        self._previous = self.pending = self._page_count = 0
        self.answered_by = ""
        return {
            **self._selection(),
            "batch": self._size(),
            "max_bytes": self._max_bytes,
        }

    def take(self, msg: Msg) -> Item | ReadAction:
        """Read an answer as a message or the next step. Raises the error that it reports."""
        if msg.status is not None and not is_stored(msg):
            return self._status(msg)
        answer = parse_direct_headers(msg, batched=True)
        if answer is None:
            raise unsupported(DIRECT_BATCH, "2.10", "the server answers one by one")
        if answer.previous != self._previous:
            return self._retry_or_raise(DirectGetError("messages were lost on the way"))
        self.answered_by = answer.stream
        if self.whole and answer.stream not in self.whole:
            return ReadAction.MIRROR
        self._reached(answer.sequence, answer.pending)
        return self._passes(answer) or self._make(msg, answer)

    def take_ready(self, mailbox: Mailbox) -> Sequence[Item]:
        """Take buffered messages in bulk, if the kind of read allows. `take` gets the rest."""
        return ()

    def _reached(self, sequence: int, pending: int, count: int = 1) -> None:
        self._page_count += count
        self._previous = sequence
        self.pending = pending
        self._next = sequence + 1
        self._futile = 0
        self._was_late = False

    def on_interrupt(self, error: Error) -> ReadAction:
        """Handle the loss of the rest of a page. Raises `error` if a retry is useless."""
        if isinstance(error, errors.TimeoutError):
            # A server that is gone may have taken the request with it. If that happens
            # twice in a row, or at the beginning, no server answers at all.
            if self._was_late or not self._next:
                raise error
            self._was_late = True
            self._singles = self._singles + 1 if self._page_count == 1 else 0
            if self._singles >= SINGLE_REPLIES:
                raise DirectGetError(
                    f"{self._singles} requests in a row had one reply and nothing more: "
                    f"{ONE_REPLY}"
                ) from error
        return self._retry_or_raise(error)

    # The end --------------------------------------------------------------------------

    def query_leader(self, stream: str) -> Steps[PendingMessages]:
        """Query the leader for messages after the last one, see `pending_steps`."""
        first = self._first_selection()
        return pending_steps(
            stream,
            self._filters(),
            after=self._next - 1 if self._next else first.get("seq", 1) - 1,
            until=self._end,
            start_time=None if self._next else first.get("start_time"),
        )

    @property
    def is_complete(self) -> bool:
        """True if every message that can be wanted has come, so the leader is not needed."""
        return False

    def check_end(self, pending: PendingMessages) -> None:
        """Raise `DirectGetError` if the stream ends before a message that has come."""
        if pending.end.sequence < self._next - 1:
            raise DirectGetError(
                f"stream {pending.end.info.config.name!r} ends at sequence "
                f"{pending.end.sequence}, but message {self._next - 1} has come: it was deleted "
                "and created again during the read, or has lost messages; read it again"
            )

    def confirmed(self, pending: PendingMessages) -> bool:
        """Return whether the leader has no more wanted messages.

        The first call fixes the end, so that messages stored later do not count.
        """
        if self._end is None:
            self._end = pending.end.sequence
        return (
            pending.first is None
            or pending.first > self._end
            or self._is_later(pending)
        )

    def _first_selection(self) -> dict[str, Any]:
        """Return the start of the first request."""
        return {}

    @abstractmethod
    def _filters(self) -> Sequence[str]:
        """Return the wanted subjects."""

    def _is_later(self, pending: PendingMessages) -> bool:
        """Return whether the first pending message is after a bound of time."""
        return False

    @abstractmethod
    def _selection(self) -> dict[str, Any]: ...

    def _size(self) -> int:
        return self._batch

    @abstractmethod
    def _passes(self, answer: DirectGetReply) -> ReadAction | None:
        """Return None if the message is wanted, else the next step."""

    def _on_no_message(self, msg: Msg) -> ReadAction:
        """Return the next step after a 404."""
        return ReadAction.CONFIRM

    def _status(self, msg: Msg) -> ReadAction:
        if msg.status == 404:
            return self._on_no_message(msg)
        if msg.status != 204:
            raise direct_error(msg.status or 0, msg.status_text)
        headers = msg.headers or Headers()
        if _number(headers, "Nats-Last-Sequence") == self._previous:
            # For last messages, nats-server 2.11 reports one too few.
            if max(self.pending, _number(headers, "Nats-Num-Pending")) == 0:
                return ReadAction.CONFIRM
            if self._previous:
                return ReadAction.REQUEST
        return self._retry_or_raise(DirectGetError("messages were lost on the way"))

    def _retry_or_raise(self, error: Error) -> ReadAction:
        if not self._previous:
            self._futile += 1
            if self._futile >= MAX_EMPTY_REPLIES:
                raise error
        return ReadAction.REQUEST

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {self._next or 'the beginning'}>"


class SubjectReader(PagedReader[StoredMessage]):
    """A read of all messages of a subject, in the order of the stream."""

    def __init__(
        self,
        subject: str = ">",
        *,
        sequence: int | None = None,
        start_time: datetime | None = None,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        max_messages: int | None = None,
        batch: int = PAGE_MESSAGES,
        max_bytes: int = PAGE_BYTES,
    ) -> None:
        super().__init__(StoredMessage.from_answer, batch, max_bytes)
        check_filter(subject, "subject")
        if sequence is not None and start_time is not None:
            raise ConfigError("sequence and start_time exclude each other: give one")
        self._subject = subject
        self._first: dict[str, Any] = {
            "seq": check_int(1 if sequence is None else sequence, "sequence", 1)
        }
        if start_time is not None:
            self._first = {"start_time": wire_time(start_time, "start_time")}
        if up_to_sequence is not None:
            up_to_sequence = check_int(up_to_sequence, "up_to_sequence", 1)
        if up_to_time is not None:
            wire_time(up_to_time, "up_to_time")
        self._end = self._up_to_sequence = up_to_sequence
        self._up_to_time = up_to_time
        if max_messages is not None:
            max_messages = check_int(max_messages, "max_messages", 1)
        self._left = max_messages

    def _selection(self) -> dict[str, Any]:
        start = {"seq": self._next} if self._next else self._first
        return {"next_by_subj": self._subject, **start}

    def _first_selection(self) -> dict[str, Any]:
        return self._first

    def _filters(self) -> Sequence[str]:
        return (self._subject,)

    def _is_later(self, pending: PendingMessages) -> bool:
        return _is_from(pending, self._up_to_time)

    def _size(self) -> int:
        bounds = [self._batch]
        if self._left is not None:
            bounds.append(self._left)
        if self._up_to_sequence is not None:
            first = self._next or self._first.get("seq", 1)
            bounds.append(max(1, self._up_to_sequence - first + 1))
        return min(bounds)

    def _passes(self, answer: DirectGetReply) -> ReadAction | None:
        if self._up_to_sequence is not None:
            if answer.sequence > self._up_to_sequence:
                return ReadAction.END
            self.done = answer.sequence == self._up_to_sequence
        if self._up_to_time is not None and answer.timestamp >= self._up_to_time:
            return ReadAction.END
        if self._left is not None:
            self._left -= 1
            self.done = self.done or self._left == 0
        return None


class LastPerSubjectReader(PagedReader[Item]):
    """A read of the last message of each subject, in the order of their sequences."""

    def __init__(
        self,
        subjects: str | Iterable[str],
        make: Callable[[Msg, DirectGetReply], Item],
        *,
        up_to_sequence: int | None = None,
        up_to_time: datetime | None = None,
        batch: int = MAX_SUBJECTS,
        max_bytes: int = PAGE_BYTES,
    ) -> None:
        super().__init__(make, batch, max_bytes)
        filters = [subjects] if isinstance(subjects, str) else list(subjects)
        if not filters:
            raise ConfigError("subjects: none given")
        for subject in filters:
            check_filter(subject, "subjects")
        self._request: dict[str, Any] = {"multi_last": filters}
        if up_to_sequence is not None and up_to_time is not None:
            raise ConfigError("up_to_sequence and up_to_time exclude each other")
        if up_to_sequence is not None:
            self._end = check_int(up_to_sequence, "up_to_sequence", 1)
            self._request["up_to_seq"] = self._end
        self._wanted_subjects, self._up_to_time = filters, up_to_time
        if up_to_time is not None:
            self._request["up_to_time"] = wire_time(up_to_time, "up_to_time")
        self._given: set[str] = set()

    def _selection(self) -> dict[str, Any]:
        return {**self._request, "seq": self._next} if self._next else self._request

    def _filters(self) -> Sequence[str]:
        return self._wanted_subjects

    def _is_later(self, pending: PendingMessages) -> bool:
        return _is_from(pending, self._up_to_time)

    @property
    def is_complete(self) -> bool:
        return self._given.issuperset(self._wanted_subjects)

    def _passes(self, answer: DirectGetReply) -> ReadAction | None:
        # A later page includes messages that were published in the meantime, so no
        # subject is missed if it gets a new last message. Subjects that were already
        # returned come again.
        subject = answer.subject
        if subject in self._given:
            return ReadAction.WAIT
        self._given.add(subject)
        return None

    def _on_no_message(self, msg: Msg) -> ReadAction:
        if "results" in msg.status_text.lower():
            return ReadAction.CONFIRM
        # The server has deleted a message between its look-up and its read.
        return self._retry_or_raise(direct_error(404, msg.status_text))


def direct_error(status: int, text: str) -> Error:
    """Make the error for the status of a direct get."""
    match status:
        case 404:
            err_code = 10037
        case 408:
            err_code = 10003
        case 412:
            err_code = 10185
        case 413:
            return TooManyResultsError(
                f"the subjects match more than {MAX_SUBJECTS}: ask for fewer, or read "
                'with a consumer of deliver_policy="last_per_subject"',
                status=413,
            )
        case 503:
            return DirectGetNotAllowedError(
                "no server answers direct gets of this stream: set allow_direct on it",
                status=503,
            )
        case _:
            return DirectGetError(f"direct get: {status} {text}".strip(), status=status)
    return api_error({"code": status, "err_code": err_code, "description": text})


def _is_from(pending: PendingMessages, time: datetime | None) -> bool:
    """Return whether the first pending message was stored at that time or later."""
    if time is None:
        return False
    try:
        return datetime.fromisoformat(pending.stored_at) >= time
    except ValueError:
        return False


def _number(headers: Headers, name: str) -> int:
    values = headers.get_all(name)
    text = values[-1] if values else ""
    # A longer number is not a sequence.
    is_number = text.isascii() and text.isdigit() and len(text) <= 20
    return int(text) if is_number else 0
