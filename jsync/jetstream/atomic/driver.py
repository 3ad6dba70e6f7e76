"""The wire side of an atomic batch: what its engine says is sent, and answers are waited for."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from ..._fast import Waiter, entries_within, write_entries
from ...core.session import ConnectionState
from ...core.shared import RLock
from ...errors import (
    APIError,
    AtomicBatchLostError,
    ConfigError,
    ConnectionLostError,
    Error,
    JetStreamError,
    NoStreamResponseError,
    PermissionsError,
    TimeoutError as LateError,
    UnclearCommitError,
    UnsupportedFeatureError,
)
from ..publishing.options import newer_options
from ..publishing.overload import TOO_MANY_REQUESTS, pause_after
from ..publishing.publish import RETRIES, RETRY_SECONDS, another_answered, no_stream
from .engine import BatchState, delicate_option, stores_rightly
from .lookup import ATOMIC_LEVEL
from .resolve import Origin, find_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..._fast import BatchEntry, Msg
    from ...core.requests import Data
    from ...models import PubAck
    from ...models.publish import PublishOptions
    from ..api import API
    from .engine import AtomicEngine
    from .lookup import KnownStream, StreamLookup
    from .resolve import Resolver

WRITE_BYTES = 1 << 16
"""Messages are written in pieces of about this size."""

_REFUSALS = (
    APIError,
    NoStreamResponseError,
    PermissionsError,
    UnsupportedFeatureError,
)
"""The server has refused a message that the batch cannot be without."""


class AtomicDriver:
    """Sends the messages of one batch; for one thread at a time, but for `give_up`."""

    def __init__(
        self, api: API, lookup: StreamLookup, engine: AtomicEngine, *, ack_first: bool
    ) -> None:
        self._api = api
        self._session = api.session
        self._lookup = lookup
        self._engine = engine
        self._ack_first = ack_first
        # Held while the engine changes its state, never while we wait. Re-entrant: a
        # signal handler may discard the batch on the thread that holds the lock.
        self._moving = RLock()
        self._known: KnownStream | None = None
        self._origin: Origin | None = None
        self._floors: dict[str, int] = {}
        self._first: tuple[int, Waiter] | None = None
        """Where the answer to the first message will come, when nobody waits for it."""
        self._written = False
        """The commit may have left."""

    def __repr__(self) -> str:
        return f"<AtomicDriver of batch {self._engine.id} to {self._origin}>"

    def take(
        self, subject: str, data: Data, options: PublishOptions, deadline: float
    ) -> None:
        """Check a message and have it in the batch."""
        if options:
            self._engine.check_open()
            self._api.require(newer_options(options))
            if option := delicate_option(options):
                self._check_delicate(option, subject, options, deadline)
        self._engine.add(subject, data, options, self._session.outbox.max_payload)

    def take_plain(self, messages: Iterator[object]) -> tuple[object, ...]:
        """Have messages without options in the batch, up to the first that is none.

        Returns that, if there is one.
        """
        return self._engine.add_plain(messages, self._session.outbox.max_payload)

    def _check_delicate(
        self, option: str, subject: str, options: PublishOptions, deadline: float
    ) -> None:
        known = self._known
        if known is None:
            known = self._known = self._lookup.atomic(
                subject, options.get("expected_stream"), deadline - monotonic()
            )
        version = known.version if known is not None else ""
        if not stores_rightly(version):
            raise UnsupportedFeatureError(
                f"{option}: only nats-server 2.12.12 and later, and 2.14.3 and later, store "
                "it correctly in a batch, and the server of the stream is "
                + (version or "of an unknown version"),
                feature=option,
                since="2.14.3",
                server_version=version,
            )

    def fail(self, error: BaseException) -> None:
        """Adding has failed: the server may not have what the next message follows."""
        if self.give_up(BatchState.FAILED):
            self._engine.failure = error
        self.release()

    def give_up(self, state: BatchState) -> bool:
        """End it without a commit; False: it is not open, and stays as it is."""
        with self._moving:
            if self._engine.state is not BatchState.OPEN:
                return False
            self._engine.move(state)
            return True

    def _move(self, state: BatchState) -> None:
        with self._moving:
            self._engine.move(state)

    def release(self) -> None:
        """Have the server forget the batch, as far as it listens."""
        engine = self._engine
        self._forget_first()
        # A server without batch support would store the discard message as data.
        if engine.sent and (engine.confirmed or self._known is not None):
            gap = engine.gap()
            with contextlib.suppress(Error):
                write_entries(self._session.outbox, [gap], 0, 1, urgent=False)

    # Sending --------------------------------------------------------------------------

    def _check_line(self, deadline: float) -> None:
        """Block until connected; raise unless what is sent next follows what was sent."""
        session, engine = self._session, self._engine
        if session.state is ConnectionState.CLOSED:
            raise session.closed_error()
        if (
            self._origin is not None
            and session.state is ConnectionState.CONNECTED
            and session.reconnects == self._origin.reconnects
        ):
            return
        if engine.sent > engine.confirmed:
            raise AtomicBatchLostError(
                "the connection was lost before the server confirmed all messages of the "
                "batch: nothing is stored; send the whole batch again"
            ) from session.last_error
        session.await_connected(deadline)
        self._origin = Origin.of(session)

    def _asks_first(self, entry: BatchEntry, deadline: float) -> bool:
        """Whether this is the first message, and has to be acknowledged before the next.

        A server that has no batches would store them all. It is not even sent the first
        one, if that can be known.
        """
        if entry.sequence > 1:
            return False
        self._check_line(deadline)
        old = self._session.info.api_lvl < ATOMIC_LEVEL
        if (old or not self._ack_first) and self._known is None:
            self._known = self._lookup.atomic(
                entry.subject, self._engine.stream, deadline - monotonic()
            )
        return self._ack_first or self._known is None

    def send(self, entries: list[BatchEntry], ack: bool, deadline: float) -> None:
        for entry in entries:
            if self._asks_first(entry, deadline) or (ack and entry is entries[-1]):
                self._ask(entry, deadline)
            else:
                self._put(entry, deadline)

    def _put(self, entry: BatchEntry, deadline: float) -> None:
        """Write a message."""
        while True:
            self._check_line(deadline)
            reply = "" if entry.sequence > 1 else self._expect_first(entry)
            try:
                write_entries(
                    self._session.outbox, [entry], 0, 1, urgent=False, reply=reply
                )
            except ConnectionLostError:
                continue
            self._engine.messages.sent = entry.sequence
            return

    def _ask(self, entry: BatchEntry, deadline: float) -> None:
        """Write a message and block until the server has it."""
        reply = self._exchange([entry], deadline)
        try:
            self._engine.confirm(entry.sequence, reply)
        except APIError:
            self._lookup.forget()
            raise

    def _exchange(
        self, entries: list[BatchEntry], deadline: float, commit: bytes = b""
    ) -> bytes:
        """Write messages, and block for the answer to the last of them.

        While no stream answers, as during a leader's election, and nothing was sent
        before, it is tried twice again, like a publish. A last message that the stream had
        no room for is sent again, as long as there is time: it was not looked at.
        """
        attempt = refusals = 0
        while True:
            msg = self._exchange_once(entries, deadline, commit)
            if msg.status == TOO_MANY_REQUESTS:
                self._written = False
                refusals += 1
                pause = pause_after(refusals)
                if monotonic() + pause >= deadline:
                    return msg.data
                self._session.sleep(pause)
                entries = entries[-1:]
                continue
            if msg.status != 503 or msg.data:
                return msg.data
            self._written = False
            if (
                entries[0].sequence > 1
                or attempt == RETRIES
                or monotonic() + RETRY_SECONDS >= deadline
            ):
                break
            attempt += 1
            self._session.sleep(RETRY_SECONDS)
        raise no_stream(entries[-1].subject)

    def _exchange_once(
        self, entries: list[BatchEntry], deadline: float, commit: bytes
    ) -> Msg:
        session, last = self._session, entries[-1]
        while True:
            self._check_line(deadline)
            # A new waiter for each attempt: a lost connection has failed the previous
            # one.
            others: list[bytes] = []
            waiter = Waiter(
                session.outbox, last.subject, others=others, confirms=not commit
            )
            token = session.replies.add(waiter)
            try:
                session.open_replies()
                first_reply = ""
                if len(entries) > 1 and entries[0].sequence == 1:
                    first_reply = self._expect_first(entries[0])
                reply = f"{session.replies.prefix}{token}"
                try:
                    self._write(entries, first_reply, reply, commit)
                except ConnectionLostError:
                    continue
                if not waiter.wait(deadline - monotonic()):
                    raise LateError(
                        f"no stream has answered on {last.subject!r} in time"
                        f"{another_answered(others)}"
                    )
                msg: Msg = waiter.value()
                return msg
            finally:
                session.replies.discard(token)

    def _expect_first(self, entry: BatchEntry) -> str:
        """Where the first message is answered when nobody waits for that.

        It tells why there is no batch, when the answer to the commit cannot.
        """
        self._forget_first()
        waiter = Waiter(self._session.outbox, entry.subject, others=[], confirms=True)
        token = self._session.replies.add(waiter)
        with self._moving:
            self._first = token, waiter
        self._session.open_replies()
        return f"{self._session.replies.prefix}{token}"

    def _write(
        self, entries: list[BatchEntry], first_reply: str, reply: str, commit: bytes
    ) -> None:
        """Write messages in large pieces; the last of them may commit."""
        outbox, engine, count = self._session.outbox, self._engine, len(entries)
        begin = 0
        while begin < count:
            end = entries_within(entries, begin, WRITE_BYTES)
            last = end == count
            self._written = last and bool(commit)
            try:
                write_entries(
                    outbox,
                    entries,
                    begin,
                    end,
                    urgent=True,
                    first_reply="" if begin else first_reply,
                    reply=reply if last else "",
                    commit=commit if last else b"",
                )
            except Error:
                self._written = False
                raise
            engine.messages.sent = min(entries[end - 1].sequence, engine.added)
            begin = end

    # The commit -----------------------------------------------------------------------

    def commit(self, deadline: float, resolver: Resolver) -> PubAck:
        engine = self._engine
        with self._moving:
            entries, last, header = engine.begin_commit()
        try:
            first = entries[0] if entries else last
            if self._asks_first(first, deadline) and entries:
                self._ask(entries.pop(0), deadline)
            # Ask before the commit: the batch is stored after these sequences.
            self._floors = self._lookup.floors()
            ack = engine.committed(self._exchange([*entries, last], deadline, header))
        except BaseException as error:
            instead = self._commit_failed(error, resolver)
            if instead is None:
                raise
            raise instead from error
        self._move(BatchState.COMMITTED)
        self._forget_first()
        self._lookup.note(ack.stream, ack.seq)
        return ack

    def _commit_failed(
        self,
        error: BaseException,
        resolver: Resolver,
    ) -> Error | None:
        """Judge what has become of the batch; the error to raise instead, if any."""
        engine, first = self._engine, self._first_refusal()
        if first is not None or not self._written or isinstance(error, _REFUSALS):
            self._move(BatchState.FAILED)
            self._lookup.forget()
            self.release()
            return first
        self._move(BatchState.UNCLEAR)
        self._forget_first()
        if not isinstance(error, Error):
            return None  # Ctrl-C
        return UnclearCommitError(
            f"no answer to the commit of batch {engine.id} ({error}): its {engine.added} "
            "messages are stored all or not at all; call resolve() to find out",
            batch=engine.id,
            resolver=resolver,
        )

    def _first_refusal(self) -> Error | None:
        """The error that the first message was answered with."""
        first = self._first
        if first is None or not first[1].done:
            return None
        try:
            msg: Msg = first[1].value()
            if msg.status == 503 and not msg.data:
                return no_stream(msg.subject)
            self._engine.confirm(1, msg.data)
        except _REFUSALS as refusal:
            return refusal
        except Error:
            return None
        return None

    def _forget_first(self) -> None:
        # `give_up` of another thread may forget it at the same time.
        with self._moving:
            first, self._first = self._first, None
        if first is not None:
            self._session.replies.discard(first[0])

    def resolve(self, deadline: float, resolver: Resolver) -> None:
        """Find out what has become of an unclear commit."""
        engine = self._engine
        assert self._origin is not None
        if not engine.confirmed and self._known is None:
            # A server without batch support would store the probe, and a stream without
            # acks would not answer it.
            with contextlib.suppress(JetStreamError, ConfigError):
                self._known = self._lookup.atomic(
                    engine.last_subject, engine.stream, deadline - monotonic()
                )
        ack = find_commit(
            self._api,
            engine,
            self._origin,
            self._floors,
            atomic=engine.confirmed > 0 or self._known is not None,
            deadline=deadline,
            resolver=resolver,
        )
        if ack is None:
            self._move(BatchState.FAILED)
        else:
            engine.pub_ack = ack
            self._move(BatchState.COMMITTED)
