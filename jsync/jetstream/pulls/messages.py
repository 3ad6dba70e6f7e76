"""The iterators over a continuous pull, and what `messages()` returns (ADR-37)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ..._fast import JetStreamMsg, MessageIterator, ends_by, enter_self, safe_finalizer
from ...core.base_subscription import next_message
from ...core.resources import NotCopyable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...validation import Seconds
    from .driver import ContinuousPull

Item = TypeVar("Item")


class PrefetchIterator(NotCopyable, Generic[Item]):
    """An iteration without end over what a continuous pull brings."""

    def __init__(self, pull: ContinuousPull, idle_timeout: float | None) -> None:
        # A separate object: the connection refers to it, and must not keep this one
        # alive.
        self._pull = pull
        self._idle_timeout = idle_timeout or 0.0

    def _on_wait_timeout(self) -> None:
        """Called by the iteration when `idle_timeout` has passed."""
        # While disconnected no message can arrive, so do not count this time as idle.
        if self._pull.was_connected_for(self._idle_timeout):
            self._pull.drain()

    @property
    def pending(self) -> int:
        """Messages that have arrived and are not read yet."""
        return len(self._pull.mailbox)

    @property
    def closed(self) -> bool:
        """True once no more messages will come."""
        return self._pull.mailbox.closed

    def stop(self) -> list[Item]:
        """End the iteration, and give prefetched messages back to the server (nak).

        Blocks for up to two round trips, or 0.1 s while messages are still coming. If
        the ack policy is known to be `none`, the server would not redeliver the
        messages, so `stop` returns them, even after the `with` block. You may call it
        from any thread, and twice.

        Returns:
            The unread messages of a consumer without acks. Otherwise an empty list.
        """
        self._pull.stop()
        return cast("list[Item]", self._pull.take_unread())

    def drain(self) -> None:
        """Request no more messages. The iteration ends after the prefetched messages.

        Blocks as `stop` does. You may call it from any thread, and twice.

        Example:
            ```python
            consumer = stream.create_consumer(durable_name="billing")
            with consumer.messages() as messages:
                messages.next(timeout=5).ack()
                messages.drain()  # no more pulls, but the prefetched messages still come
                for msg in messages:
                    msg.ack()
            ```
        """
        self._pull.drain()

    __enter__ = enter_self

    @ends_by(lambda self: self._pull.close_nowait())
    def __exit__(self, *_: object) -> None:
        self._pull.stop()

    @safe_finalizer
    def __del__(self) -> None:
        pull = getattr(self, "_pull", None)
        if pull is not None:  # None if Ctrl-C interrupted __init__
            pull.close_nowait()

    def __repr__(self) -> str:
        state = "ended" if self.closed else "open"
        return f"<{type(self).__name__} {state}, {self.pending} pending>"


class MessagesContext(PrefetchIterator[JetStreamMsg]):
    """Messages without end, prefetched. `Consumer.messages` returns it.

    Iterate over it, or call `next`, from one thread. Leaving the `with` block stops it,
    and so does dropping it, once Python collects it.

    Example:
        ```python
        consumer = stream.create_consumer(durable_name="billing")
        with consumer.messages() as messages:
            for msg in messages:
                msg.ack()
                if msg.metadata.num_pending == 0:
                    break  # a worker would continue
        ```
    """

    def __iter__(self) -> Iterator[JetStreamMsg]:
        """Messages as they come, until it is stopped or drained, or fails.

        With an `idle_timeout` it is drained, and so ends, when a wait for a message has
        lasted that long. Raises `ConsumerDeletedError` or `ConnectionClosedError`, after
        the messages that had come. All else goes to `on_error` while the iteration goes
        on.
        """
        messages = MessageIterator(self._pull.mailbox, self, idle=self._idle_timeout)
        return cast("Iterator[JetStreamMsg]", messages)

    def next(self, timeout: Seconds | None = 5.0) -> JetStreamMsg:
        """Block until the next message has come.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The message.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: The iteration has ended.
            ConsumerDeletedError: The consumer was deleted.
            ConnectionClosedError: The connection was closed.
        """
        return next_message(self._pull.mailbox, timeout)  # type: ignore[return-value]
