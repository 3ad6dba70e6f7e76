"""The transport and the channel that kombu asks for."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amqp.exceptions import NotFound
from amqp.protocol import queue_declare_ok_t
from kombu.message import Message as KombuMessage
from kombu.transport import base

import jsync
from jsync import errors

from . import shared as sharing
from .bindings import Binding
from .delivery import Arrivals, Bell, Delivery, Keeper, Lane
from .options import PREFIX, masked, options_of, place_of, tls_of
from .transient import Bound
from .wire import delivery_info, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .queues import Queues
    from .transient import TransientQueues

    Callback = Callable[[KombuMessage], object]

log = logging.getLogger("jsync.kombu")

MOST_AT_ONCE = 100
"""Messages that the event loop gets before it looks at anything else."""


class Reader:
    """A consumer of kombu, which reads one queue."""

    def __init__(self, queue: str, tag: str, callback: Callback, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag
        self.callback = callback
        self.no_ack = no_ack


class QoS:
    """What kombu and Celery look at of the messages that a channel holds."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals

    @property
    def prefetch_count(self) -> int:
        """The most messages that kombu may hold. 0: no limit."""
        return self._arrivals.limit


class Channel(base.StdChannel):  # type: ignore[misc]
    """A channel: it declares queues and exchanges, publishes, and consumes.

    Any thread may publish, ack and reject. Declaring and consuming belong to one thread
    at a time, as with every channel of kombu.
    """

    Message = KombuMessage

    def __init__(self, transport: Transport) -> None:
        self.connection = transport
        self.closed = False
        self.no_ack_consumers: set[str] = set()
        self._transport = transport
        self._shared = transport.shared
        self._process = os.getpid()
        self.arrivals = Arrivals(transport.bell)
        self.qos = QoS(self.arrivals)
        self._keeper: Keeper | None = None
        self._readers: dict[str, Reader] = {}
        """By queue."""
        self._declared: dict[str, tuple[Mapping[str, Any], bool]] = {}
        """The arguments of queues, and whether they are durable."""
        self._undecided: set[str] = set()
        """Queues that are streams, unless a fanout exchange is bound to them first."""

    @property
    def _queues(self) -> Queues:
        return self._shared.queues

    @property
    def _transient(self) -> TransientQueues:
        return self._shared.transient

    # Exchanges ------------------------------------------------------------------------

    def exchange_declare(
        self,
        exchange: str | None = None,
        type: str = "direct",  # noqa: A002
        passive: bool = False,
        **_options: Any,
    ) -> None:
        """Note the type of an exchange. Exchanges are not stored."""
        kind = type or "direct"
        if kind not in {"direct", "topic", "fanout"}:
            raise errors.ConfigError(
                f"exchange {exchange!r} has the type {kind!r}; there are direct, topic and "
                "fanout"
            )
        if not passive:
            self._shared.exchanges[exchange or f"amq.{kind}"] = kind

    def exchange_delete(self, exchange: str, **_options: Any) -> None:
        """Remove the bindings of an exchange. Its queues stay."""
        for binding in self._shared.bindings.all():
            if binding.exchange == exchange:
                self._shared.bindings.remove(binding)
        self._shared.exchanges.pop(exchange, None)

    # Queues ---------------------------------------------------------------------------

    prepare_queue_arguments = staticmethod(base.to_rabbitmq_queue_arguments)

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        **_options: Any,
    ) -> queue_declare_ok_t:
        """Declare a queue. Blocks until its stream is made.

        A queue that goes away by itself and has an expiry, or is exclusive, is kept in this
        process alone.
        """
        name = queue or f"amq.gen-{uuid4().hex}"
        arguments = arguments or {}
        if passive:
            if self._transient.get(name) is None and self._queues.levels(name) is None:
                raise NotFound(f"there is no queue {name!r}", (50, 10), "Queue.declare")
        elif exclusive or (auto_delete and "x-expires" in arguments):
            self._transient.declare(name)
        elif self._transient.get(name) is None:
            self._declared[name] = arguments, durable
            if auto_delete:
                self._undecided.add(name)
            else:
                self._queues.declare(name, arguments, durable=durable)
        return queue_declare_ok_t(name, self._size(name), 0)

    def _size(self, queue: str) -> int:
        transient = self._transient.get(queue)
        if transient is not None:
            return transient.size
        return 0 if queue in self._undecided else self._queues.size(queue)

    def _decide(self, queue: str) -> None:
        """Make the stream of a queue whose declaration left it open."""
        if queue in self._undecided:
            self._undecided.discard(queue)
            arguments, durable = self._declared[queue]
            self._queues.declare(queue, arguments, durable=durable)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        **_options: Any,
    ) -> None:
        """Have a queue get messages of an exchange. Blocks until all processes may know."""
        exchange = exchange or "amq.direct"
        kind = self._shared.exchanges.get(exchange, "direct")
        if kind == "fanout" and queue in self._undecided:
            self._undecided.discard(queue)
            self._transient.declare(queue)
        transient = self._transient.get(queue)
        if transient is not None:
            transient.bind(Bound(exchange, kind, routing_key))
            self._shared.nc.flush()  # from now on every message reaches it
            return
        self._decide(queue)
        self._shared.bindings.add(Binding(exchange, kind, routing_key, queue))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        **_options: Any,
    ) -> None:
        """Remove the binding of a queue."""
        exchange = exchange or "amq.direct"
        kind = self._shared.exchanges.get(exchange, "direct")
        self._shared.bindings.remove(Binding(exchange, kind, routing_key, queue))

    def queue_purge(self, queue: str, **_options: Any) -> int:
        """Drop the messages of a queue, and say how many there were."""
        transient = self._transient.get(queue)
        return self._queues.purge(queue) if transient is None else transient.purge()

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        **_options: Any,
    ) -> int:
        """Delete a queue, its messages and its bindings."""
        size = self._size(queue)
        if if_empty and size:
            return 0
        if if_unused and queue in self._readers:
            return 0
        self._declared.pop(queue, None)
        if self._transient.get(queue) is not None:
            self._transient.delete(queue)
        elif queue in self._undecided:
            self._undecided.discard(queue)
        else:
            self._shared.bindings.remove_queue(queue)
            self._queues.delete(queue)
        return size

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        """Queue, exchange and routing key of each binding of a stored queue."""
        for binding in self._shared.bindings.all():
            yield binding.queue, binding.exchange, binding.pattern

    def after_reply_message_received(self, queue: str) -> None:
        """A reply came: its queue is needed no more."""
        self.queue_delete(queue)

    # Publishing -----------------------------------------------------------------------

    def prepare_message(
        self,
        body: str | bytes,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Make what `basic_publish` takes."""
        return {
            "body": body,
            "content-type": content_type,
            "content-encoding": content_encoding,
            "headers": dict(headers or {}),
            "properties": {"priority": priority or 0, **(properties or {})},
        }

    def basic_publish(
        self,
        message: dict[str, Any],
        exchange: str = "",
        routing_key: str = "",
        **_options: Any,
    ) -> None:
        """Publish a message. Blocks until each stream that gets it has stored it.

        A message that no queue gets is dropped, as AMQP says.
        """
        properties = message["properties"]
        properties["delivery_tag"] = uuid4().hex
        properties["delivery_info"] = {"exchange": exchange, "routing_key": routing_key}
        if exchange:
            for queue in self._shared.bindings.queues(exchange, routing_key):
                self._queues.publish(queue, message)
            self._transient.publish_to_exchange(exchange, routing_key, message)
            return
        self._decide(routing_key)
        if self._transient.get(routing_key) is None and self._queues.publish(
            routing_key, message
        ):
            return
        self._transient.publish_to_queue(routing_key, message)

    # Consuming ------------------------------------------------------------------------

    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        apply_global: bool = False,
    ) -> None:
        """Set how many messages this channel may hold. 0: no limit."""
        self.arrivals.set_limit(prefetch_count)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool = False,
        callback: Callback | None = None,
        consumer_tag: str | None = None,
        **_options: Any,
    ) -> str:
        """Begin to consume a queue. `drain_events` of the transport calls `callback`."""
        tag = consumer_tag or uuid4().hex
        if callback is None:
            raise errors.ConfigError("basic_consume needs a callback")
        if queue in self._readers:
            raise errors.ConfigError(
                f"queue {queue!r} has a consumer on this channel; use another channel"
            )
        self._readers[queue] = Reader(queue, tag, callback, no_ack)
        if no_ack:
            self.no_ack_consumers.add(tag)
        transient = self._transient.get(queue)
        if transient is not None:
            self.arrivals.read(queue, [])
            transient.read(self._arrived)
            self._shared.nc.flush()
            return tag
        self._decide(queue)
        levels = self._queues.levels(queue) or self._made(queue)
        if self._keeper is None:
            self._keeper = Keeper(self.arrivals, self._transport.options.ack_wait)
            self._keeper.start()
        lanes = [
            Lane(self.arrivals, queue, level, self._maker(queue, level))
            for level in reversed(range(levels))
        ]
        self.arrivals.read(queue, lanes)
        return tag

    def _made(self, queue: str) -> int:
        arguments, durable = self._declared.get(queue, ({}, True))
        self._queues.declare(queue, arguments, durable=durable)
        return self._queues.levels(queue) or 1

    def _maker(self, queue: str, level: int) -> Callable[[], jsync.Consumer]:
        def make() -> jsync.Consumer:
            try:
                return self._queues.consumer(queue, level)
            except errors.StreamNotFoundError:
                self._queues.forget(queue)  # the queue was deleted
                self._made(queue)
                return self._queues.consumer(queue, level)

        return make

    def _arrived(self, queue: str, msg: jsync.Msg) -> None:
        self.arrivals.put(queue, 0, msg)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. Messages that kombu has not got yet go back to the server."""
        self.no_ack_consumers.discard(consumer_tag)
        for queue, reader in list(self._readers.items()):
            if reader.tag == consumer_tag:
                del self._readers[queue]
                transient = self._transient.get(queue)
                if transient is not None:
                    transient.read(None)
                self.arrivals.leave(queue)

    def has_tasks(self) -> bool:
        """Whether it reads a queue that a stream holds."""
        return self.arrivals.has_lanes

    def deliver(self) -> bool:
        """Call the callback of the next message, if one has come."""
        if self.arrivals.failure is not None:
            raise self.arrivals.failure
        delivery = self.arrivals.take(hold=self._holds)
        if delivery is None:
            return False
        reader = self._readers.get(delivery.queue)
        if reader is None:
            delivery.give_back()
            return True
        message = self._read(delivery, reader.tag)
        if message is None:
            return True
        if reader.no_ack and isinstance(delivery.msg, jsync.JetStreamMsg):
            delivery.msg.ack()
        reader.callback(message)
        return True

    def _holds(self, queue: str) -> bool:
        reader = self._readers.get(queue)
        return reader is not None and not reader.no_ack

    def _read(
        self, delivery: Delivery, consumer_tag: str | None
    ) -> KombuMessage | None:
        """The message of a delivery. None: it cannot be read, and has been dropped."""
        try:
            return self._message(delivery, consumer_tag)
        except Exception as error:  # noqa: BLE001 (it must not break the consumer)
            log.warning(
                "queue %s: dropped a message that cannot be read: %s",
                delivery.queue,
                error,
            )
        self.arrivals.done(delivery.tag)
        if isinstance(delivery.msg, jsync.JetStreamMsg):
            delivery.msg.term("cannot be read")
        return None

    def _message(self, delivery: Delivery, consumer_tag: str | None) -> KombuMessage:
        content = unpack(delivery.msg)
        info = delivery_info(content.properties)
        info["redelivered"] = delivery.redelivered
        if consumer_tag is not None:
            info["consumer_tag"] = consumer_tag
        return self.Message(
            channel=self,
            body=content.body,
            delivery_tag=delivery.tag,
            content_type=content.content_type,
            content_encoding=content.content_encoding,
            headers=content.headers,
            properties={**content.properties, "delivery_tag": delivery.tag},
            delivery_info=info,
        )

    def message_to_python(self, message: KombuMessage) -> KombuMessage:
        """Nothing: messages are what kombu wants already."""
        return message

    def basic_get(
        self, queue: str, no_ack: bool = False, **_options: Any
    ) -> KombuMessage | None:
        """Get the next message of a queue. Blocks for one answer of the server."""
        while (msg := self._next_of(queue)) is not None:
            if no_ack:
                delivery = Delivery(uuid4().hex, queue, 0, msg)
            else:
                delivery = self.arrivals.hold(queue, msg)
            message = self._read(delivery, None)
            if message is None:
                continue
            if no_ack and isinstance(msg, jsync.JetStreamMsg):
                msg.ack()
            return message
        return None

    def _next_of(self, queue: str) -> jsync.Msg | None:
        transient = self._transient.get(queue)
        if transient is not None:
            return transient.take()
        self._decide(queue)
        levels = self._queues.levels(queue)
        if levels is None:
            raise NotFound(f"there is no queue {queue!r}", (50, 10), "Basic.get")
        for level in reversed(range(levels)):
            with self._queues.consumer(queue, level).fetch_nowait(1) as batch:
                for msg in batch:
                    return msg
        return None

    # What becomes of a message --------------------------------------------------------

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """A message is done. The ack is buffered; the server redelivers if it is lost."""
        for delivery in self._done(delivery_tag, multiple):
            if isinstance(delivery.msg, jsync.JetStreamMsg):
                delivery.msg.ack()

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or have it delivered again, to any worker."""
        delivery = self.arrivals.done(delivery_tag)
        if delivery is None:
            return
        if isinstance(delivery.msg, jsync.JetStreamMsg):
            if requeue:
                delivery.msg.nak()
            else:
                delivery.msg.term("rejected")
        elif requeue:
            transient = self._transient.get(delivery.queue)
            if transient is not None:
                transient.put_back(delivery.msg)

    def basic_recover(self, requeue: bool = True) -> None:
        """Have all messages that this channel holds delivered again."""
        for delivery in self.arrivals.release():
            delivery.give_back()

    def _done(self, tag: str, multiple: bool) -> list[Delivery]:
        if multiple:
            return self.arrivals.done_until(tag)
        delivery = self.arrivals.done(tag)
        return [] if delivery is None else [delivery]

    def flow(self, active: bool = True) -> None:
        """Not offered: cancel the consumer instead."""
        raise NotImplementedError("there is no flow control by the client")

    def close(self) -> None:
        """End the consumers, and give back all messages that are not acknowledged."""
        if self.closed:
            return
        self.closed = True
        self._transport.forget(self)
        if self._process != os.getpid():
            return  # the threads and the connection belong to the parent
        for reader in list(self._readers.values()):
            self.basic_cancel(reader.tag)
        if self._keeper is not None:
            self._keeper.stop()
        with contextlib.suppress(errors.ConnectionClosedError):
            self.basic_recover()


class Management(base.Management):  # type: ignore[misc]
    """What `Connection.get_manager` returns."""

    def get_bindings(self) -> list[dict[str, str]]:
        """The bindings of stored queues."""
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
    * `connect`: a dict of options of `jsync.connect`, `creds` for instance.
    * `jetstream`: a dict of options of `Connection.jetstream`: `domain` or `prefix`.
    """

    Management = Management

    can_parse_url = True
    default_port = 4222
    driver_type = "jetstream"
    driver_name = "jsync"
    connection_errors = (errors.ConnectionError, errors.TimeoutError)
    channel_errors = (errors.JetStreamError,)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = (
        errors.NoStreamResponseError,
        errors.JetStreamUnavailableError,
    )
    implements = base.Transport.implements.extend(
        asynchronous=True,
        exchange_type=frozenset(["direct", "topic", "fanout"]),
        heartbeats=False,
    )

    def __init__(self, client: Any, **_options: Any) -> None:
        super().__init__(client)
        self.settings = _settings(client)
        self.options = self.settings.options
        self.bell = Bell()
        self._lock = threading.Lock()
        self._channels: list[Channel] = []
        self._shared: sharing.Shared | None = None

    @property
    def shared(self) -> sharing.Shared:
        """The connection of this process."""
        if self._shared is None:
            raise errors.ConnectionClosedError("the connection of kombu is closed")
        return self._shared

    def driver_version(self) -> str:
        """The version of jsync."""
        return jsync.__version__

    def as_uri(self, uri: str, include_password: bool = False, mask: str = "**") -> str:
        """A URL as it may be shown."""
        prefix = f"{self.client.uri_prefix}+" if self.client.uri_prefix else ""
        return prefix + (uri if include_password else masked(uri, mask))

    def establish_connection(self) -> Transport:
        """Connect, unless this process has such a connection."""
        self._shared = sharing.acquire(self.settings)
        return self

    def close_connection(self, connection: Transport) -> None:
        """Close the channels. The last transport of a process closes its connection."""
        while self._channels:
            self._channels[0].close()
        held, self._shared = self._shared, None
        self.bell.close()
        if held is not None:
            sharing.release(held)

    def verify_connection(self, connection: Transport) -> bool:
        """Whether the connection can be used. It reconnects by itself meanwhile."""
        return self._shared is not None and not self._shared.nc.is_closed

    def create_channel(self, connection: Transport) -> Channel:
        """Make a channel. Sends nothing."""
        channel = Channel(self)
        with self._lock:
            self._channels.append(channel)
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Close a channel."""
        channel.close()

    def forget(self, channel: Channel) -> None:
        """A channel is closed."""
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
                raise TimeoutError(f"no message within {timeout} s")
            self.bell.wait(left)

    def _deliver(self) -> bool:
        """Deliver one message, from each channel in turn.

        Control comes first, so that a revoke is heard before the task that follows it.
        """
        with self._lock:
            channels = list(self._channels)
        control = [channel for channel in channels if not channel.has_tasks()]
        tasks = [c for c in channels if c.has_tasks() and c.arrivals.has_news]
        if tasks and self._shared is not None:
            # Control that was sent before these tasks has arrived: it may only be that
            # its thread has not run yet.
            self._shared.transient.settle()
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
        """Have the loop of Celery call `on_readable` when messages come."""
        loop.add_reader(self.bell.fileno(), self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Transport, loop: Any) -> None:
        """Leave the loop of Celery."""
        loop.remove_reader(self.bell.fileno())

    def on_readable(self, connection: Transport, loop: Any) -> None:
        """Deliver what has come."""
        self.bell.clear()
        for _ in range(MOST_AT_ONCE):
            if not self._deliver():
                return
        self.bell.ring()


def _settings(client: Any) -> sharing.Settings:
    """The settings in a `kombu.Connection`, checked."""
    urls = [url for url in client.alt or [client.hostname] if url]
    urls = [url if "://" in str(url) else f"jetstream://{url}" for url in urls] or [
        "jetstream://"
    ]
    name = (client.virtual_host or "").strip("/") or PREFIX
    options = options_of(client.transport_options)
    more = tls_of(client.ssl)
    if client.userid:
        more["user"] = client.userid
    if client.password:
        more["password"] = client.password
    return sharing.Settings(place_of(urls, name), options, more)
