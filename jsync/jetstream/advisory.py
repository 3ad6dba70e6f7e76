"""Advisories of abandoned batches, as they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.single import Single
from ..core.subscription import subscribe
from ..errors import JetStreamError
from ..models import BatchAbandoned, check_name
from .replies import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType
    from typing import Self

    from ..core.session import Owner

SUBJECT = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED"


class BatchAdvisories(Single):
    """What `JetStream.batch_advisories` gives: iterate, or call `next`.

    For one reading thread at a time; `close` may be called from any. They are messages of
    core NATS: those of the time while the connection is lost do not come.
    """

    def __init__(self, owner: Owner, stream: str | None) -> None:
        if stream is not None:
            check_name(stream, "stream")
        self._stream = stream
        self._subscription = subscribe(owner, f"{SUBJECT}.{stream or '*'}")

    def next(self, timeout: float | None = 5.0) -> BatchAbandoned:
        """Block until the next one has come, at most `timeout` seconds; None is for ever.

        Raises `TimeoutError`, `SubscriptionClosedError` after `close`, and what a
        subscription raises: `PermissionsError`, `ConnectionClosedError`.
        """
        return read_advisory(self._subscription.next(timeout).data)

    def __iter__(self) -> Iterator[BatchAbandoned]:
        """Advisories, without end until it is closed or fails."""
        for msg in self._subscription:
            yield read_advisory(msg.data)

    def close(self) -> None:
        """End it: who waits gets the end, or `SubscriptionClosedError`. Does not block."""
        self._subscription.unsubscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        stream = f" of {self._stream!r}" if self._stream else ""
        state = "active" if self._subscription.is_active else "ended"
        return (
            f"<BatchAdvisories{stream} {state}, {self._subscription.pending} pending>"
        )


def read_advisory(data: bytes) -> BatchAbandoned:
    try:
        return BatchAbandoned.from_wire(decoded(data))
    except JetStreamError as error:
        raise JetStreamError(f"not an advisory: {data[:100]!r}") from error
