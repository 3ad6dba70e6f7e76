"""Queues as streams: each has a stream of its own, and a consumer for each priority."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from jsync.errors import ConfigError, NoStreamResponseError, StreamNotFoundError

from .names import later_subject, queue_subject, stream_name
from .wire import due, level, pack

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import jsync

    from .options import Options

LEVELS = "kombu.levels"
"""The key in the metadata of a stream that has the number of its priorities."""
MOST_PRIORITY = 9


class Queues:
    """The queues that streams hold. Any thread may use it."""

    def __init__(self, js: jsync.JetStream, prefix: str, options: Options) -> None:
        self._js = js
        self.prefix = prefix
        self._options = options
        self._lock = threading.Lock()
        self._known: dict[str, int] = {}
        """The number of priorities of each queue that has been looked up."""

    def declare(
        self, queue: str, arguments: Mapping[str, Any], *, durable: bool = True
    ) -> None:
        """Make the stream of a queue, if there is none.

        A stream that exists stays as it is: its operator may have changed it.

        Raises:
            ConfigError: The queue exists with other priorities.
        """
        wanted = arguments.get("x-max-priority")
        levels = self.levels(queue)
        if levels is None:
            highest = min(int(wanted or 0), MOST_PRIORITY)
            levels = self._create(queue, arguments, highest + 1, durable=durable)
        if wanted is not None and min(int(wanted), MOST_PRIORITY) + 1 != levels:
            raise ConfigError(
                f"queue {queue!r} exists with max_priority {levels - 1}, not {wanted}; "
                "use the same everywhere, or delete the queue first"
            )

    def levels(self, queue: str) -> int | None:
        """The number of priorities of a queue. None if no stream holds it."""
        with self._lock:
            if queue in self._known:
                return self._known[queue]
        try:
            config = self._js.stream(stream_name(self.prefix, queue)).config
        except StreamNotFoundError:
            return None
        found = int((config.metadata or {}).get(LEVELS, "1"))
        with self._lock:
            self._known[queue] = found
        return found

    def _create(
        self, queue: str, arguments: Mapping[str, Any], levels: int, *, durable: bool
    ) -> int:
        options = self._options
        age = arguments.get("x-message-ttl")
        length = arguments.get("x-max-length")
        size = arguments.get("x-max-length-bytes")
        subjects = [queue_subject(self.prefix, queue, "*")]
        if options.schedule_after is not None:
            subjects.append(later_subject(self.prefix, queue, "*"))
        self._js.create_stream(
            name=stream_name(self.prefix, queue),
            description=f"kombu queue {queue}",
            subjects=subjects,
            retention="workqueue",
            storage=options.storage if durable else "memory",
            num_replicas=options.replicas,
            max_age=None if age is None else age / 1000,
            max_msgs=length,
            max_bytes=size,
            metadata={LEVELS: str(levels)},
            **({} if options.schedule_after is None else {"allow_msg_schedules": True}),
        )
        with self._lock:
            self._known[queue] = levels
        return levels

    def forget(self, queue: str) -> None:
        """Look the queue up again when it is next used."""
        with self._lock:
            self._known.pop(queue, None)

    def consumer(self, queue: str, priority: int) -> jsync.Consumer:
        """The consumer of a priority, which all workers share."""
        stream = self._js.bind_stream(stream_name(self.prefix, queue))
        return stream.create_or_update_consumer(
            durable_name=f"priority-{priority}",
            filter_subject=queue_subject(self.prefix, queue, priority),
            ack_wait=self._options.ack_wait,
            max_ack_pending=-1,
        )

    def publish(self, queue: str, message: dict[str, Any]) -> bool:
        """Store a message. Blocks until the stream has it; False if there is no stream."""
        for _ in range(2):
            levels = self.levels(queue)
            if levels is None:
                return False
            data, headers = pack(message)
            subject = queue_subject(
                self.prefix, queue, level(message["properties"], levels)
            )
            later = self._later(message["headers"])
            tag = message["properties"]["delivery_tag"]
            try:
                if later is None:
                    self._js.publish(subject, data, headers=headers, msg_id=tag)
                else:
                    self._js.publish(
                        later_subject(self.prefix, queue, tag),
                        data,
                        headers=headers,
                        schedule=later,
                        schedule_target=subject,
                    )
            except NoStreamResponseError:
                self.forget(queue)  # the stream may have been deleted
                if self.levels(queue) is not None:
                    raise
            else:
                return True
        return False

    def _later(self, headers: dict[str, Any]) -> datetime | None:
        """When the server is to publish a task, if not at once."""
        after = self._options.schedule_after
        when = due(headers) if after is not None else None
        if after is None or when is None:
            return None
        return when if (when - when.now(when.tzinfo)).total_seconds() > after else None

    def size(self, queue: str) -> int:
        """The messages of a queue, those included that workers hold."""
        try:
            stream = self._js.stream(stream_name(self.prefix, queue))
        except StreamNotFoundError:
            return 0
        return stream.cached_info.state.messages

    def purge(self, queue: str) -> int:
        """Drop all messages of a queue, and say how many there were."""
        try:
            stream = self._js.stream(stream_name(self.prefix, queue))
        except StreamNotFoundError:
            return 0
        return stream.purge()

    def delete(self, queue: str) -> None:
        """Delete a queue with its messages. It need not exist."""
        self.forget(queue)
        try:
            self._js.delete_stream(stream_name(self.prefix, queue))
        except StreamNotFoundError:
            return
