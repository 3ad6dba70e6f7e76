"""A subscription to advisories of servers."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Generic, cast

from ..core.clock import deadline_after
from ..core.resources import CloseOnExit, NotCopyable
from ..core.subscription import subscribe
from ..errors import ConfigError, JetStreamError
from ..models import BatchAbandoned, check_name
from ..models.advisory import KINDS, Advisory
from ..validation import check_optional_callable, check_seconds
from .replies import parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from typing_extensions import TypeVar

    from .._fast import Msg
    from ..core.session import HasSession
    from ..validation import Seconds

    AdvisoryT = TypeVar("AdvisoryT", bound=Advisory, default=Advisory)
else:
    from typing import TypeVar

    AdvisoryT = TypeVar("AdvisoryT")

PREFIX = "$JS.EVENT"


class Advisories(CloseOnExit, NotCopyable, Generic[AdvisoryT]):
    """Events of the server. `JetStream.advisories` returns it.

    Iterate over it, or call `next`, from one thread at a time. Any thread may call
    `close`. With a callback, the thread of the callback reads. Events that happen while
    the connection is lost do not arrive.

    Example:
        ```python
        with js.advisories(stream="ORDERS") as advisories:
            stream.create_consumer(durable_name="billing")
            print(advisories.next(timeout=5))
        ```
    """

    def __init__(
        self,
        owner: HasSession,
        kinds: tuple[type[AdvisoryT], ...],
        stream: str | None = None,
        consumer: str | None = None,
        callback: Callable[[AdvisoryT], object] | None = None,
        *,
        prefix: str = PREFIX,
        domain: str | None = None,
    ) -> None:
        given: tuple[object, ...] = kinds
        for kind in given:
            if not (isinstance(kind, type) and issubclass(kind, Advisory)):
                raise ConfigError(
                    f"{kind!r} is not a type of advisory; give one of jsync.models"
                )
        for name, value in (("stream", stream), ("consumer", consumer)):
            if value is not None:
                check_name(value, name)
        if consumer is not None and stream is None:
            raise ConfigError("consumer: give its stream as well")
        check_optional_callable(callback, "callback")
        self._kinds = kinds or (Advisory,)
        self._stream = stream
        self._report = owner._session.callbacks.report
        self._about = {"stream": stream, "consumer": consumer, "domain": domain}
        # For one kind, subscribe to its subject alone: the account may allow no
        # wildcard.
        where = self._kinds[0].where if len(self._kinds) == 1 else Advisory.where
        where = where.format(stream=stream or "*", consumer=consumer or "*")
        self._subscription = subscribe(
            owner,
            f"{prefix}.ADVISORY.{where}",
            callback=None if callback is None else self._called(callback),
        )

    def _called(self, callback: Callable[[AdvisoryT], object]) -> Callable[[Msg], None]:
        def call(msg: Msg) -> None:
            advisory = self._decode_matching(msg)
            if advisory is not None:
                callback(advisory)

        return call

    def _decode_matching(self, msg: Msg) -> AdvisoryT | None:
        advisory = read_advisory(msg.data)
        if not isinstance(advisory, self._kinds):
            return None
        for name, value in self._about.items():
            if value is not None:
                of = getattr(advisory, name, advisory.extra.get(name))
                if of != value:
                    return None
        return cast("AdvisoryT", advisory)

    def next(self, timeout: Seconds | None = 5.0) -> AdvisoryT:
        """Block until the next event has come.

        Args:
            timeout: Seconds to wait. None: no limit.

        Returns:
            The event.

        Raises:
            TimeoutError: No event came in time.
            SubscriptionClosedError: The subscription was closed.
            PermissionsError: You may not subscribe to the events.
            ConnectionClosedError: The connection was closed.

        Example:
            ```python
            with js.advisories() as advisories:
                stream.create_consumer(durable_name="billing")
                print(advisories.next(timeout=5))
            ```
        """
        if timeout is None:
            deadline = None
        else:
            deadline = deadline_after(check_seconds(timeout, "timeout"))
        while True:
            left = None if deadline is None else max(0.0, deadline - monotonic())
            advisory = self._decode_matching(self._subscription.next(left))
            if advisory is not None:
                return advisory

    def __iter__(self) -> Iterator[AdvisoryT]:
        """Iterate over the advisories, until the subscription is closed or fails.

        Any program may publish to the subjects of advisories. A message that is not an
        advisory goes to the connection's `on_error`, and the iteration continues.
        """
        for msg in self._subscription:
            try:
                advisory = self._decode_matching(msg)
            except JetStreamError as error:
                self._report(error)
                continue
            if advisory is not None:
                yield advisory

    def close(self) -> None:
        """End the subscription. Does not block.

        Iterations end, and a waiting `next` raises.

        Raises:
            SubscriptionClosedError: Raised by a waiting `next`.
        """
        self._subscription.unsubscribe()

    def __repr__(self) -> str:
        stream = f" of {self._stream!r}" if self._stream else ""
        state = "active" if self._subscription.is_active else "ended"
        return (
            f"<{type(self).__name__}{stream} {state}, "
            f"{self._subscription.pending} pending>"
        )


class BatchAdvisories(Advisories[BatchAbandoned]):
    """Advisories of atomic batches. `JetStream.batch_advisories` returns it.

    Example:
        ```python
        with js.batch_advisories("ORDERS") as advisories:
            with js.atomic_batch() as batch:
                batch.add("orders.new", b"first")
                batch.commit("orders.new", b"last")
        ```
    """

    def __init__(
        self,
        owner: HasSession,
        stream: str | None,
        *,
        prefix: str = PREFIX,
        domain: str | None = None,
    ) -> None:
        super().__init__(owner, (BatchAbandoned,), stream, prefix=prefix, domain=domain)


def read_advisory(data: bytes) -> Advisory:
    """Decode the advisory in a message, as its own type if jsync knows the type."""
    try:
        fields = parse_object(data)
        name = str(fields.get("type", "")).rpartition(".")[2]
        return KINDS.get(name, Advisory).from_wire(fields)
    except JetStreamError as error:
        raise JetStreamError(f"not an advisory: {data[:100]!r}") from error
