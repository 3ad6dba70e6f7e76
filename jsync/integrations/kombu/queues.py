"""Queues as streams: each queue has a stream, with a consumer for each priority."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jsync.errors import (
    AlreadyExistsError,
    ConfigError,
    ConsumerExistsError,
    ConsumerNotFoundError,
    JetStreamUnavailableError,
    NoStreamResponseError,
    StreamNotFoundError,
    WrongLastSequenceError,
)

from .bindings import Binding
from .codec import eta, pack, priority_level
from .names import delayed_subject, matches, queue_subject, stream_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    import jsync

    from .bindings import Bindings
    from .options import Options

    T = TypeVar("T")

log = logging.getLogger("jsync.kombu")

LEVELS = "kombu.levels"
"""The key in the metadata of a stream that has the number of its priorities."""
MAX_PRIORITY = 9
ARGUMENTS = {"x-max-length", "x-max-length-bytes", "x-max-priority", "x-message-ttl"}
"""The arguments of a queue that have an effect. `x-expires` has none, because a queue with
`auto_delete` and an expiry has no stream."""
PAUSE_SECONDS = 0.25
PURGE_BATCH = 500
RETRIES, RETRIES_UNTIL_TIMEOUT = 2, -1


class QueueInfo(NamedTuple):
    """The state of a queue on the server."""

    levels: int
    messages: int
    """The number of messages, including messages that workers hold."""
    created: datetime | None = None
    """When its stream was created, by the server's clock."""


@dataclass
class Declaration:
    """The declaration of a queue by this process, to create it again if it was deleted."""

    arguments: Mapping[str, Any]
    durable: bool
    bindings: set[tuple[str, str]] = field(default_factory=set)
    """Exchanges and patterns."""


