"""Atomic batches: all of their messages are stored, or none (ADR-50)."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING

from ..._fast import AtomicBatchBase, enter_self, safe_finalizer
from ...core.clock import deadline_after
from ...core.resources import NotCopyable
from ...errors import AtomicBatchError, ConfigError, Error
from .driver import AtomicDriver
from .engine import MAX_MESSAGES, AtomicEngine, BatchState

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias, Unpack

    from ...core.requests import Data
    from ...models import PubAck
    from ...models.publish import PublishOptions
    from ..api import API
    from .stream_lookup import StreamLookup

    BatchMessage: TypeAlias = tuple[str, Data] | tuple[str, Data, PublishOptions]


class AtomicBatch(NotCopyable, AtomicBatchBase):
    """A batch of messages. The stream stores all of them or none.

    `JetStream.atomic_batch` returns it. The end of a `with` block commits the batch. If
    the block raises, the batch is discarded. If an `add` failed and you caught the
    error, the end raises `AtomicBatchError`. An empty batch, and one that you have
    committed or discarded, does nothing at the end.

    Messages are sent as you add them, except for the last one, which is sent with the
    commit. If the connection is lost, the batch continues only if the server had
    acknowledged all messages that were sent. Otherwise it fails with
    `AtomicBatchLostError`.

    A server drops a batch ten seconds after its last message (nats-server 2.12: after
    its first message), when the leader of the stream changes, and when it restarts. The
    next acknowledged message or the commit then raises
    `AtomicPublishIncompleteBatchError`. A stream has at most 50 open batches, otherwise
    you get `AtomicPublishTooManyInflightError`, or on 2.12
    `AtomicPublishIncompleteBatchError`.

    A stream that has too much to store drops messages (`TooManyRequestsError`). `add`
    and `commit` then retry the message that they wait for, until the stream takes it or
    the time is over. If the stream dropped a message that requested no acknowledgement,
    the commit raises `AtomicPublishIncompleteBatchError`, and nothing is stored. The
    batch does not keep its messages: send all of them again, in a new batch.

    Only one thread at a time may use a batch. Another one gets `ConcurrentUseError`.
    Any thread may call `discard` at any time.

    Example:
        ```python
        with js.atomic_batch() as batch:
            batch.add("orders.new", b"first")
            ack = batch.commit("orders.new", b"last")
        print(ack.count)
        ```
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
        super().__init__(self._engine.messages, self._session.write_buffer)

    @property
    def id(self) -> str:
        """The id of the batch: the `Nats-Batch-Id` of its messages."""
        return self._engine.id

    @property
    def state(self) -> BatchState:
        """The state of the batch."""
        return self._engine.state

    @property
    def pub_ack(self) -> PubAck | None:
        """The ack of the commit. None until committed.

        `seq` is the sequence of the last message, `count` the number of messages. The
        batch has the sequences from `seq - count + 1` to `seq`.
        """
        return self._engine.pub_ack

    def __len__(self) -> int:
        """Messages added."""
        return self._engine.added

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        engine = getattr(self, "_engine", None)
        if engine is None:  # __init__ raised for an invalid option
            return super().__repr__()
        return (
            f"<AtomicBatch {engine.id} {engine.state.value}, {engine.added} messages, "
            f"{engine.sent} sent>"
        )

    # Adding and ending ----------------------------------------------------------------

    def _add(
        self,
        subject: str,
        data: Data,
        options: PublishOptions,
        ack: bool,
        timeout: float | None,
    ) -> None:
        deadline = self._deadline(timeout)
        with self._guard:
            self._driver.add(subject, data, options, deadline)
            try:
                self._send_due(ack, deadline)
            except BaseException as error:
                self._fail(error)
                raise
            # Raises if another thread has discarded the batch.
            self._engine.check_open()

    def _send_due(self, ack: bool, deadline: float | None) -> None:
        connections = self._session.write_buffer.connections
        due = self._engine.due(last=ack)
        if not due:
            return
        self._driver.send(due, ack, self._deadline() if deadline is None else deadline)
        if self._engine.state is not BatchState.OPEN:
            # Another thread discarded the batch before its first message was sent.
            self._driver.release()
            return
        # Later messages on this connection need no check of the connection.
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
        """Commit the batch. Blocks until the stream has stored it.

        The server checks the messages now. If the call raises an `APIError`, nothing is
        stored. The call raises the errors of `add`, too.

        Args:
            subject: The subject of a last message. Default: no further message. If the
                last `add` had `ack`, a commit without a message needs nats-server 2.14.
            data: The payload of that message.
            timeout: Seconds to wait. Default: the batch's.
            **options: The options of that message, as with `add`.

        Returns:
            The ack of the stream.

        Raises:
            AmbiguousCommitError: No answer came. `resolve` finds out whether the batch is
                stored.
            ConfigError: The batch is empty.
            WrongLastSequenceError: An expected sequence is wrong.
            AtomicPublishDuplicateMessageError: The stream has a `msg_id` already.
            AtomicPublishIncompleteBatchError: The server rejected a message that requested
                no acknowledgement, or has lost the batch.
            AtomicPublishInvalidBatchCommitError: The server is too old to commit
                without a message.
            APIError: The stream rejects the batch for another reason.
        """
        deadline = self._deadline(timeout)
        with self._guard:
            if subject is not None:
                self._driver.add(subject, data, options, deadline)
            elif data or options:
                raise ConfigError("a last message needs a subject")
            return self._driver.commit(deadline, self.resolve)

    def discard(self) -> None:
        """Abandon the batch: nothing of it is stored. Does not block.

        jsync tells the server, which frees the room for another batch. A batch that has
        ended stays as it is, and a running commit of another thread is not stopped. If
        you drop an open batch, Python discards it.
        """
        self._session.write_buffer.check_process()
        if self._driver.abandon(BatchState.DISCARDED):
            self._flow(0)
            self._driver.release()

    def resolve(self, timeout: float | None = None) -> PubAck | None:
        """Find out whether a commit without an answer was stored. Blocks.

        jsync first makes the server reject any part of the batch that may still be
        under way. Then it looks for the last message of the batch, and for its other
        messages. You need permission for `STREAM.INFO` and `STREAM.MSG.GET` of the API.
        The result is certain only if the stream has removed no message since. A
        replicated stream also needs a leader with a majority.

        Args:
            timeout: Seconds to wait. Default: the batch's.

        Returns:
            The ack if the batch is stored. None if it is certain that it never will be:
            then you can safely send it again, in a new batch.

        Raises:
            AmbiguousCommitError: The answer is still unknown. The error names the reason.
            TimeoutError: The server did not answer in time. You can call this again.
            ConnectionLostError: The connection broke. You can call this again.
        """
        deadline = self._deadline(timeout)
        with self._guard:
            engine = self._engine
            if engine.state is BatchState.OPEN:
                raise ConfigError("the batch is open: commit it first")
            if engine.state is BatchState.UNCLEAR:
                self._driver.resolve(deadline, self.resolve)
            return engine.pub_ack

    __enter__ = enter_self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
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

    @safe_finalizer
    def __del__(self) -> None:
        # A stream has room for 50 open batches, and keeps a forgotten one for ten
        # seconds.
        engine = getattr(self, "_engine", None)
        if engine is not None and engine.state is BatchState.OPEN and engine.sent:
            self._session.call_soon(self._driver.release)

    def _publish_all(
        self, messages: Iterable[BatchMessage], timeout: float | None
    ) -> PubAck:
        """Add all messages and commit them. `JetStream.publish_batch` calls this."""
        deadline = self._deadline(timeout)
        driver, rest = self._driver, iter(messages)
        with self._guard:
            while other := driver.add_plain(rest):
                driver.add(*read_message(other[0]), deadline)
            return driver.commit(deadline, self.resolve)

    def _deadline(self, timeout: float | None = None) -> float:
        self._session.write_buffer.check_process()
        return deadline_after(self._timeout if timeout is None else timeout)


def read_message(message: object) -> tuple[str, Data, PublishOptions]:
    """Return the subject, data and options of a message for `JetStream.publish_batch`."""
    if isinstance(message, tuple):
        if len(message) == 2:
            return message[0], message[1], {}
        if len(message) == 3 and isinstance(message[2], dict):
            return message[0], message[1], message[2]  # type: ignore[return-value]
    raise ConfigError(
        "a message of a batch is (subject, data), or (subject, data, options) with the "
        f"options in a dict, not {message!r:.100}"
    )
