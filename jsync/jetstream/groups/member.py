"""An active member of a consumer group, which `ConsumerGroup.join` returns."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, cast

from ... import errors
from ..._fast import ends_by, enter_self, safe_finalizer
from ...core.resources import NotCopyable
from ...errors import SubscriptionClosedError
from ...validation import check_callable, check_seconds, format_seconds
from ..pulls.consume import ConsumeContext, check_error_policy
from ..pulls.delivery import Delivery
from ..retries.driver import RetryHandler
from .engine import MemberState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..._fast import JetStreamMailbox, JetStreamMsg
    from ...models import ConsumerConfig
    from ...validation import Seconds
    from ..pulls.consume import OnException
    from ..retries.engine import Retry
    from .member_loop import Membership


class GroupMember(NotCopyable):
    """A member of a consumer group that reads messages. `ConsumerGroup.join` returns it.

    Iterate over it, or call `next` or `consume`, from one thread. Messages of one key come
    one at a time and in order. Ack a message before you request the next one: a request says
    that you are done with the message before. Leave the `with` block to leave the group.

    While you handle a message, jsync requests more time from the server, so a handler may take
    longer than `ack_wait`.

    Example:
        ```python
        group = js.create_consumer_group(
            "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}, members=["a"]
        )
        with group.join("a") as member:
            msg = member.next(timeout=5)
            msg.ack()
        ```
    """

    def __init__(
        self, membership: Membership, config: ConsumerConfig, timeout: float
    ) -> None:
        self._membership = membership
        self._consumer_config = config
        self._timeout = timeout

    @property
    def name(self) -> str:
        """The name of the member."""
        return self._membership.member

    @property
    def state(self) -> MemberState:
        """The state of the member. Sends nothing."""
        return self._membership.state

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that the member reads now. Empty while it waits for them."""
        return self._membership.partitions

    @property
    def closed(self) -> bool:
        """True once no more messages will come."""
        return self._membership.state is MemberState.ENDED

    def __iter__(self) -> Iterator[JetStreamMsg]:
        """Iterate over the messages, until the member is stopped or the group deleted.

        While the member has no partitions, the iteration waits.

        Raises:
            ConsumerGroupChangedError: The configuration changed beyond the members.
            InvalidConsumerGroupError: The stored configuration is not valid any more.
            ConcurrentUseError: Another thread reads this member.
            ConnectionClosedError: The connection was closed.
        """
        while True:
            msg = self._membership.take()
            if msg is None:
                self._raise_error()
                return
            yield msg

    def next(self, timeout: Seconds | None = 5.0) -> JetStreamMsg:
        """Block until the next message has come.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The message.

        Raises:
            TimeoutError: No message came in time.
            SubscriptionClosedError: The member was stopped, or the group was deleted.
            ConsumerGroupChangedError: The configuration changed beyond the members.
            ConcurrentUseError: Another thread reads this member.
            ConnectionClosedError: The connection was closed.
        """
        deadline = None
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
            deadline = monotonic() + timeout
        msg = self._membership.take(deadline)
        if msg is not None:
            return msg
        self._raise_error()
        if self.closed:
            raise SubscriptionClosedError(f"member {self.name!r} has left the group")
        raise errors.TimeoutError(
            f"no message for member {self.name!r} within {format_seconds(timeout)}"
        )

    def consume(
        self,
        handler: Callable[[JetStreamMsg], object],
        *,
        on_exception: OnException = "continue",
        nak_delay: Seconds | None = None,
        retry: Retry | None = None,
    ) -> ConsumeContext:
        """Call a handler with each message, on one thread of its own. Does not block.

        The handler acknowledges the messages. A message that is retried holds up the other
        messages of its member, because the order of its key is kept. When partitions move
        to another member, the attempts of their messages are counted from 1 again.

        Args:
            handler: Called with each message.
            on_exception: The fate of a message whose handler raised. See
                `Consumer.consume`.
            nak_delay: Seconds until the redelivery, with `nak`. Default: immediately.
            retry: Deliver failed messages again with growing delays, and end them as
                dead letters. See `Retry`.

        Returns:
            The running handler, to be used in a `with` statement. Its `wait` raises the
            errors of iterating.

        Raises:
            ConfigError: The arguments cannot be combined.

        Example:
            ```python
            group = js.create_consumer_group(
                "ORDERS", "billing", partitions=4, filters={"orders.*": [1]}
            )
            group.add_members("a")

            def bill(msg: jsync.JetStreamMsg) -> None:
                print(msg.subject)
                msg.ack()

            member = group.join("a")
            with member.consume(bill):
                pass  # a worker would wait here
            member.stop()
            ```
        """
        delay = check_error_policy(
            on_exception, nak_delay, retry, self._consumer_config
        )
        check_callable(handler, "handler")
        membership = self._membership
        session = membership.session
        retrier = None
        if retry is not None:
            retrier = RetryHandler(
                session, retry, self._consumer_config, self._timeout, membership.report
            )
        name = f"{membership.group}-{membership.member}"
        return ConsumeContext(
            _MemberDelivery(self, membership),
            handler,
            on_exception,
            session,
            name,
            1,  # it waits for its partitions, and would hold up a thread of the pool
            delay,
            retrier,
        )

    def stop(self) -> None:
        """Leave the group. The iteration ends after the current message.

        You may call it from any thread, and twice. Blocks for a few round trips. An
        instance that waits for this member is served immediately.
        """
        self._membership.leave()

    def _raise_error(self) -> None:
        if self._membership.error is not None:
            raise self._membership.error

    __enter__ = enter_self

    @ends_by(lambda self: self._membership.detach())
    def __exit__(self, *_: object) -> None:
        self._membership.leave()

    @safe_finalizer
    def __del__(self) -> None:
        if hasattr(self, "_membership"):
            self._membership.detach()

    def __repr__(self) -> str:
        return f"<GroupMember {self._membership!r}>"


class _MemberDelivery(Delivery):
    """The source of messages for a `ConsumeContext`."""

    logger = logging.getLogger("jsync.consume")

    def __init__(self, member: GroupMember, membership: Membership) -> None:
        self._member = member  # a member without references would leave
        self._membership = membership
        self.in_hand = {}  # stays empty, as the membership requests more time itself
        self.mailbox = cast("JetStreamMailbox", _OneMessageMailbox(membership))

    @property
    def name(self) -> str:
        return f"{self._membership.stream}.{self._membership.group}"

    @property
    def acks(self) -> bool:
        return True

    def report(self, error: Exception, *, retry_in: float | None = None) -> None:
        self._membership.report(error)

    def stop(self) -> None:
        self._membership.stop()

    drain = stop

    def take_unread(self) -> list[JetStreamMsg]:
        return []


class _OneMessageMailbox:
    """A replacement for a mailbox that has one message at a time."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    @property
    def failure(self) -> Exception | None:
        return self._membership.error

    def hand_over(
        self,
        handler: Callable[[JetStreamMsg], object],
        raised: Callable[[JetStreamMsg, BaseException], object],
    ) -> None:
        while True:
            msg = self._membership.take()
            if msg is None:
                return
            try:
                handler(msg)
            except BaseException as error:  # noqa: BLE001 (the user's, SystemExit too)
                raised(msg, error)

    def __len__(self) -> int:
        return 0