class Queues:
    """The queues with streams, and their bindings. Any thread may use it."""

    def __init__(
        self, js: jsync.JetStream, prefix: str, options: Options, bindings: Bindings
    ) -> None:
        self._js = js
        self.prefix = prefix
        self._options = options
        self._bindings = bindings
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        """The number of priorities of each queue that was looked up."""
        self._declared: dict[str, Declaration] = {}

    def _retry_until_led(self, call: Callable[[], T]) -> T:
        """Make a request to JetStream, and retry it while there is no leader."""
        deadline = monotonic() + self._options.timeout
        while True:
            try:
                return call()
            except JetStreamUnavailableError:
                if monotonic() + PAUSE_SECONDS > deadline:
                    raise
                sleep(PAUSE_SECONDS)

    # Declarations ---------------------------------------------------------------------

    def lookup(self, queue: str) -> QueueInfo | None:
        """Get the state of a queue from the server. None if it has no stream. Blocks."""
        name = stream_name(self.prefix, queue)
        try:
            info = self._retry_until_led(lambda: self._js.stream(name)).cached_info
        except StreamNotFoundError:
            self.forget(queue)
            return None
        if info.config.retention == "interest":
            raise ConfigError(
                f"stream {name!r} has retention='interest', which drops what no worker waits "
                "for: create it with retention='workqueue'"
            )
        text = (info.config.metadata or {}).get(LEVELS, "1")
        if not text.isdecimal() or not 1 <= int(text) <= MAX_PRIORITY + 1:
            raise ConfigError(
                f"stream {name!r} has {LEVELS}={text!r} in its metadata: set it to the "
                "number of priorities of the queue, 1 to 10"
            )
        with self._lock:
            self._known[queue] = int(text)
        return QueueInfo(int(text), info.state.messages, info.created)

    def levels(self, queue: str) -> int | None:
        """Return the number of priorities of a queue. None if it has no stream."""
        with self._lock:
            known = self._known.get(queue)
        if known is None:
            found = self.lookup(queue)
            known = None if found is None else found.levels
        return known

    def forget(self, queue: str) -> None:
        """Forget the state of a queue, so that its next use looks it up again."""
        with self._lock:
            self._known.pop(queue, None)

    def declare(
        self, queue: str, arguments: Mapping[str, Any], *, durable: bool = True
    ) -> tuple[QueueInfo, bool]:
        """Create the stream of a queue, if it does not exist. Blocks.

        An existing stream is not changed, because an operator may have configured it.

        Returns:
            The state of the queue, and whether this call has created it.

        Raises:
            ConfigError: The queue exists with other priorities.
        """
        with self._lock:
            before = self._declared.get(queue)
            bindings = set() if before is None else before.bindings
            ignored = sorted(arguments.keys() - ARGUMENTS) if before is None else []
            self._declared[queue] = Declaration(arguments, durable, bindings)
        if ignored:
            log.warning("queue %s: without effect: %s", queue, ", ".join(ignored))
        max_priority = arguments.get("x-max-priority")
        levels = max(0, min(int(max_priority or 0), MAX_PRIORITY)) + 1
        found = self.lookup(queue)
        made = found is None and self._create(queue, arguments, levels, durable=durable)
        found = found or self.lookup(queue) or QueueInfo(levels, 0)
        if max_priority is not None and found.levels != levels:
            raise ConfigError(
                f"queue {queue!r} exists with max_priority {found.levels - 1}, not "
                f"{max_priority}; use the same everywhere, or delete the queue first"
            )
        return found, made

    def _create(
        self, queue: str, arguments: Mapping[str, Any], levels: int, *, durable: bool
    ) -> bool:
        """Create the stream. Return False if another process was faster."""
        options = self._options
        age = arguments.get("x-message-ttl")
        # One subject for each priority: if the queue is created again with fewer of them,
        # no message can be stored on a subject without a consumer.
        subjects = [queue_subject(self.prefix, queue, level) for level in range(levels)]
        # Like in RabbitMQ, a queue with a length drops old messages. Others drop none, but for
        # those with schedules, whose streams may not refuse new messages.
        drops = not arguments.keys().isdisjoint({"x-max-length", "x-max-length-bytes"})
        schedules = {}
        if options.schedule_after is not None:
            subjects.append(delayed_subject(self.prefix, queue, "*"))
            schedules["allow_msg_schedules"] = drops = True
        try:
            self._retry_until_led(
                lambda: self._js.create_stream(
                    name=stream_name(self.prefix, queue),
                    description=f"kombu queue {queue}",
                    subjects=subjects,
                    retention="workqueue",
                    storage=options.storage if durable else "memory",
                    num_replicas=options.replicas,
                    max_age=None if age is None else age / 1000,
                    max_msgs=arguments.get("x-max-length"),
                    max_bytes=arguments.get("x-max-length-bytes", options.max_bytes),
                    discard="old" if drops else "new",
                    metadata={LEVELS: str(levels)},
                    **schedules,
                )
            )
        except AlreadyExistsError:
            return False
        with self._lock:
            self._known[queue] = levels
        return True

    def restore(self, queue: str) -> int | None:
        """Create a deleted queue again, if this process has declared it. Blocks.

        The bindings are stored first, so that no other process finds the queue without
        them. They are stored again afterwards, because another deletion may have removed
        them before there was a stream that it could delete.

        Returns:
            The number of priorities. None if this process has not declared the queue.
        """
        with self._lock:
            declaration = self._declared.get(queue)
        if declaration is None:
            return None
        log.warning("queue %s was deleted, and is made again", queue)
        bindings = sorted(declaration.bindings)
        for exchange, pattern in bindings:
            self._bindings.add(exchange, pattern, queue)
        found, _ = self.declare(
            queue, declaration.arguments, durable=declaration.durable
        )
        for exchange, pattern in bindings:
            self._bindings.add(exchange, pattern, queue)
        return found.levels

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages and bindings. It need not exist. Blocks."""
        with self._lock:
            self._declared.pop(queue, None)
        self._bindings.remove_queue(queue)
        self.forget(queue)
        try:
            self._retry_until_led(
                lambda: self._js.delete_stream(stream_name(self.prefix, queue))
            )
        except StreamNotFoundError:
            return

    def is_used(self, queue: str) -> bool:
        """Return whether any worker reads the queue or holds its messages. Blocks."""
        stream = self._js.bind_stream(stream_name(self.prefix, queue))
        try:
            infos = [consumer.cached_info for consumer in stream.consumers()]
        except StreamNotFoundError:
            return False
        return any(info.num_waiting or info.num_ack_pending for info in infos)

    # Bindings -------------------------------------------------------------------------

    def bind(self, queue: str, exchange: str, pattern: str) -> None:
        """Bind a queue to an exchange. Blocks."""
        self._bindings.add(exchange, pattern, queue)
        with self._lock:
            if queue in self._declared:
                self._declared[queue].bindings.add((exchange, pattern))

    def unbind(self, queue: str, exchange: str, pattern: str) -> None:
        """Remove the binding of a queue. Blocks."""
        with self._lock:
            if queue in self._declared:
                self._declared[queue].bindings.discard((exchange, pattern))
        self._bindings.remove(Binding(exchange, "", pattern, queue))

    def _bound(self, exchange: str, routing_key: str) -> list[str]:
        """Return the queues that get a message.

        Queues of this process that another client has deleted are created again. If one
        of them exists without its binding, the binding was removed either before the
        stream was created, and so with an earlier stream, or from this stream. Another
        client then has unbound the queue, or is about to delete it, and the message must
        not get there. The next message is judged again, because a deletion ends.
        """
        queues = self._bindings.queues(exchange, routing_key)
        kind = self._bindings.seen_type_of(exchange) or "direct"
        with self._lock:
            mine = [
                (queue, pattern)
                for queue, declaration in self._declared.items()
                for source, pattern in declaration.bindings
                if source == exchange and queue not in queues
            ]
        for queue, pattern in mine:
            if queue in queues or not matches(kind, pattern, routing_key):
                continue
            found = self.lookup(queue)
            if found is None:
                self.restore(queue)
            elif self._has_lost(found, exchange, pattern, queue):
                self._bindings.add(exchange, pattern, queue)
            else:
                continue
            queues.append(queue)
        return queues

    def _has_lost(
        self, found: QueueInfo, exchange: str, pattern: str, queue: str
    ) -> bool:
        """Return whether a queue has lost a binding with an earlier stream of it."""
        removed = self._bindings.removed_at(exchange, pattern, queue)
        if removed is None:  # nobody has removed it, so the bucket is a new one
            return True
        return found.created is not None and removed < found.created

    # Publishing -----------------------------------------------------------------------

    def publish_to_exchange(
        self, exchange: str, routing_key: str, message: dict[str, Any]
    ) -> None:
        """Store a message in every queue with a matching binding. Blocks."""
        for queue in self._bound(exchange, routing_key):
            if not self.publish(queue, message):
                log.warning(
                    "queue %s is bound to exchange %s and does not exist: it gets no "
                    "messages",
                    *(queue, exchange),
                )

    def publish(self, queue: str, message: dict[str, Any]) -> bool:
        """Store a message. Blocks until the stream has it. False if there is no stream.

        If another client has deleted a queue that this process has declared, the queue is
        created again.
        """
        retries = RETRIES
        while True:
            levels = self.levels(queue) or self.restore(queue)
            if levels is None:
                return False
            try:
                self._store(queue, message, levels, retries)
            except NoStreamResponseError:
                # The stream may have been deleted, or may have other priorities by now.
                self.forget(queue)
                if retries == RETRIES_UNTIL_TIMEOUT:
                    raise
                # Or it has no leader: wait for one as long as for an answer.
                retries = RETRIES_UNTIL_TIMEOUT
            else:
                return True

    def _store(
        self, queue: str, message: dict[str, Any], levels: int, retries: int
    ) -> None:
        data, headers = pack(message)
        rank = priority_level(message["properties"], levels)
        subject = queue_subject(self.prefix, queue, rank)
        later = self._eta_of(message["headers"])
        if later is None:
            self._js.publish(
                subject,
                data,
                headers=headers,
                msg_id=message["id"],
                retry_attempts=retries,
            )
            return
        try:
            self._js.publish(
                delayed_subject(self.prefix, queue, message["id"]),
                data,
                headers=headers,
                schedule=later,
                schedule_target=subject,
                expected_last_subject_sequence=0,
                retry_attempts=retries,
            )
        except WrongLastSequenceError:
            return  # an earlier attempt has stored it

    def _eta_of(self, headers: dict[str, Any]) -> datetime | None:
        """Return the time at which the server should publish a task. None: immediately."""
        after = self._options.schedule_after
        when = eta(headers) if after is not None else None
        if after is None or when is None:
            return None
        return when if (when - when.now(when.tzinfo)).total_seconds() > after else None

    # Consuming ------------------------------------------------------------------------

    def consumer(self, queue: str, priority: int) -> jsync.Consumer:
        """Get or create the consumer of a priority, which all workers share. Blocks.

        An existing consumer is not changed, except that its `ack_wait` grows to the option.
        A shorter `ack_wait` would take running tasks from workers that extend their time
        less often.
        """
        stream = self._js.bind_stream(stream_name(self.prefix, queue))
        name = f"priority-{priority}"
        try:
            consumer = self._retry_until_led(lambda: stream.consumer(name))
        except ConsumerNotFoundError:
            try:
                consumer = self._retry_until_led(
                    lambda: stream.create_consumer(
                        durable_name=name,
                        filter_subject=queue_subject(self.prefix, queue, priority),
                        ack_wait=self._options.ack_wait,
                        max_ack_pending=-1,
                    )
                )
            except ConsumerExistsError:  # another process was faster
                consumer = self._retry_until_led(lambda: stream.consumer(name))
        current, expected = consumer.config.ack_wait or 0.0, self._options.ack_wait
        if current < expected:
            return stream.update_consumer(durable_name=name, ack_wait=expected)
        if current > expected:
            log.info(
                "queue %s: its ack_wait stays %g s; update the consumer %s of stream %s "
                "to make it shorter",
                *(queue, current, name, stream.name),
            )
        return consumer

    # Contents -------------------------------------------------------------------------

    def size(self, queue: str) -> int:
        """Return the number of messages of a queue, including messages of workers."""
        found = self.lookup(queue)
        return 0 if found is None else found.messages

    def purge(self, queue: str) -> int:
        """Drop the messages of a queue that no worker holds. Blocks.

        Returns:
            The number of messages that were dropped.
        """
        levels = self.levels(queue)
        if levels is None:
            return 0
        stream = self._js.bind_stream(stream_name(self.prefix, queue))
        try:
            dropped = stream.purge(subject=delayed_subject(self.prefix, queue, "*"))
            for priority in range(levels):
                consumer = self.consumer(queue, priority)
                while count := _drop(consumer):
                    dropped += count
        except StreamNotFoundError:
            self.forget(queue)
            return 0
        return dropped


def _drop(consumer: jsync.Consumer) -> int:
    with consumer.fetch_nowait(PURGE_BATCH) as batch:
        messages = list(batch)
    for msg in messages[:-1]:
        msg.ack()
    for msg in messages[-1:]:
        msg.ack_sync()  # the server reads acks in their order
    return len(messages)
