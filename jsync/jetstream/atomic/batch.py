"""Atomic batches: all of their messages are stored, or none (ADR-50)."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from ..._fast import AtomicAdder
from ...core.deadline import deadline_after
from ...core.single import Single
from ...errors import AtomicBatchError, ConfigError, Error
from .driver import AtomicDriver
from .engine import MAX_MESSAGES, AtomicEngine, BatchState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self, TypeAlias, Unpack

    from ...core.requests import Data
    from ...models import PubAck
    from ...models.publish import PublishOptions
    from ..api import API
    from .lookup import StreamLookup

    BatchMessage: TypeAlias = tuple[str, Data] | tuple[str, Data, PublishOptions]


class AtomicBatch(Single, AtomicAdder):
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

    A stream that has too much to store drops messages (`TooManyRequestsError`). `add` and
    `commit` then send the message that they wait for again, until it is taken or the time
    is over. One that was dropped and asked for no acknowledgement shows at the commit:
    `AtomicPublishIncompleteBatchError`. Nothing is stored then. The batch does not keep
    its messages: send all of them again, in a new batch.

    Any thread may use it, one at a time: a second one gets `ConcurrentUseError`. Any thread
    may `discard` it meanwhile.
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
        self._session = api.session
        self._session.check_open()
        self._timeout = api.seconds(timeout)
        self._engine = AtomicEngine(secrets.token_hex(11), max_messages)
        self._driver = AtomicDriver(api, lookup, self._engine, ack_first=ack_first)
        super().__init__(self._engine.messages, self._session.outbox)

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
        engine = getattr(self, "_engine", None)
        if engine is None:  # its options were refused
            return super().__repr__()
        return (
            f"<AtomicBatch {engine.id} {engine.state.value}, {engine.added} messages, "
            f"{engine.sent} sent>"
        )

    # What it does ---------------------------------------------------------------------

    def _add(
        self,
        subject: str,
        data: Data,
        options: PublishOptions,
        ack: bool,
        timeout: float | None,
    ) -> None:
        deadline = self._deadline(timeout)
        with self._turn:
            self._driver.take(subject, data, options, deadline)
            try:
                self._send_due(ack, deadline)
            except BaseException as error:
                self._fail(error)
                raise
            self._engine.check_open()  # else another thread has discarded it meanwhile

    def _send_due(self, ack: bool, deadline: float | None) -> None:
        connections = self._session.outbox.connections
        due = self._engine.due(last=ack)
        if not due:
            return
        self._driver.send(due, ack, self._deadline() if deadline is None else deadline)
        if self._engine.state is not BatchState.OPEN:
            self._driver.release()  # what another thread discarded has begun behind its end
            return
        # What follows on this connection needs no look at it.
        self._flow(connections)

    def _fail(self, error: BaseException) -> None:
        self._flow(0)
        self._driver.fail(error)

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
        if self._driver.give_up(BatchState.DISCARDED):
            self._flow(0)
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
        driver, rest = self._driver, iter(messages)
        with self._turn:
            while other := driver.take_plain(rest):
                driver.take(*read_message(other[0]), deadline)
            return driver.commit(deadline, self.resolve)

    def _deadline(self, timeout: float | None = None) -> float:
        self._session.outbox.check_process()
        return deadline_after(self._timeout if timeout is None else timeout)


def read_message(message: object) -> tuple[str, Data, PublishOptions]:
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
