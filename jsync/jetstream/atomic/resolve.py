"""Finding out whether an atomic batch was committed when nobody has said so."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..._fast import write_entries
from ...core.requests import request
from ...errors import (
    Error,
    MessageNotFoundError,
    NoRespondersError,
    StreamNotFoundError,
    TimeoutError as LateError,
    UnclearCommitError,
)
from ...models import PubAck, StoredMessage, StreamInfo
from ..replies import api_error, decoded, part_of
from .engine import (
    has_settled,
    place_in_batch,
    steps,
    why_absence_proves_nothing,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..._fast import BatchEntry
    from ...core.session import Session
    from ..api import API
    from .engine import AtomicEngine, Placed

    Resolver: TypeAlias = Callable[[float | None], PubAck | None]

POLL_SECONDS = 0.1
MAX_STEPS = 100_000
"""Messages that are looked at, at most."""
MAX_DELETED = 1_000_000
"""Deleted messages whose sequences are asked for, at most."""

_ENDED = frozenset({10174, 10176})
"""Answers that say that the server has no such batch open, or not any more."""
_TOO_MANY = 10210


class Origin(NamedTuple):
    """Where a batch was sent to."""

    reconnects: int
    url: str
    server_id: str
    cluster: str

    @classmethod
    def of(cls, session: Session) -> Origin:
        url = session.server.url if session.server is not None else ""
        info = session.info
        return cls(session.reconnects, url, info.server_id, info.cluster)

    def has_read(self, now: Origin) -> bool:
        """Whether what was sent there has been read by now, or never will be.

        It has on the same connection, and by the same process, which reads what had come
        before; and a process that has been replaced reads no more. Another server of a
        cluster does not tell: the one that it was sent to may have stopped for a while.
        """
        if self.server_id == now.server_id:
            return True
        return self.url == now.url and not self.cluster and not now.cluster

    def has_the_same_streams(self, now: Origin) -> bool:
        if self.cluster:
            return self.cluster == now.cluster
        return self.has_read(now)


def find_commit(
    api: API,
    engine: AtomicEngine,
    origin: Origin,
    floors: dict[str, int],
    *,
    atomic: bool,
    deadline: float,
    resolver: Resolver,
) -> PubAck | None:
    """What `AtomicBatch.resolve` does.

    `floors` are sequences that streams had come to before the commit. `atomic` says that
    the stream's server is known to have batches: another one would store the message that
    makes it refuse the rest.
    """
    search = Search(api, engine, deadline, resolver)
    fenced = atomic and search.fence(origin)
    fenced_at = monotonic()
    stream = search.find_stream()
    floor = engine.floor
    if floor is None:
        floor = floors.get(stream, 0)
    while True:
        # Ask before the search: a message that the search does not find was then never
        # there.
        info = search.info()
        settled = has_settled(info, monotonic() - fenced_at)
        placed = search.by_subject()
        if placed is None and settled:
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
        if not fenced or not origin.has_the_same_streams(search.here):
            search.give_up("it is not there, but may still be under way")
        reason = why_absence_proves_nothing(info, floor)
        if reason is not None:
            search.give_up(f"it is not there, but {reason}")
        if settled:
            return None
        api.session.sleep(POLL_SECONDS)


class Search:
    """The questions to the server, all up to one deadline."""

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
    def here(self) -> Origin:
        """Where we are connected to now."""
        return Origin.of(self._api.session)

    def fence(self, origin: Origin) -> bool:
        """Have the server refuse what it has not read yet of the batch; False: it may not.

        What was sent is before this on the same connection, and lost with a server that
        has been replaced. Otherwise the first message may still come, unless the server is
        known to have had it, and would begin the batch: so that is begun here, and kept
        for the time that servers keep batches. One that comes does not agree with it.
        """
        engine, session = self._engine, self._api.session
        while True:
            session.await_connected(self._deadline)
            here = self.here
            ordered = here.reconnects == origin.reconnects or (
                here.server_id != origin.server_id and origin.has_read(here)
            )
            entry = engine.gap() if engine.confirmed or ordered else engine.opening()
            err_code = self._send(entry)
            self._opened = err_code is None
            if here.reconnects != self.here.reconnects:
                continue  # the probe may have gone over another connection
            # The stream drops forgotten batches in time, so ask again.
            if err_code == _TOO_MANY:
                session.sleep(min(POLL_SECONDS, self._left()))
                continue
            return origin.has_read(here) if self._opened else err_code in _ENDED

    def _send(self, entry: BatchEntry) -> int | None:
        """Send a message of the batch; the error it is answered with, None: it is taken."""
        try:
            reply = request(
                self._api.session,
                entry.subject,
                b"",
                self._left(),
                {
                    "Nats-Batch-Id": self._engine.id,
                    "Nats-Batch-Sequence": str(entry.sequence),
                },
            )
        except NoRespondersError:
            self.give_up("no stream takes its subject now")
        if not reply.data:
            return None
        answer = decoded(reply.data)
        self._stream = part_of(answer, "stream", self._stream, str) or self._stream
        return api_error(answer["error"]).err_code if "error" in answer else 0

    def release(self) -> None:
        """End what the fence has begun: others need its place."""
        if self._opened:
            gap = self._engine.gap()
            with contextlib.suppress(Error):
                outbox = self._api.session.outbox
                write_entries(outbox, [gap], 0, 1, urgent=False)

    def find_stream(self) -> str:
        if self._stream is None:
            names = self._ask("STREAM.NAMES", {"subject": self._engine.last_subject})
            found = part_of(names, "streams", list[str](), list[str])
            if len(found) != 1:
                self.give_up("the API does not know which stream takes its subject")
            self._stream = found[0]
        return self._stream

    def info(self) -> StreamInfo:
        """The stream as its leader has it, with the sequences of what was deleted."""
        try:
            info = StreamInfo.from_wire(self._ask(f"STREAM.INFO.{self._stream}"))
            if 0 < info.state.num_deleted <= MAX_DELETED:
                info = StreamInfo.from_wire(
                    self._ask(f"STREAM.INFO.{self._stream}", {"deleted_details": True})
                )
        except StreamNotFoundError:
            self.give_up(f"stream {self._stream!r} is gone")
        return info

    def by_subject(self) -> Placed | None:
        """The last message of the commit's subject, if it is the batch's."""
        return self._look({"last_by_subj": self._engine.last_subject})

    def by_steps(self, floor: int, last: int) -> Placed | None:
        """A message of the batch among those after `floor`, up to `last`."""
        if last - floor > MAX_STEPS * self._engine.added:
            self.give_up(
                f"{last - floor} messages may hold it, too many to look through"
            )
        for sequence in steps(floor, last, self._engine.added):
            if placed := self._look({"seq": sequence}):
                return placed
        return None

    def _look(self, which: dict[str, Any]) -> Placed | None:
        try:
            reply = self._ask(f"STREAM.MSG.GET.{self._stream}", which)
        except MessageNotFoundError:
            return None
        found = part_of(reply, "message", dict[str, Any](), dict[str, Any])
        message = StoredMessage.from_api(self._stream or "", found)
        return place_in_batch(message.sequence, message.headers, self._engine.id)

    def _ask(
        self, subject: str, payload: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return self._api.request(subject, payload, timeout=self._left())

    def _left(self) -> float:
        left = self._deadline - monotonic()
        if left <= 0:
            raise LateError(
                f"no answer in time on whether batch {self._engine.id} was committed"
            )
        return left

    def give_up(self, reason: str) -> NoReturn:
        self.release()
        engine = self._engine
        raise UnclearCommitError(
            f"cannot tell whether batch {engine.id} with {engine.added} messages was "
            f"committed: {reason}",
            batch=engine.id,
            resolver=self._resolver,
        )
