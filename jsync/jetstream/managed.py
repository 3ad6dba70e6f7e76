"""Consumers as the server has them: asked about, changed, paused, reset, deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NoCachedInfoError
from . import management

if TYPE_CHECKING:
    from datetime import datetime

    from ..checks import Seconds
    from ..models import (
        ConsumerConfig,
        ConsumerInfo,
        ConsumerPause,
        ConsumerReset,
    )
    from .api import API


class ManagedConsumer:
    """What pull and push consumers have in common."""

    def __init__(
        self, api: API, stream: str, name: str, info: ConsumerInfo | None = None
    ) -> None:
        """One that is bound without `info` asks the server nothing."""
        self._api = api
        self._stream = stream
        self._name = name
        self._info = info

    @property
    def name(self) -> str:
        """Its name on the server, also when that has made it up."""
        return self._name

    @property
    def stream_name(self) -> str:
        """The stream that it is a place in."""
        return self._stream

    @property
    def cached_info(self) -> ConsumerInfo:
        """What the server last said of it; asks nothing.

        Raises `NoCachedInfoError` when nothing has been asked yet, as after
        `JetStream.consumer`.
        """
        if self._info is None:
            raise NoCachedInfoError(
                f"consumer {self._name} was bound without asking the server: call info()"
            )
        return self._info

    @property
    def config(self) -> ConsumerConfig:
        """Its configuration, as of `cached_info`."""
        return self.cached_info.config

    def info(self, *, timeout: Seconds | None = None) -> ConsumerInfo:
        """Ask the server; blocks. Raises `ConsumerNotFoundError`."""
        self._info = management.consumer_info(
            self._api, self._stream, self._name, timeout
        )
        return self._info

    def update(
        self,
        config: ConsumerConfig | object | None = None,
        /,
        *,
        timeout: Seconds | None = None,
        **changes: Any,
    ) -> ConsumerInfo:
        """Change it; blocks. What keywords do not name stays as it is.

        Raises `ConsumerNotFoundError`, and `APIError` for what cannot be changed.
        """
        self._info = management.put_consumer(
            self._api, self._stream, "update", config, changes, timeout, name=self._name
        )
        return self._info

    def pause(
        self, until: datetime | Seconds, *, timeout: Seconds | None = None
    ) -> ConsumerPause:
        """Have it send nothing until then: an aware datetime, or seconds from now.

        Blocks. Seconds are counted by this machine's clock, the end comes by the
        server's. Pulls wait meanwhile. Needs nats-server 2.11.
        """
        return management.pause_consumer(
            self._api, self._stream, self._name, until, timeout
        )

    def resume(self, *, timeout: Seconds | None = None) -> ConsumerPause:
        """End a pause; blocks. Does nothing if there is none. Needs nats-server 2.11."""
        return management.resume_consumer(self._api, self._stream, self._name, timeout)

    def reset(
        self, sequence: int | None = None, *, timeout: Seconds | None = None
    ) -> ConsumerReset:
        """Have it go on from a sequence of the stream, by default after its ack floor.

        Blocks. None and 0 both mean the ack floor. The server redelivers all messages
        from there on, acknowledged or not. Raises
        `InvalidResetError` for a sequence before the one that it was set up to start
        from, and for any when its `deliver_policy` starts from no certain place, as
        `new` does. Needs nats-server 2.14.
        """
        self._info = reply = management.reset_consumer(
            self._api, self._stream, self._name, sequence, timeout
        )
        return reply

    def delete(self, *, timeout: Seconds | None = None) -> None:
        """Delete it on the server; blocks. Raises `ConsumerNotFoundError`."""
        management.delete_consumer(self._api, self._stream, self._name, timeout)
