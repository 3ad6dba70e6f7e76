"""The ownership of a subscription's consumer, and its deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.requests import request
from ...core.state import StateMachine
from ...core.sync import ForkSafeRLock
from ...errors import ConsumerNotFoundError, Error, StreamNotFoundError
from ..replies import parse_reply
from .engine import OWNERSHIP_TRANSITIONS, Ownership

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import ConsumerInfo
    from ..api import API


class ConsumerOwnership(StateMachine[Ownership]):
    """A subscription's ownership of its consumer, which changes under the `lock`."""

    def __init__(self, lock: ForkSafeRLock | None = None) -> None:
        super().__init__(Ownership.NONE, OWNERSHIP_TRANSITIONS, lock or ForkSafeRLock())

    def delete(self, delete: Callable[[], object]) -> None:
        """Delete the consumer if it is ours. Only one of several threads does it.

        A consumer that is already gone is no error.
        """
        if not self.try_to(Ownership.DELETING):
            return
        try:
            delete()
        except (ConsumerNotFoundError, StreamNotFoundError):
            self.try_to(Ownership.NONE)
        except BaseException:
            self.try_to(Ownership.OURS)  # deleting may be tried again
            raise
        else:
            self.try_to(Ownership.NONE)

    def delete_on_drain(self, api: API, info: ConsumerInfo | None) -> None:
        """Let a drain of the connection delete the consumer of a collected subscription.

        Only a durable consumer that is ours needs this, because the server itself removes
        ephemeral ones. Takes no lock, so finalisers may call it.
        """
        if info is None or info.config.durable_name is None:
            return
        if self.current is not Ownership.OURS:
            return
        # Do not refer to the API, which would keep a dropped connection alive.
        session, seconds = api.session, api.timeout
        subject = f"{api.prefix}.CONSUMER.DELETE.{info.stream_name}.{info.name}"

        def delete(_: float) -> None:
            try:
                parse_reply(request(session, subject, b"", seconds).data)
            except (ConsumerNotFoundError, StreamNotFoundError):
                pass
            except Error as error:
                session.callbacks.report(error)

        session.add_drain_callback(subject, delete)

    def __repr__(self) -> str:
        return f"<ConsumerOwnership: {self.current.value}>"
