"""Atomic batches: all of their messages are stored, or none (ADR-50)."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from ..core.deadline import deadline_after
from ..core.single import Single
from ..errors import AtomicBatchError, ConcurrentUseError, ConfigError, Error
from .atomic_driver import AtomicDriver
from .batch import MAX_MESSAGES, AtomicEngine, BatchState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self, TypeAlias, Unpack

    from ..core.requests import Data
    from ..models import PubAck
    from .api import API
    from .lookup import StreamLookup
    from .publish_options import PublishOptions

    BatchMessage: TypeAlias = tuple[str, Data] | tuple[str, Data, PublishOptions]


class AtomicBatch(Single):
    """A batch of which a stream stores all messages or none, from `JetStream.atomic_batch`.

    As a context manager it commits at the end, and is discarded when the body raises,
    whose exception is never masked. An `add` that failed makes the end raise
    `AtomicBatchError` even if its error was caught; nothing happens there when the batch
    is empty, or has been committed or discarded before.

    The last message is held back and sent with the commit, so that servers without a
    commit of its own (2.12) do as well; the others are sent as they are added. Nothing is
    kept for a reconnect: a batch goes on after one only if the server had acknowledged
    all that was sent, and fails otherwise, with `AtomicBatchLostError`.

    A server forgets a batch when no message has come for ten seconds (nats-server 2.12:
    ten seconds after the first one), when the leader of the stream changes, and when it is
    restarted; the next acknowledged message or the commit raises
    `AtomicPublishIncompleteBatchError` then. A stream has at most 50 open batches
    (`AtomicPublishTooManyInflightError`; the former error on 2.12).

    Any thread may use it, one at a time: a second one gets `ConcurrentUseError`.
    """

    def __init__(
        self,
        api: API,
        lookup: StreamLookup,
        *,
        ack_first: bool = True,
        max_messages: int | None = MAX_MESSAGES,
        timeout: float | None = None,
    ) -> None:
        self._session = api.connection.session
        self._session.check_open()
        self._timeout = api.timeout if timeout is None else timeout
        self._engine = AtomicEngine(secrets.token_hex(11), max_messages)
        self._driver = AtomicDriver(api, lookup, self._engine, ack_first=ack_first)
        self._turn = Turn()

    @property
    def id(self) -> str:
        """What the server knows it by: the `Nats-Batch-Id` of its messages."""
        return self._engine.id

    @property
    def state(self) -> BatchState:
        """What has become of it."""
        return self._engine.state

    @property
    def pub_ack(self) -> PubAck | None:
        """The ack of the commit: `seq` is the last message's, `count` how many there are.

        The batch has the sequences from `seq - count + 1` to `seq`. None until committed.
        """
        return self._engine.pub_ack

    def __len__(self) -> int:
        """Messages added."""
        return self._engine.added

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        engine = self._engine
        return (
            f"<AtomicBatch {engine.id} {engine.state.value}, {engine.added} messages, "
            f"{engine.sent} sent>"
        )

    # What it does ---------------------------------------------------------------------

    def add(
        self,
        subject: str,
        data: Data = b"",
        *,
        ack: bool = False,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> None:
        """Add a message, with the options of `JetStream.publish`.

        It is sent when the next one is added, or with the commit. Blocks for the server's
        acknowledgement of the first message, unless `ack_first` is off, and with `ack` for
        that of this one, at most `timeout` seconds each time; this one is sent at once
        then, and when it remains the last one, the commit needs nats-server 2.14.

        What the server would refuse is refused before anything is sent, and the batch
        stays as it was: `ConfigError` (a `msg_id` that it has, `expected_last_sequence`
        after the first message, `expected_last_subject_sequence` for a subject that it has
        written, `expected_last_msg_id`, one message too many), `MaxPayloadError`, and
        `UnsupportedFeatureError` for `incr` and `schedule` where the server would store
        them wrongly. Any other error ends the batch, with nothing stored: an `APIError`,
        `NoStreamResponseError` after two more tries, `TimeoutError`,
        `AtomicBatchLostError`, `ConnectionClosedError`, and `AtomicBatchUnsupportedError`,
        which says what an old server has stored.
        """
        deadline = self._deadline(timeout)
        with self._turn:
            self._driver.take(subject, data, options, deadline)
            due = self._engine.due(last=ack)
            if not due:
                return
            try:
                self._driver.send(due, ack, deadline)
            except BaseException as error:
                self._driver.fail(error)
                raise

    def commit(
        self,
        subject: str | None = None,
        data: Data = b"",
        *,
        timeout: float | None = None,
        **options: Unpack[PublishOptions],
    ) -> PubAck:
        """Commit, with a last message when a `subject` is given; returns the ack.

        Blocks until the stream has stored the batch, at most `timeout` seconds. When no
        message is held back, since the last was added with `ack`, the commit is one of its
        own, which nats-server 2.14 has; an older one refuses it
        (`AtomicPublishInvalidBatchCommitError`). An empty batch is a `ConfigError`.

        The server checks the messages now, and stores nothing if it raises an `APIError`:
        `WrongLastSequenceError`, `AtomicPublishDuplicateMessageError`, and others;
        `AtomicPublishIncompleteBatchError` also when it refused a message that asked for
        no acknowledgement, such as one above the stream's `max_msg_size`. When the
        answer does not come, `UnclearCommitError`: see `resolve`. It raises what `add`
        raises too.
        """
        deadline = self._deadline(timeout)
        with self._turn:
            if subject is not None:
                self._driver.take(subject, data, options, deadline)
            elif data or options:
                raise ConfigError("a last message needs a subject")
            return self._driver.commit(deadline, self.resolve)

    def discard(self) -> None:
        """Give the batch up: nothing of it is stored. Does not block.

        The server is told, so that it can take another batch in its place. A batch that
        has ended stays as it is, and a commit that is under way on another thread is not
        stopped. A batch that is dropped while it is open is given up like this.
        """
        self._session.outbox.check_process()
        if self._engine.state is BatchState.OPEN:
            self._engine.move(BatchState.DISCARDED)
            self._driver.release()

    def resolve(self, timeout: float | None = None) -> PubAck | None:
        """Find out what became of a commit whose answer did not come; blocks.

        Returns the `PubAck` when the batch is in the stream, and None when it is certain
        that it is not and never will be: then it is safe to send it again, in a new batch.
        Otherwise, raises `UnclearCommitError`, which says what is in the way; `TimeoutError`
        or `ConnectionLostError`, after which it may be called again.

        The server is first made to refuse what may still be under way of the batch, then
        asked for the last message of the commit's subject, which tells by its headers
        (`Nats-Batch-Id`), and then for every nth message since the stream was last heard
        of, n being the size of the batch. Nothing found is certain only if the stream has
        removed no message since; on a replicated stream, if the leader says that a
        majority has all it has. It needs `STREAM.INFO` and `STREAM.MSG.GET` of the API.
        """
        deadline = self._deadline(timeout)
        with self._turn:
            engine = self._engine
            if engine.state is BatchState.OPEN:
                raise ConfigError("the batch is open: nothing to find out")
            if engine.state is BatchState.UNCLEAR:
                self._driver.resolve(deadline, self.resolve)
            return engine.pub_ack

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            with contextlib.suppress(Error):
                self.discard()
            return
        engine = self._engine
        if engine.state is BatchState.OPEN and engine.added:
            self.commit()
        elif engine.failure is not None:
            raise AtomicBatchError(
                "the batch was not committed: adding to it has failed"
            ) from engine.failure
        else:
            self.discard()

    def __del__(self) -> None:
        # A stream has room for 50, and keeps a forgotten one for ten seconds.
        engine = getattr(self, "_engine", None)
        if engine is not None and engine.state is BatchState.OPEN and engine.sent:
            self._session.call_soon(self._driver.release)

    def publish_all(
        self, messages: Iterable[BatchMessage], timeout: float | None
    ) -> PubAck:
        """What `JetStream.publish_batch` does."""
        deadline = self._deadline(timeout)
        with self._turn:
            take = self._driver.take
            for message in messages:
                take(*read_message(message), deadline)
            return self._driver.commit(deadline, self.resolve)

    def _deadline(self, timeout: float | None) -> float:
        self._session.outbox.check_process()
        return deadline_after(self._timeout if timeout is None else timeout)


class Turn:
    """Lets one thread at a time into a batch, and tells the others."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        # One item, which who is inside has taken: a lock would be held while parked.
        self._free = [True]

    def __enter__(self) -> None:
        try:
            self._free.pop()
        except IndexError:
            raise ConcurrentUseError(
                "another call on this batch is under way, or was interrupted"
            ) from None

    def __exit__(self, *_: object) -> None:
        self._free.append(True)


def read_message(message: tuple[Any, ...]) -> tuple[str, Data, PublishOptions]:
    """The parts of what `JetStream.publish_batch` takes for a message."""
    if isinstance(message, tuple):
        if len(message) == 2:
            return message[0], message[1], {}
        if len(message) == 3 and isinstance(message[2], dict):
            return message[0], message[1], message[2]  # type: ignore[return-value]
    raise ConfigError(
        "a message of a batch is (subject, data), or (subject, data, options) with the "
        f"options in a dict, not {message!r:.100}"
    )
