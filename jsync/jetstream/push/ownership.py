"""The consumer that a subscription may have been given: whose it is, and its deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.requests import request
from ...core.shared import RLock
from ...errors import ConsumerNotFoundError, Error, StreamNotFoundError
from ..replies import read_reply
from .engine import OWNERSHIP_MOVES, Ownership

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...models import ConsumerInfo
    from ..api import API


class OwnConsumer:
    """What a subscription has to do with its consumer; turned under its `lock`."""

    def __init__(self, lock: RLock | None = None) -> None:
        self._lock = lock or RLock()
        self.ownership = Ownership.NONE

    def turn(self, ownership: Ownership) -> bool:
        """Go on to `ownership`, if that is a legal move now; whether it was."""
        with self._lock:
            if ownership not in OWNERSHIP_MOVES[self.ownership]:
                return False
            self.ownership = ownership
            return True

    def delete(self, delete: Callable[[], object]) -> None:
        """Delete it if it goes with its subscription: once, whoever else asks for it.

        One that is gone already is no error.
        """
        if not self.turn(Ownership.DELETING):
            return
        try:
            delete()
        except (ConsumerNotFoundError, StreamNotFoundError):
            self.turn(Ownership.NONE)
        except BaseException:
            self.turn(Ownership.OURS)  # deleting may be tried again
            raise
        else:
            self.turn(Ownership.NONE)

    def left(self, api: API, info: ConsumerInfo | None) -> None:
        """Its subscription was collected: a drain of the connection deletes it.

        If it is to be deleted, and does not go by itself. For finalisers: takes no lock.
        """
        if info is None or info.config.durable_name is None:
            return
        if self.ownership is not Ownership.OURS:
            return
        # Not the API: the connection may be forgotten, and is collected then.
        session, seconds = api.session, api.timeout
        subject = f"{api.prefix}.CONSUMER.DELETE.{info.stream_name}.{info.name}"

        def delete(_: float) -> None:
            try:
                read_reply(request(session, subject, b"", seconds).data)
            except (ConsumerNotFoundError, StreamNotFoundError):
                pass
            except Error as error:
                session.callbacks.report(error)

        session.at_drained(subject, delete)

    def __repr__(self) -> str:
        return f"<OwnConsumer: {self.ownership.value}>"
