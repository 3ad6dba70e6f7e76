"""The channel of the transport: it declares, publishes and consumes."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from amqp.exceptions import (
    ConsumerCancelled,
    NotFound,
    PreconditionFailed,
    RecoverableConnectionError,
)
from amqp.protocol import queue_declare_ok_t
from kombu.message import Message as KombuMessage
from kombu.transport import base

import jsync
from jsync import errors

from .bindings import kind_of
from .codec import delivery_info, unpack
from .delivery import Delivery, DeliveryBuffer, SubqueuePuller, stop_all
from .engine import Subqueue
from .transient import TransientBinding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from .broker import Broker
    from .queues import Queues
    from .self_pipe import SelfPipe
    from .transient import TransientQueues

    Callback = Callable[[KombuMessage], object]

log = logging.getLogger("jsync.kombu")

PUBLISH_ID = "jsync-publish-id"
"""The header with the id of a failed publish, for its retry. The header is not sent."""


class Owner(Protocol):
    """The part of the transport that a channel needs."""

    self_pipe: SelfPipe

    @property
    def shared(self) -> Broker:
        """The state that this process shares for the broker."""

    def forget(self, channel: Channel) -> None:
        """Record that a channel is closed."""


class QueueConsumer:
    """A consumer of kombu, which reads one queue."""

    def __init__(self, queue: str, tag: str, callback: Callback, no_ack: bool) -> None:
        self.queue = queue
        self.tag = tag
        self.callback = callback
        self.no_ack = no_ack


class QoS:
    """The prefetch count of a channel, in the attribute that kombu and Celery read."""

    def __init__(self, buffer: DeliveryBuffer) -> None:
        self._buffer = buffer

    @property
    def prefetch_count(self) -> int:
        """The most messages that kombu may hold. 0: no limit."""
        return self._buffer.limit


class Channel(base.StdChannel):  # type: ignore[misc]
    """A channel: it declares queues and exchanges, publishes, and consumes.

    Any thread may publish, ack and reject. Only one thread at a time may declare and
    consume, as with every channel of kombu.
    """

    Message = KombuMessage

    def __init__(self, transport: Owner) -> None:
        self.connection: Owner | None = transport
        """The transport, or None once the channel is closed, as kombu expects."""
        self.closed = False
        self.no_ack_consumers: set[str] = set()
        self._transport = transport
        self._broker = transport.shared
        self._process = os.getpid()
        self.buffer = DeliveryBuffer(transport.self_pipe, self._broker.tracker)
        self.qos = QoS(self.buffer)
        self._readers: dict[str, QueueConsumer] = {}
        """The consumers, by queue."""
        self._made: set[str] = set()
        """Queues with `auto_delete` that this channel has created and not bound yet."""

    @property
    def _shared(self) -> Broker:
        """The state that this process shares for the broker.

        Raises:
            RecoverableConnectionError: The channel is closed.
            ForkedProcessError: The channel belongs to the parent process.
        """
        if self.closed:
            raise RecoverableConnectionError("the channel is closed")
        if self._process != os.getpid():
            raise errors.ForkedProcessError(
                "this channel was made before a fork and belongs to the parent process: "
                "make another one in the child"
            )
        return self._broker

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
        """Store the type of an exchange, for all processes. Blocks.

        Raises:
            NotFound: The declaration is passive, and the exchange does not exist.
        """
        if passive:
            if exchange and not self._shared.bindings.exists(exchange):
                raise NotFound(
                    f"there is no exchange {exchange!r}", (40, 10), "Exchange.declare"
                )
            return
        kind = kind_of(exchange or "", type)
        if exchange:
            self._shared.bindings.declare(exchange, kind)

    def exchange_delete(
        self, exchange: str, if_unused: bool = False, **_options: Any
    ) -> None:
        """Remove an exchange and its bindings. Its queues stay.

        Raises:
            PreconditionFailed: The exchange has bindings, with `if_unused`.
        """
        bindings = self._shared.bindings
        if not if_unused:
            bindings.delete_exchange(exchange)
        elif not bindings.delete_unused_exchange(exchange):
            raise PreconditionFailed(
                f"exchange {exchange!r} has bindings", (40, 20), "Exchange.delete"
            )

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
        """Declare a queue. Blocks until its stream exists.

        An exclusive queue, or one with `auto_delete` and an expiry, has no stream, and only
        this process keeps its messages.

        Raises:
            NotFound: The declaration is passive, and the queue does not exist.
        """
        name = queue or f"amq.gen-{uuid4().hex}"
        arguments = arguments or {}
        transient = self._transient.get(name)
        if transient is None and not passive:
            if exclusive or (auto_delete and "x-expires" in arguments):
                transient = self._transient.declare(name, self._transport)
        elif transient is not None and not passive:
            transient.owners.add(self._transport)
        if transient is not None:
            return queue_declare_ok_t(name, transient.size, 0)
        if passive:
            found = self._queues.lookup(name)
            if found is None:
                raise NotFound(f"there is no queue {name!r}", (50, 10), "Queue.declare")
        else:
            found, made = self._queues.declare(name, arguments, durable=durable)
            if made and auto_delete:
                self._made.add(name)
        return queue_declare_ok_t(name, found.messages, 0)

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        **_options: Any,
    ) -> None:
        """Bind a queue to an exchange. Blocks until all processes can see the binding."""
        exchange = exchange or "amq.direct"
        kind = self._shared.bindings.type_of(exchange) or "direct"
        made = queue in self._made
        self._made.discard(queue)
        if kind == "fanout" and made:
            self._make_transient(queue)
        transient = self._transient.get(queue)
        if transient is not None:
            transient.bind(TransientBinding(exchange, kind, routing_key))
            self._shared.nc.flush()  # afterwards, every message reaches the queue
            return
        self._queues.bind(queue, exchange, routing_key)

    def _make_transient(self, queue: str) -> None:
        """Keep a queue only in this process, although its declaration created a stream.

        A reader of a broadcast has such a queue, with a name that is chosen at its start.
        No client would delete its stream. If a message has come before, the stream stays.
        """
        self._transient.declare(queue, self._transport)
        self._shared.nc.flush()  # afterwards, every message also reaches this queue
        if self._queues.size(queue):
            self._transient.delete(queue)
        else:
            self._queues.delete(queue)

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        **_options: Any,
    ) -> None:
        """Remove the binding of a queue."""
        exchange = exchange or "amq.direct"
        transient = self._transient.get(queue)
        if transient is not None:
            transient.unbind(exchange, routing_key)
        else:
            self._queues.unbind(queue, exchange, routing_key)

    def queue_purge(self, queue: str, **_options: Any) -> int:
        """Drop the messages of a queue that no worker holds, and return their number."""
        transient = self._transient.get(queue)
        return self._queues.purge(queue) if transient is None else transient.purge()

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        **_options: Any,
    ) -> int:
        """Delete a queue with its messages and bindings. Return its number of messages.

        Raises:
            PreconditionFailed: The queue has messages with `if_empty`, or consumers with
                `if_unused`.
        """
        transient = self._transient.get(queue)
        size = self._queues.size(queue) if transient is None else transient.size
        if if_empty and size:
            raise PreconditionFailed(
                f"queue {queue!r} has {size} messages", (50, 40), "Queue.delete"
            )
        if if_unused and (
            queue in self._readers
            or (transient is None and self._queues.is_used(queue))
        ):
            raise PreconditionFailed(
                f"queue {queue!r} has consumers", (50, 40), "Queue.delete"
            )
        self._made.discard(queue)
        if queue in self._readers:
            self._end(self._readers[queue])
        if transient is not None:
            self._transient.delete(queue)
        else:
            self._queues.delete(queue)
        return size

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        """Iterate over queue, exchange and routing key of the bindings of stored queues."""
        for binding in self._shared.bindings.all():
            yield binding.queue, binding.exchange, binding.pattern

    def after_reply_message_received(self, queue: str) -> None:
        """Delete the queue of a reply that has come."""
        self.queue_delete(queue)

    # Publishing -----------------------------------------------------------------------

    def prepare_message(
        self,
        body: str | bytes,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the message for `basic_publish`.

        kombu and Celery retry a failed publish with the same `headers`. These keep the id
        of the publish, so that a stream drops the duplicate.
        """
        given = {} if headers is None else headers
        failed_id, _, digest = str(given.get(PUBLISH_ID, "")).partition(" ")
        sent = {name: value for name, value in given.items() if name != PUBLISH_ID}
        return {
            "id": failed_id if digest and digest == _digest(body) else uuid4().hex,
            "given": given,
            "body": body,
            "content-type": content_type,
            "content-encoding": content_encoding,
            "headers": sent,
            "properties": {"priority": priority or 0, **(properties or {})},
        }

    def basic_publish(
        self,
        message: dict[str, Any],
        exchange: str = "",
        routing_key: str = "",
        **_options: Any,
    ) -> None:
        """Publish a message. Blocks until each stream of its queues has stored it.

        A message without a queue is dropped, as in AMQP.
        """
        message.setdefault("id", uuid4().hex)
        properties = message["properties"]
        properties["delivery_tag"] = uuid4().hex
        properties["delivery_info"] = {"exchange": exchange, "routing_key": routing_key}
        given = message.get("given", {})
        try:
            self._publish(message, exchange, routing_key)
        except Exception:
            given[PUBLISH_ID] = f"{message['id']} {_digest(message['body'])}"
            raise
        given.pop(PUBLISH_ID, None)
        message["id"] = uuid4().hex  # to publish it again is no retry

    def _publish(
        self, message: dict[str, Any], exchange: str, routing_key: str
    ) -> None:
        if exchange:
            self._queues.publish_to_exchange(exchange, routing_key, message)
            self._transient.publish_to_exchange(exchange, routing_key, message)
        elif self._transient.get(routing_key) is not None or not self._queues.publish(
            routing_key, message
        ):
            self._transient.publish_to_queue(routing_key, message)

    # Consuming ------------------------------------------------------------------------

    def basic_qos(
        self,
        prefetch_size: int = 0,
        prefetch_count: int = 0,
        apply_global: bool = False,
    ) -> None:
        """Set the most messages that this channel may hold. 0: no limit."""
        self.buffer.set_limit(prefetch_count)

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
        transient = self._transient.get(queue)
        if transient is not None:
            self._add(QueueConsumer(queue, tag, callback, no_ack))
            self.buffer.read(queue, [])
            transient.read(self._arrived)
            self._shared.nc.flush()
            return tag
        levels = self._queues.levels(queue) or self._queues.restore(queue)
        if levels is None:  # kombu was configured not to declare the queue
            levels = self._queues.declare(queue, {})[0].levels
        self._add(QueueConsumer(queue, tag, callback, no_ack))
        pullers = [
            SubqueuePuller(
                self.buffer,
                self._shared.tracker,
                Subqueue(queue, level),
                self._consumer_factory(queue, level),
            )
            for level in reversed(range(levels))
        ]
        self.buffer.read(queue, pullers)
        return tag

    def _add(self, reader: QueueConsumer) -> None:
        self._readers[reader.queue] = reader
        if reader.no_ack:
            self.no_ack_consumers.add(reader.tag)

    def _consumer_factory(self, queue: str, level: int) -> Callable[[], jsync.Consumer]:
        queues, extender = self._broker.queues, self._broker.extender

        def make() -> jsync.Consumer:
            try:
                consumer = queues.consumer(queue, level)
            except errors.StreamNotFoundError:
                queues.forget(queue)  # the queue was deleted
                if queues.restore(queue) is None:
                    raise ConsumerCancelled(
                        f"queue {queue!r} was deleted by this process"
                    ) from None
                consumer = queues.consumer(queue, level)
            extender.serve(consumer.config.ack_wait or 30.0)
            return consumer

        return make

    def _arrived(self, queue: str, msg: jsync.Msg) -> None:
        if not self.buffer.put(Subqueue(queue, 0), msg):
            self._return([msg], queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        """End a consumer. Messages that kombu has not got yet return to their queue."""
        for reader in list(self._readers.values()):
            if reader.tag == consumer_tag:
                self._end(reader)

    def _end(self, *readers: QueueConsumer) -> None:
        """End consumers. Blocks for some seconds at most."""
        pullers: list[SubqueuePuller] = []
        for reader in readers:
            self._readers.pop(reader.queue, None)
            self.no_ack_consumers.discard(reader.tag)
            transient = self._broker.transient.get(reader.queue)
            if transient is not None:
                transient.read(None)
            stopped, left = self.buffer.leave(reader.queue)
            pullers += stopped
            self._return([delivery.msg for delivery in left], reader.queue)
        stop_all(pullers)

    def _return(self, messages: list[jsync.Msg], queue: str) -> None:
        """Return messages to their queue, which delivers them to any consumer."""
        for msg in messages:
            self._broker.tracker.nak(msg)
        passing = [msg for msg in messages if not isinstance(msg, jsync.JetStreamMsg)]
        transient = self._broker.transient.get(queue)
        if passing and transient is not None:
            transient.put_back(passing)

    def has_tasks(self) -> bool:
        """Return whether the channel reads a queue with a stream."""
        return self.buffer.has_subqueues

    def deliver(self) -> bool:
        """Call the callback of the next message, if one has come."""
        if self.buffer.failure is not None:
            raise self.buffer.failure
        delivery = self.buffer.take(self._holds)
        if delivery is None:
            return False
        reader = self._readers.get(delivery.queue)
        if reader is None:
            self._return([delivery.msg], delivery.queue)
            return True
        message = self._read(delivery, reader.tag)
        if message is None:
            return True
        if reader.no_ack:
            self._broker.tracker.ack(delivery.msg)
        reader.callback(message)
        return True

    def _holds(self, queue: str) -> bool:
        reader = self._readers.get(queue)
        return reader is not None and not reader.no_ack

    def _read(
        self, delivery: Delivery, consumer_tag: str | None
    ) -> KombuMessage | None:
        """Return the message of a delivery, or None if it is unreadable and was dropped."""
        try:
            return self._message(delivery, consumer_tag)
        except Exception as error:  # noqa: BLE001 (it must not break the consumer)
            log.warning(
                "queue %s: dropped a message that cannot be read: %s",
                delivery.queue,
                error,
            )
        self.buffer.done(delivery.tag)
        self._broker.tracker.term(delivery.msg)
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
        """Return the message unchanged, because it is one of kombu already."""
        return message

    def basic_get(
        self, queue: str, no_ack: bool = False, **_options: Any
    ) -> KombuMessage | None:
        """Get the next message of a queue. Blocks for a request to the server."""
        while (msg := self._next_of(queue)) is not None:
            if no_ack:
                delivery = Delivery(uuid4().hex, queue, 0, msg)
            else:
                delivery = self.buffer.hold(queue, msg)
            message = self._read(delivery, None)
            if message is None:
                continue
            if no_ack:
                self._shared.tracker.ack(msg)
            return message
        return None

    def _next_of(self, queue: str) -> jsync.Msg | None:
        transient = self._transient.get(queue)
        if transient is not None:
            return transient.take()
        levels = self._queues.levels(queue)
        if levels is None:
            raise NotFound(f"there is no queue {queue!r}", (60, 70), "Basic.get")
        for level in reversed(range(levels)):
            consumer = self._consumer_factory(queue, level)()
            with consumer.fetch_nowait(1) as batch:
                for msg in batch:
                    if self._shared.tracker.begin(msg):
                        return msg
        return None

    # Acks -----------------------------------------------------------------------------

    def basic_ack(self, delivery_tag: str, multiple: bool = False) -> None:
        """Acknowledge a message. The ack is buffered, and sent again if it may be lost."""
        tracker = self._shared.tracker
        if multiple:
            done = self.buffer.done_until(delivery_tag)
        else:
            one = self.buffer.done(delivery_tag)
            done = [] if one is None else [one]
        for delivery in done:
            tracker.ack(delivery.msg)

    def basic_reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or with `requeue` return it, to be delivered to any worker."""
        tracker = self._shared.tracker
        delivery = self.buffer.done(delivery_tag)
        if delivery is None:
            return
        if requeue:
            self._return([delivery.msg], delivery.queue)
        else:
            tracker.term(delivery.msg)

    def basic_recover(self, requeue: bool = True) -> None:
        """Return all messages that this channel holds to their queues."""
        for delivery in self.buffer.release():
            self._return([delivery.msg], delivery.queue)

    def flow(self, active: bool = True) -> None:
        """Raise `NotImplementedError`. Cancel the consumer instead."""
        raise NotImplementedError("there is no flow control by the client")

    def close(self) -> None:
        """End the consumers, and return all unacknowledged messages to their queues."""
        if self.closed:
            return
        self.closed = True
        self.connection = None
        if self._process != os.getpid():
            return  # the threads, the locks and the connection belong to the parent
        self._transport.forget(self)
        self._end(*self._readers.values())
        self.basic_recover()


def _digest(body: str | bytes) -> str:
    data = body.encode() if isinstance(body, str) else bytes(body or b"")
    return hashlib.sha256(data).hexdigest()[:16]
