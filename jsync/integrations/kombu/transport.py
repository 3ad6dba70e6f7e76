"""The transport for kombu: its connections, errors and events."""

from __future__ import annotations

import contextlib
import os
import threading
from time import monotonic
from typing import Any

from amqp import exceptions as amqp
from kombu.transport import base

import jsync
from jsync import errors

from . import broker as brokers
from .channel import Channel
from .options import PREFIX, check_options, mask_password, parse_urls, tls_options
from .self_pipe import SelfPipe

MAX_PER_CALL = 100
"""The most messages that the event loop gets before it handles other events."""


class Management(base.Management):  # type: ignore[misc]
    """The object that `Connection.get_manager` returns."""

    def get_bindings(self) -> list[dict[str, str]]:
        """Return the bindings of stored queues."""
        with Channel(self.transport) as channel:
            return [
                {"destination": queue, "source": exchange, "routing_key": key}
                for queue, exchange, key in channel.list_bindings()
            ]


class Transport(base.Transport):  # type: ignore[misc]
    """JetStream behind `jetstream://[user:password@]host[:port][,host...][/name]`.

    `broker_transport_options` may have:

    * `ack_wait`: seconds until the tasks of a worker that died reach another one.
      Living workers keep theirs for as long as they like. Default: 30.
    * `replicas`, `storage`: of the streams that this makes. Default: one, `file`.
    * `timeout`: seconds to wait for each answer. Default: 5.
    * `schedule_after`: tasks with an ETA more than this number of seconds away wait on the
      server. It needs nats-server 2.12. Default: they wait in a worker.
    * `connect`: a dict of options of `jsync.connect`, such as `creds`.
    * `jetstream`: a dict of options of `Connection.jetstream`: `domain` or `prefix`.
    """

    Management = Management

    can_parse_url = True
    default_port = 4222
    driver_type = "jetstream"
    driver_name = "jsync"
    # kombu itself raises errors of AMQP, for example for a closed channel.
    connection_errors = (
        amqp.ConnectionError,
        errors.ConnectionError,
        errors.TimeoutError,
        OSError,
    )
    channel_errors = (amqp.ChannelError, errors.Error)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = (amqp.RecoverableChannelError, *brokers.UNAVAILABLE)
    implements = base.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **_options: Any) -> None:
        super().__init__(client)
        self.settings = _settings(client)
        self.options = self.settings.options
        self._start()

    def _start(self) -> None:
        self.self_pipe = SelfPipe()
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._channels: list[Channel] = []
        self._shared: brokers.Broker | None = None
        self._loop: Any = None

    @property
    def shared(self) -> brokers.Broker:
        """The state that this process shares for the broker.

        Raises:
            ConnectionClosedError: The connection of kombu is closed.
            ForkedProcessError: The connection belongs to the parent process.
        """
        if self._process != os.getpid():
            raise errors.ForkedProcessError(
                "this connection was made before a fork and belongs to the parent process"
            )
        if self._shared is None:
            raise errors.ConnectionClosedError("the connection of kombu is closed")
        return self._shared

    def driver_version(self) -> str:
        """Return the version of jsync."""
        return jsync.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """Return a URL that may be shown, without its password."""
        prefix = f"{self.client.uri_prefix}+" if self.client.uri_prefix else ""
        return prefix + (uri if include_password else mask_password(uri, mask))

    def establish_connection(self) -> Transport:
        """Connect, or share the connection that this process has already."""
        if self._process != os.getpid():
            self._start()  # the inherited connection belongs to the parent process
        held, self._shared = self._shared, brokers.acquire(self.settings)
        if held is not None:
            brokers.release(held)
        return self

    def close_connection(self, connection: Transport) -> None:
        """Close the channels. The last transport of a process closes the connection."""
        if self._process != os.getpid():
            self._start()
            return
        held, self._shared = self._shared, None
        try:
            for channel in list(self._channels):
                with contextlib.suppress(*self.connection_errors, errors.Error):
                    channel.close()
        finally:
            if self._loop is not None:
                self._loop.remove_reader(self.self_pipe.fileno())
                self._loop = None
            self.self_pipe.close()
            self.self_pipe = SelfPipe()
            if held is not None:
                held.transient.release(self)
                brokers.release(held)

    def verify_connection(self, connection: Transport) -> bool:
        """Return whether the connection is usable. True while it reconnects, too."""
        return (
            self._process == os.getpid()
            and self._shared is not None
            and not self._shared.nc.is_closed
        )

    def create_channel(self, connection: Transport) -> Channel:
        """Create a channel, without a request to the server."""
        channel = Channel(self)
        with self._lock:
            self._channels.append(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Close a channel."""
        channel.close()

    def forget(self, channel: Channel) -> None:
        """Record that a channel is closed."""
        with contextlib.suppress(ValueError), self._lock:
            self._channels.remove(channel)

    def drain_events(
        self, connection: Transport, timeout: float | None = None, **_options: Any
    ) -> None:
        """Wait for a message, and call the callback of its consumer.

        Raises:
            TimeoutError: No message came in time.
            ConnectionClosedError: The connection was closed.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while not self._deliver():
            if not self.verify_connection(connection):
                raise errors.ConnectionClosedError("the connection is closed")
            left = 1.0 if deadline is None else min(1.0, deadline - monotonic())
            if left <= 0:
                raise TimeoutError(f"no message within {timeout:g} s")
            self.self_pipe.wait(left)

    def _deliver(self) -> bool:
        """Deliver one message, from each channel in turn.

        Control messages come first, so that a revoke takes effect before its task.
        """
        with self._lock:
            channels = list(self._channels)
        control = [channel for channel in channels if not channel.has_tasks()]
        tasks = [c for c in channels if c.has_tasks() and c.buffer.is_readable]
        if tasks and self._shared is not None:
            # Control messages that were sent before these tasks have arrived, but the
            # thread of their subscription may not have run yet.
            self._shared.transient.wait_delivered()
        for channel in control + tasks:
            if channel.deliver():
                with self._lock:
                    if channel in self._channels:  # the channel has had its turn
                        self._channels.remove(channel)
                        self._channels.append(channel)
                return True
        return False

    # Celery's event loop --------------------------------------------------------------

    def register_with_event_loop(self, connection: Transport, loop: Any) -> None:
        """Make the loop of Celery call `on_readable` when messages come."""
        self._loop = loop
        loop.add_reader(self.self_pipe.fileno(), self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Transport, loop: Any) -> None:
        """Remove the self-pipe from the loop of Celery."""
        self._loop = None
        loop.remove_reader(self.self_pipe.fileno())

    def on_readable(self, connection: Transport, loop: Any) -> None:
        """Deliver the messages that have come, up to `MAX_PER_CALL`."""
        self.self_pipe.clear()
        for _ in range(MAX_PER_CALL):
            if not self._deliver():
                return
        self.self_pipe.wake()


def _settings(client: Any) -> brokers.BrokerSettings:
    """Return the checked settings of a `kombu.Connection`."""
    urls = [url for url in client.alt or [client.hostname] if url]
    port = f":{client.port}" if client.port else ""
    urls = [url if "://" in str(url) else f"jetstream://{url}{port}" for url in urls]
    urls = urls or ["jetstream://"]
    name = (client.virtual_host or "").strip("/") or PREFIX
    options = check_options(client.transport_options)
    more = tls_options(client.ssl)
    if client.userid:
        more["user"] = client.userid
    if client.password:
        more["password"] = client.password
    return brokers.BrokerSettings(parse_urls(urls, name), options, more)
