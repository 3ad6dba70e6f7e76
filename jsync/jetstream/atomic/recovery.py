"""Finding out whether an atomic batch is stored after its commit got no answer."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ... import errors
from ..._fast import write_entries
from ...core.requests import request
from ...errors import (
    AmbiguousCommitError,
    Error,
    JetStreamNotEnabledError,
    JetStreamUnavailableError,
    MessageNotFoundError,
    NoRespondersError,
    PermissionsError,
    StreamNotFoundError,
)
from ...models import PubAck, StoredMessage, StreamInfo
from ..replies import api_error, get_field, parse_object
from .engine import inconclusive_reason, is_applied, parse_batch_headers, search_steps

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..._fast import BatchMessage, Msg
    from ...core.session import Session
    from ..api import API
    from .engine import AtomicEngine, BatchPosition

    Resolver: TypeAlias = Callable[[float | None], PubAck | None]

POLL_INTERVAL = 0.1
ANSWER_SECONDS = 2.0
"""Seconds to wait for the first answer to a request, before it is sent again."""
MAX_STEPS = 100_000
"""The most messages that are read."""
MAX_DELETED = 1_000_000
"""The most deleted messages whose sequences are requested."""

_ENDED = frozenset({10174, 10176})
"""The error codes of a server that does not have the batch, or has it no more."""
_TOO_MANY = 10210


class BatchOrigin(NamedTuple):
    """The connection and the server that a batch was sent to."""

    reconnects: int
    url: str
    server_id: str
    cluster: str

    @classmethod
    def of(cls, session: Session) -> BatchOrigin:
        url = session.server.url if session.server is not None else ""
        info = session.info
        return cls(session.reconnects, url, info.server_id, info.cluster)

    def has_read(self, now: BatchOrigin) -> bool:
        """Return whether the server has read all that was sent, or never will.

        The same server process has read it before it reads anything newer. A process that
        was replaced by another at its URL reads nothing any more. In a cluster, another
        server proves nothing, because the first one may only be stopped for a while.
        """
        if self.server_id == now.server_id:
            return True
        return self.url == now.url and not self.cluster and not now.cluster

    def has_the_same_streams(self, now: BatchOrigin) -> bool:
        if self.cluster:
            return self.cluster == now.cluster
        return self.has_read(now)


def find_commit(
    api: API,
    engine: AtomicEngine,
    origin: BatchOrigin,
    min_sequences: dict[str, int],
    *,
    atomic: bool,
    deadline: float,
    resolver: Resolver,
) -> PubAck | None:
    """Find out whether a batch is stored, for `AtomicBatch.resolve`. Blocks.

    `min_sequences` has sequences that the streams had reached before the commit. `atomic` says
    that the server of the stream is known to have batches: a server without them would
    store the message that makes a server reject the rest of a batch.

    Returns:
        The ack of the batch, or None if it is certain that the batch never will be stored.

    Raises:
        AmbiguousCommitError: The result is still unknown.
    """
    search = CommitSearch(api, engine, deadline, resolver)
    fenced = atomic and search.fence(origin)
    fenced_at = monotonic()
    stream = search.find_stream()
    floor = engine.min_sequence
    if floor is None:
        floor = min_sequences.get(stream, 0)
    while True:
        # Request this before the search, so that a message which the search does not find
        # was never there.
        info = search.info()
        applied = is_applied(info, monotonic() - fenced_at)
        placed = search.by_subject()
        if placed is None and applied:
            placed = search.by_steps(floor, info.state.last_seq)
        if placed is not None:
            search.release()
            return PubAck(
                stream=stream,
                seq=placed.sequence + engine.added - placed.number,
                domain=info.domain,
                batch=engine.id,
                count=engine.added,
            )
        if not fenced or not origin.has_the_same_streams(search.connected_server):
            search.fail("it is not there, but may still be under way")
        reason = inconclusive_reason(info, floor)
        if reason is not None:
            search.fail(f"it is not there, but {reason}")
        if applied:
            return None
        api.session.sleep(POLL_INTERVAL)


class CommitSearch:
    """The requests of one `find_commit`, with one deadline for all of them."""

    def __init__(
        self, api: API, engine: AtomicEngine, deadline: float, resolver: Resolver
    ) -> None:
        self._api = api
        self._engine = engine
        self._deadline = deadline
        self._resolver = resolver
        self._stream = engine.stream
        self._opened = False

    @property
    def connected_server(self) -> BatchOrigin:
        """The server that we are connected to now."""
        return BatchOrigin.of(self._api.session)

    def fence(self, origin: BatchOrigin) -> bool:
        """Make the server reject messages of the batch that it has not read yet.

        If the server has had the first message, or can no longer get it, a message that
        leaves a gap ends the batch. Otherwise a late first message would begin the batch,
        so another first message begins it here. The server keeps that batch for a while,
        and a late first message then ends it.

        Returns:
            False if messages of the batch may still be stored.
        """
        engine, session = self._engine, self._api.session
        while True:
            session.wait_connected(self._deadline)
            here = self.connected_server
            ordered = here.reconnects == origin.reconnects or (
                here.server_id != origin.server_id and origin.has_read(here)
            )
            entry = (
                engine.gap_message()
                if engine.confirmed or ordered
                else engine.opening_message()
            )
            err_code = self._send(entry)
            self._opened = err_code is None
            if here.reconnects != self.connected_server.reconnects:
                continue  # the probe may have gone over another connection
            # The stream has too many batches, but drops old ones in time, so try again.
            if err_code == _TOO_MANY:
                session.sleep(min(POLL_INTERVAL, self._remaining()))
                continue
            return origin.has_read(here) if self._opened else err_code in _ENDED

    def _send(self, entry: BatchMessage) -> int | None:
        """Send a message of the batch, and return the error code of the answer.

        None if the server accepts the message, and 0 if the answer has no error.
        """
        reply = self._reply_to(entry)
        if not reply.data:
            return None
        answer = parse_object(reply.data)
        self._stream = get_field(answer, "stream", self._stream, str) or self._stream
        return api_error(answer["error"]).err_code if "error" in answer else 0

    def _reply_to(self, entry: BatchMessage) -> Msg:
        headers = {
            "Nats-Batch-Id": self._engine.id,
            "Nats-Batch-Sequence": str(entry.sequence),
        }
        session = self._api.session
        while True:
            try:
                return request(session, entry.subject, b"", self._remaining(), headers)
            except NoRespondersError:
                self._await_leader()

    def _await_leader(self) -> None:
        """Wait a moment, unless no stream has the subject.

        No server takes the messages of a stream without a leader.
        """
        try:
            names = self._request(
                "STREAM.NAMES", {"subject": self._engine.last_subject}
            )
        except (JetStreamNotEnabledError, PermissionsError):
            names = {}
        if not get_field(names, "streams", list[str](), list[str]):
            self.fail("no stream takes its subject now")
        self._api.session.sleep(min(POLL_INTERVAL, self._remaining()))

    def release(self) -> None:
        """End the batch that `fence` began, since a stream has room for few batches."""
        if self._opened:
            gap = self._engine.gap_message()
            with contextlib.suppress(Error):
                write_buffer = self._api.session.write_buffer
                write_entries(write_buffer, [gap], 0, 1, urgent=False)

    def find_stream(self) -> str:
        if self._stream is None:
            names = self._request(
                "STREAM.NAMES", {"subject": self._engine.last_subject}
            )
            found = get_field(names, "streams", list[str](), list[str])
            if len(found) != 1:
                self.fail("the API does not know which stream takes its subject")
            self._stream = found[0]
        return self._stream

    def info(self) -> StreamInfo:
        """Get the state of the stream from its leader, with the deleted sequences."""
        try:
            info = StreamInfo.from_wire(self._request(f"STREAM.INFO.{self._stream}"))
            if 0 < info.state.num_deleted <= MAX_DELETED:
                info = StreamInfo.from_wire(
                    self._request(
                        f"STREAM.INFO.{self._stream}", {"deleted_details": True}
                    )
                )
        except StreamNotFoundError:
            self.fail(f"stream {self._stream!r} is gone")
        return info

    def by_subject(self) -> BatchPosition | None:
        """Find the last message on the subject of the commit, if it is of the batch."""
        return self._get_message({"last_by_subj": self._engine.last_subject})

    def by_steps(self, floor: int, last: int) -> BatchPosition | None:
        """Find a message of the batch between the sequences `floor + 1` and `last`."""
        if last - floor > MAX_STEPS * self._engine.added:
            self.fail(f"{last - floor} messages may hold it, too many to look through")
        for sequence in search_steps(floor, last, self._engine.added):
            if placed := self._get_message({"seq": sequence}):
                return placed
        return None

    def _get_message(self, which: dict[str, Any]) -> BatchPosition | None:
        try:
            reply = self._request(f"STREAM.MSG.GET.{self._stream}", which)
        except MessageNotFoundError:
            return None
        found = get_field(reply, "message", dict[str, Any](), dict[str, Any])
        message = StoredMessage.from_api(self._stream or "", found)
        return parse_batch_headers(message.sequence, message.headers, self._engine.id)

    def _request(
        self, subject: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request to the API, again and again while there is no leader.

        Without a leader of JetStream, no server answers. Each request waits twice as long
        as the one before, because an answer with many deleted sequences takes a while.
        """
        wait = ANSWER_SECONDS
        while True:
            try:
                return self._api.request(
                    subject, payload, timeout=min(wait, self._remaining())
                )
            except (JetStreamUnavailableError, errors.TimeoutError):
                self._api.session.sleep(min(POLL_INTERVAL, self._remaining()))
            wait *= 2

    def _remaining(self) -> float:
        left = self._deadline - monotonic()
        if left <= 0:
            raise errors.TimeoutError(
                f"no answer in time on whether batch {self._engine.id} was committed"
            )
        return left

    def fail(self, reason: str) -> NoReturn:
        self.release()
        engine = self._engine
        raise AmbiguousCommitError(
            f"cannot tell whether batch {engine.id} with {engine.added} messages was "
            f"committed: {reason}",
            batch=engine.id,
            resolver=self._resolver,
        )
