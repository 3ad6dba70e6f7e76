"""The input and output of an atomic batch: sends messages, and waits for the replies."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import Waiter, entries_within, write_entries
from ...core.session import ConnectionState
from ...core.sync import ForkSafeRLock
from ...errors import (
    AmbiguousCommitError,
    APIError,
    AtomicBatchLostError,
    AtomicPublishIncompleteBatchError,
    ConfigError,
    ConnectionLostError,
    Error,
    JetStreamError,
    NoStreamResponseError,
    PermissionsError,
    UnsupportedFeatureError,
)
from ..publishing.backoff import TOO_MANY_REQUESTS, backoff_delay
from ..publishing.options import required_features
from ..publishing.publish import RETRIES, RETRY_SECONDS, another_answered, no_stream
from .engine import BatchState, affected_option, has_batch_fix
from .recovery import BatchOrigin, find_commit
from .stream_lookup import ATOMIC_LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..._fast import BatchMessage, Msg
    from ...core.requests import Data
    from ...models import PubAck
    from ...models.publish import PublishOptions
    from ..api import API
    from .engine import AtomicEngine
    from .recovery import Resolver
    from .stream_lookup import KnownStream, StreamLookup

WRITE_BYTES = 1 << 16
"""Messages are written in pieces of about this size."""

_REJECTIONS = (
    APIError,
    NoStreamResponseError,
    PermissionsError,
    UnsupportedFeatureError,
)
"""Errors after which nothing of the batch is stored: the server rejected a message."""


class AtomicDriver:
    """Sends the messages of one batch.

    One thread at a time may use it, but any thread may call `abandon` and `release`.
    """

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
        self._state_lock = ForkSafeRLock()
        self._known: KnownStream | None = None
        self._origin: BatchOrigin | None = None
        self._min_sequences: dict[str, int] = {}
        self._first: tuple[int, Waiter] | None = None
        """The reply token and the waiter of the first message, if no call waits for it."""
        self._written = False
        """True if the commit may have been sent."""
        self._last_error = api.session.last_error
        """The last error of the connection before the batch."""

    def __repr__(self) -> str:
        return f"<AtomicDriver of batch {self._engine.id} to {self._origin}>"

    def add(
        self, subject: str, data: Data, options: PublishOptions, deadline: float
    ) -> None:
        """Check a message, and add it to the batch."""
        if options:
            self._engine.check_open()
            self._api.require(required_features(options))
            if option := affected_option(options):
                self._check_affected(option, subject, options, deadline)
        self._engine.add(subject, data, options, self._session.write_buffer.max_payload)

    def add_plain(self, messages: Iterator[object]) -> tuple[object, ...]:
        """Add pairs of subject and data, up to the first message that is not such a pair.

        Returns a tuple with that message, or an empty one if all were added.
        """
        return self._engine.add_plain(messages, self._session.write_buffer.max_payload)

    def _check_affected(
        self, option: str, subject: str, options: PublishOptions, deadline: float
    ) -> None:
        known = self._known
        if known is None:
            known = self._known = self._lookup.atomic(
                subject, options.get("expected_stream"), deadline - monotonic()
            )
        version = known.version if known is not None else ""
        if not has_batch_fix(version):
            raise UnsupportedFeatureError(
                f"{option}: only nats-server 2.12.12 and later, and 2.14.3 and later, store "
                "it correctly in a batch, and the server of the stream is "
                + (version or "of an unknown version"),
                feature=option,
                since="2.14.3",
                server_version=version,
            )

    def fail(self, error: BaseException) -> None:
        """End the batch after a failed `add`, since the server may miss a message of it."""
        if self.abandon(BatchState.FAILED):
            self._engine.failure = error
        self.release()

    def abandon(self, state: BatchState) -> bool:
        """End an open batch without a commit. Return False if it is not open."""
        with self._state_lock:
            if self._engine.state is not BatchState.OPEN:
                return False
            self._engine.transition(state)
            return True

    def _transition(self, state: BatchState) -> None:
        with self._state_lock:
            self._engine.transition(state)

    def release(self) -> None:
        """Make the server drop the batch, if it can be reached. Raises nothing."""
        engine = self._engine
        self._drop_first_ack()
        # A server without batch support would store the discard message as data.
        if engine.sent and (engine.confirmed or self._known is not None):
            gap = engine.gap_message()
            with contextlib.suppress(Error):
                write_entries(self._session.write_buffer, [gap], 0, 1, urgent=False)

    # Sending --------------------------------------------------------------------------

    def _check_connection(self, deadline: float) -> None:
        """Block until connected. Raises `AtomicBatchLostError` if messages may be lost.

        After a reconnect the batch can continue only if the server had confirmed all
        messages that were sent.
        """
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
        session.wait_connected(deadline)
        self._origin = BatchOrigin.of(session)

    def _requires_first_ack(self, entry: BatchMessage, deadline: float) -> bool:
        """Return whether `entry` is a first message that needs an ack before the next one.

        A server without batches would store every message. If the lookup finds such a
        server, it raises, and not even the first message is sent.
        """
        if entry.sequence > 1:
            return False
        self._check_connection(deadline)
        old = self._session.info.api_lvl < ATOMIC_LEVEL
        if (old or not self._ack_first) and self._known is None:
            self._known = self._lookup.atomic(
                entry.subject, self._engine.stream, deadline - monotonic()
            )
        return self._ack_first or self._known is None

    def send(self, entries: list[BatchMessage], ack: bool, deadline: float) -> None:
        for entry in entries:
            if self._requires_first_ack(entry, deadline) or (
                ack and entry is entries[-1]
            ):
                self._publish_acked(entry, deadline)
            else:
                self._publish(entry, deadline)

    def _publish(self, entry: BatchMessage, deadline: float) -> None:
        """Write a message without waiting for an ack."""
        while True:
            self._check_connection(deadline)
            reply = "" if entry.sequence > 1 else self._register_first_ack(entry)
            try:
                write_entries(
                    self._session.write_buffer, [entry], 0, 1, urgent=False, reply=reply
                )
            except ConnectionLostError:
                continue
            self._engine.messages.sent = entry.sequence
            return

    def _publish_acked(self, entry: BatchMessage, deadline: float) -> None:
        """Write a message, and block until the server has acknowledged it."""
        reply = self._exchange([entry], deadline)
        try:
            self._engine.confirm(entry.sequence, reply)
        except APIError:
            self._lookup.clear()
            raise

    def _exchange(
        self, entries: list[BatchMessage], deadline: float, commit: bytes = b""
    ) -> bytes:
        """Write messages, and block until the last of them is answered.

        If no stream answers, for example during a leader election, and nothing was sent
        before, all are sent up to twice again, like a publish. If the stream had too much
        to store, it has not looked at the last message, which is sent again until
        `deadline`.
        """
        attempt = rejections = 0
        while True:
            msg = self._exchange_once(entries, deadline, commit)
            if msg.status == TOO_MANY_REQUESTS:
                self._written = False
                rejections += 1
                pause = backoff_delay(rejections)
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
        self, entries: list[BatchMessage], deadline: float, commit: bytes
    ) -> Msg:
        session, last = self._session, entries[-1]
        while True:
            self._check_connection(deadline)
            # A new waiter for each attempt: a lost connection has failed the previous
            # one.
            others: list[bytes] = []
            waiter = Waiter(
                session.write_buffer, last.subject, others=others, confirms=not commit
            )
            token = session.reply_mux.add(waiter)
            try:
                session.open_replies()
                first_reply = ""
                if len(entries) > 1 and entries[0].sequence == 1:
                    first_reply = self._register_first_ack(entries[0])
                reply = f"{session.reply_mux.prefix}{token}"
                try:
                    self._write(entries, first_reply, reply, commit)
                except ConnectionLostError:
                    continue
                if not waiter.wait(deadline - monotonic()):
                    raise errors.TimeoutError(
                        f"no stream has answered on {last.subject!r} in time"
                        f"{another_answered(others)}"
                    )
                msg: Msg = waiter.value()
                return msg
            finally:
                session.reply_mux.discard(token)

    def _register_first_ack(self, entry: BatchMessage) -> str:
        """Return the reply subject of a first message that no call waits for.

        The answer says why the server has no batch, which the answer to the commit does
        not say.
        """
        self._drop_first_ack()
        waiter = Waiter(
            self._session.write_buffer, entry.subject, others=[], confirms=True
        )
        token = self._session.reply_mux.add(waiter)
        with self._state_lock:
            self._first = token, waiter
        self._session.open_replies()
        return f"{self._session.reply_mux.prefix}{token}"

    def _write(
        self, entries: list[BatchMessage], first_reply: str, reply: str, commit: bytes
    ) -> None:
        """Write messages in large pieces. With `commit`, the last message commits."""
        write_buffer, engine, count = (
            self._session.write_buffer,
            self._engine,
            len(entries),
        )
        begin = 0
        while begin < count:
            end = entries_within(entries, begin, WRITE_BYTES)
            last = end == count
            self._written = last and bool(commit)
            try:
                write_entries(
                    write_buffer,
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
        with self._state_lock:
            entries, last, header = engine.begin_commit()
        try:
            first = entries[0] if entries else last
            if self._requires_first_ack(first, deadline) and entries:
                self._publish_acked(entries.pop(0), deadline)
            # Read these before the commit: the batch is stored after these sequences.
            self._min_sequences = self._lookup.min_sequences()
            ack = engine.committed(self._exchange([*entries, last], deadline, header))
        except BaseException as error:
            instead = self._commit_failed(error, deadline, resolver)
            if instead is None:
                raise
            raise instead from error
        self._transition(BatchState.COMMITTED)
        self._drop_first_ack()
        self._lookup.record_sequence(ack.stream, ack.seq)
        return ack

    def _commit_failed(
        self, error: BaseException, deadline: float, resolver: Resolver
    ) -> Error | None:
        """Decide whether the batch failed or is unclear after a failed commit.

        Returns the error to raise instead of `error`, or None.
        """
        engine, first = self._engine, self._first_error()
        if first is not None or not self._written or isinstance(error, _REJECTIONS):
            self._transition(BatchState.FAILED)
            self._lookup.clear()
            self.release()
            return first or self._permission_error(error, deadline)
        self._transition(BatchState.UNCLEAR)
        self._drop_first_ack()
        if not isinstance(error, Error):
            return None  # Ctrl-C
        return AmbiguousCommitError(
            f"no answer to the commit of batch {engine.id} ({error}): its {engine.added} "
            "messages are stored all or not at all; call resolve() to find out",
            batch=engine.id,
            resolver=resolver,
        )

    def _permission_error(
        self, error: BaseException, deadline: float
    ) -> PermissionsError | None:
        """Return the missing permission due to which the server lacks a message, or None.

        The server reports it to the connection and does not answer the message, so the
        answer to the commit only says that the batch is incomplete.
        """
        if not isinstance(error, AtomicPublishIncompleteBatchError):
            return None
        with contextlib.suppress(Error):
            self._session.ping(deadline)  # the report comes before the PONG
        reported = self._session.last_error
        if (
            reported is not self._last_error
            and isinstance(reported, PermissionsError)
            and reported.operation == "publish"
            and reported.subject in self._engine.messages.subjects
        ):
            return reported
        return None

    def _first_error(self) -> Error | None:
        """Return the error in the answer to the first message, if it has come."""
        first = self._first
        if first is None or not first[1].done:
            return None
        try:
            msg: Msg = first[1].value()
            if msg.status == 503 and not msg.data:
                return no_stream(msg.subject)
            self._engine.confirm(1, msg.data)
        except _REJECTIONS as rejection:
            return rejection
        except Error:
            return None
        return None

    def _drop_first_ack(self) -> None:
        # `discard` on another thread may do this at the same time.
        with self._state_lock:
            first, self._first = self._first, None
        if first is not None:
            self._session.reply_mux.discard(first[0])

    def resolve(self, deadline: float, resolver: Resolver) -> None:
        """Find out whether an unclear commit was stored."""
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
            self._min_sequences,
            atomic=engine.confirmed > 0 or self._known is not None,
            deadline=deadline,
            resolver=resolver,
        )
        if ack is None:
            self._transition(BatchState.FAILED)
        else:
            engine.pub_ack = ack
            self._transition(BatchState.COMMITTED)
