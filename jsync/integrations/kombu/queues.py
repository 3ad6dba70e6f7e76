"""Queues as streams: each has a stream of its own, and a consumer for each priority."""

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
from .names import later_subject, matches, queue_subject, stream_name
from .wire import due, level, pack

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
ARGUMENTS = {
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-message-ttl",
}
"""The arguments of a queue that have an effect. `x-expires` has one with `auto_delete`."""
PAUSE_SECONDS = 0.25
PURGE_BATCH = 500
RETRIES, RETRIES_UNTIL_TIMEOUT = 2, -1


class Found(NamedTuple):
    """What the server says of a queue."""

    levels: int
    messages: int
    """Messages that workers hold are counted, too."""


@dataclass
class Declaration:
    """How this process has declared a queue, to make it again after another deleted it."""

    arguments: Mapping[str, Any]
    durable: bool
    bindings: set[tuple[str, str]] = field(default_factory=set)
    """Exchanges and patterns."""


class Queues:
    """The queues that streams hold, and their bindings. Any thread may use it."""

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

    def _led(self, call: Callable[[], T]) -> T:
        """Make a request of JetStream again while there is no leader to answer it."""
        deadline = monotonic() + self._options.timeout
        while True:
            try:
                return call()
            except JetStreamUnavailableError:
                if monotonic() + PAUSE_SECONDS > deadline:
                    raise
                sleep(PAUSE_SECONDS)

    # Declarations ---------------------------------------------------------------------

    def look(self, queue: str) -> Found | None:
        """Ask the server for a queue. None: no stream holds it. Blocks."""
        name = stream_name(self.prefix, queue)
        try:
            info = self._led(lambda: self._js.stream(name)).cached_info
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
        return Found(int(text), info.state.messages)

    def levels(self, queue: str) -> int | None:
        """Return the number of priorities of a queue. None: no stream holds it."""
        with self._lock:
            known = self._known.get(queue)
        if known is None:
            found = self.look(queue)
            known = None if found is None else found.levels
        return known

    def forget(self, queue: str) -> None:
        """Look the queue up again when it is next used."""
        with self._lock:
            self._known.pop(queue, None)

    def declare(
        self, queue: str, arguments: Mapping[str, Any], *, durable: bool = True
    ) -> tuple[Found, bool]:
        """Make the stream of a queue, if there is none. Blocks.

        A stream that exists stays as it is: its operator may have changed it.

        Returns:
            What the server says of the queue, and whether this call has made it.

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
        wanted = arguments.get("x-max-priority")
        levels = max(0, min(int(wanted or 0), MAX_PRIORITY)) + 1
        found = self.look(queue)
        made = found is None and self._create(queue, arguments, levels, durable=durable)
        found = found or self.look(queue) or Found(levels, 0)
        if wanted is not None and found.levels != levels:
            raise ConfigError(
                f"queue {queue!r} exists with max_priority {found.levels - 1}, not "
                f"{wanted}; use the same everywhere, or delete the queue first"
            )
        return found, made

    def _create(
        self, queue: str, arguments: Mapping[str, Any], levels: int, *, durable: bool
    ) -> bool:
        """Create the stream. False: another process was faster."""
        options = self._options
        age = arguments.get("x-message-ttl")
        # One subject for each priority: after the queue was made again with fewer, nobody
        # stores a message where no consumer looks for it.
        subjects = [queue_subject(self.prefix, queue, each) for each in range(levels)]
        schedules = {}
        if options.schedule_after is not None:
            subjects.append(later_subject(self.prefix, queue, "*"))
            schedules["allow_msg_schedules"] = True
        try:
            self._led(
                lambda: self._js.create_stream(
                    name=stream_name(self.prefix, queue),
                    description=f"kombu queue {queue}",
                    subjects=subjects,
                    retention="workqueue",
                    storage=options.storage if durable else "memory",
                    num_replicas=options.replicas,
                    max_age=None if age is None else age / 1000,
                    max_msgs=arguments.get("x-max-length"),
                    max_bytes=arguments.get("x-max-length-bytes"),
                    metadata={LEVELS: str(levels)},
                    **schedules,
                )
            )
        except AlreadyExistsError:
            return False
        with self._lock:
            self._known[queue] = levels
        return True

    def is_declared(self, queue: str) -> bool:
        """Whether this process has declared the queue."""
        with self._lock:
            return queue in self._declared

    def restore(self, queue: str) -> int | None:
        """Make a queue again that another client has deleted, if this process declared it.

        Blocks. Bindings come first: a queue that exists without a binding was unbound.

        Returns:
            The number of its priorities. None: this process has not declared it.
        """
        with self._lock:
            declaration = self._declared.get(queue)
        if declaration is None:
            return None
        log.warning("queue %s was deleted, and is made again", queue)
        for exchange, pattern in sorted(declaration.bindings):
            self._bindings.add(exchange, pattern, queue)
        found, _ = self.declare(
            queue, declaration.arguments, durable=declaration.durable
        )
        return found.levels

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages and bindings. It need not exist. Blocks."""
        with self._lock:
            self._declared.pop(queue, None)
        self._bindings.remove_queue(queue)
        self.forget(queue)
        try:
            self._led(lambda: self._js.delete_stream(stream_name(self.prefix, queue)))
        except StreamNotFoundError:
            return

    def is_used(self, queue: str) -> bool:
        """Whether a worker anywhere reads the queue or holds messages of it. Blocks."""
        stream = self._js.bind_stream(stream_name(self.prefix, queue))
        try:
            infos = [consumer.cached_info for consumer in stream.consumers()]
        except StreamNotFoundError:
            return False
        return any(info.num_waiting or info.num_ack_pending for info in infos)

    # Bindings -------------------------------------------------------------------------

    def bind(self, queue: str, exchange: str, pattern: str) -> None:
        """Have a queue get messages of an exchange. Blocks."""
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
        """The queues that get a message, those included that others have deleted."""
        queues = self._bindings.queues(exchange, routing_key)
        kind = self._bindings.type_of(exchange) or "direct"
        with self._lock:
            mine = [
                (queue, pattern)
                for queue, declaration in self._declared.items()
                for source, pattern in declaration.bindings
                if source == exchange and queue not in queues
            ]
        for queue, pattern in mine:
            if not matches(kind, pattern, routing_key):
                continue
            if self.look(queue) is None:
                self.restore(queue)
                queues.append(queue)
            elif not self._bindings.has(Binding(exchange, kind, pattern, queue)):
                with self._lock:  # another client has unbound it
                    self._declared[queue].bindings.discard((exchange, pattern))
        return queues

    # Publishing -----------------------------------------------------------------------

    def publish_to_exchange(
        self, exchange: str, routing_key: str, message: dict[str, Any]
    ) -> None:
        """Store a message in every queue that is bound. Blocks."""
        for queue in self._bound(exchange, routing_key):
            if not self.publish(queue, message):
                log.warning(
                    "queue %s is bound to exchange %s and does not exist: it gets no "
                    "messages",
                    *(queue, exchange),
                )

    def publish(self, queue: str, message: dict[str, Any]) -> bool:
        """Store a message. Blocks until the stream has it. False: there is no stream.

        A queue that this process has declared, and another client has deleted, is made
        again.
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
                # It may have no leader, too: wait for one as long as for an answer.
                retries = RETRIES_UNTIL_TIMEOUT
            else:
                return True

    def _store(
        self,
        queue: str,
        message: dict[str, Any],
        levels: int,
        retries: int,
    ) -> None:
        data, headers = pack(message)
        rank = level(message["properties"], levels)
        subject = queue_subject(self.prefix, queue, rank)
        later = self._later(message["headers"])
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
                later_subject(self.prefix, queue, message["id"]),
                data,
                headers=headers,
                schedule=later,
                schedule_target=subject,
                expected_last_subject_sequence=0,
                retry_attempts=retries,
            )
        except WrongLastSequenceError:
            return  # an earlier attempt has stored it

    def _later(self, headers: dict[str, Any]) -> datetime | None:
        """When the server is to publish a task, if not now."""
        after = self._options.schedule_after
        when = due(headers) if after is not None else None
        if after is None or when is None:
            return None
        return when if (when - when.now(when.tzinfo)).total_seconds() > after else None

    # Consuming ------------------------------------------------------------------------

    def consumer(self, queue: str, priority: int) -> jsync.Consumer:
        """Get the consumer of a priority, which all workers share. Blocks.

        A consumer that exists stays as it is, but its `ack_wait` grows to the option.
        A smaller one would take running tasks from workers that keep them less often.
        """
        stream = self._js.bind_stream(stream_name(self.prefix, queue))
        name = f"priority-{priority}"
        try:
            consumer = self._led(lambda: stream.consumer(name))
        except ConsumerNotFoundError:
            try:
                consumer = self._led(
                    lambda: stream.create_consumer(
                        durable_name=name,
                        filter_subject=queue_subject(self.prefix, queue, priority),
                        ack_wait=self._options.ack_wait,
                        max_ack_pending=-1,
                    )
                )
            except ConsumerExistsError:  # another process was faster
                consumer = self._led(lambda: stream.consumer(name))
        there, wanted = consumer.config.ack_wait or 0.0, self._options.ack_wait
        if there < wanted:
            return stream.update_consumer(durable_name=name, ack_wait=wanted)
        if there > wanted:
            log.info(
                "queue %s: its ack_wait stays %g s; update the consumer %s of stream %s "
                "to make it shorter",
                *(queue, there, name, stream.name),
            )
        return consumer

    # What it holds --------------------------------------------------------------------

    def size(self, queue: str) -> int:
        """Return the number of messages of a queue, those included that workers hold."""
        found = self.look(queue)
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
            dropped = stream.purge(subject=later_subject(self.prefix, queue, "*"))
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
