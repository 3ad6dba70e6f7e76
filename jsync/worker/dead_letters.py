"""Dead letters: store those of messages at their `max_deliver`, and replay them all.

`jetstream.retries` decides about each failed message, and stores its dead letter.
"""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING, Final

from .. import errors
from ..errors import (
    ConnectionClosedError,
    Error,
    ForkedProcessError,
    InvalidSubjectError,
    JetStreamError,
    MessageNotFoundError,
    PermissionsError,
    SubscriptionClosedError,
)
from ..headers import Headers
from ..jetstream.retries.driver import given_up_error
from ..jetstream.retries.engine import PREFIX, MessageOrigin, as_text, original_headers
from ..models.advisory import MaxDeliveries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..jetstream.context import JetStream
    from ..jetstream.retries.driver import Outcome, RetryHandler
    from ..jetstream.stream import Stream
    from ..models import ConsumerInfo, PubAck, StoredMessage
    from .routes import Route

RETRY_INTERVAL: Final = 1.0
"""Seconds between attempts to store a dead letter."""
SEARCH_SECONDS: Final = 30.0
"""Seconds between two searches for messages whose advisory no process has received."""

RESERVED: Final = ("$", "_INBOX.")
"""The beginnings of subjects of requests to servers and services, of buckets, and of replies."""

_ENDED: Final = (ConnectionClosedError, ForkedProcessError, SubscriptionClosedError)
"""After these errors no advisory comes any more."""


class MaxDeliveriesListener:
    """Dead letters of the messages that reached the `max_deliver` of a consumer.

    The server publishes one advisory for each message. Every process gets the advisory and
    publishes the same dead letter. The stream stores one of them and ignores the others.

    An advisory that comes while no process listens is lost. In a work queue, the message is
    then found by the state of the consumer. Streams with another retention also keep
    acknowledged messages, and the server does not report which of them are stranded.
    """

    def __init__(
        self,
        js: JetStream,
        stream: Stream,
        route: Route,
        retrier: RetryHandler,
        report: Callable[[Exception], object],
        on_outcome: Callable[[Outcome], object],
        handles: Callable[[int], bool],
    ) -> None:
        """Subscribe to the advisories of the consumer.

        `handles` returns whether a handler of this process has the message of a sequence.
        """
        self._js, self._stream = js, stream
        self._route, self._retrier = route, retrier
        self._report, self._record_outcome = report, on_outcome
        self._handles = handles
        self._advisories = js.advisories(
            MaxDeliveries, stream=route.stream, consumer=route.consumer
        )

    def run(self) -> None:
        """Listen until `close`. Runs on its own thread."""
        waiting: dict[int, MaxDeliveries] = {}
        suspected: dict[int, MaxDeliveries] = {}
        search_at = 0.0
        while True:
            try:
                if monotonic() >= search_at:
                    search_at = monotonic() + SEARCH_SECONDS
                    try:
                        found = self._search()
                    except PermissionsError as error:
                        self._report(error)  # the advisories still come
                        found = {}
                    # Two searches must find a message, since the stream may be about to
                    # remove one that was acknowledged just now.
                    waiting |= {at: found[at] for at in found if at in suspected}
                    if found.keys() - suspected.keys():
                        search_at = monotonic() + RETRY_INTERVAL
                    suspected = found
                pause = RETRY_INTERVAL if waiting else max(0.0, search_at - monotonic())
                advisory = self._advisories.next(pause)
                if advisory.stream_seq < 1:
                    raise JetStreamError(
                        f"not an advisory: its stream_seq is {advisory.stream_seq}"
                    )
                # The subject of an advisory does not name its JetStream domain.
                if advisory.domain == self._stream.cached_info.domain:
                    waiting[advisory.stream_seq] = advisory
            except errors.TimeoutError:
                pass
            except PermissionsError as error:
                self._report(error)
                return
            except _ENDED:
                return
            except Error as error:
                # Any program may publish to this subject. The next advisory may be good.
                self._report(error)
            waiting = {
                at: it for at, it in waiting.items() if not self._dead_letter(it)
            }

    def _search(self) -> dict[int, MaxDeliveries]:
        """Find messages that seem stranded in a work queue, and return their advisories."""
        route = self._route
        if self._stream.config.retention != "workqueue":
            return {}
        info = self._stream.consumer(route.consumer).info()
        limit = info.config.max_deliver or 0
        if limit < 1 or info.num_ack_pending or not info.num_redelivered:
            # Messages up to the last delivered one are stranded only if none is under way.
            return {}
        found = []
        for subject in route.subjects:
            sequence = 1
            with contextlib.suppress(MessageNotFoundError):
                while True:
                    message = self._stream.get_message(
                        sequence, next_by_subject=subject, direct=False
                    )
                    if message.sequence > info.delivered.stream_seq:
                        break
                    found.append(message.sequence)
                    sequence = message.sequence + 1
        return {
            stream_seq: MaxDeliveries(
                stream=route.stream,
                consumer=route.consumer,
                stream_seq=stream_seq,
                deliveries=limit,
            )
            for stream_seq in sorted({*found})
        }

    def close(self) -> None:
        """Stop listening. Does not block."""
        self._advisories.close()

    def _dead_letter(self, advisory: MaxDeliveries) -> bool:
        """Store the dead letter of a message, and return whether nothing is left to do."""
        subject = self._route.retry.dead_letter
        assert subject is not None
        reason = f"delivered {advisory.deliveries} times: max_deliver is reached"
        origin: MessageOrigin | None = None
        if self._handles(advisory.stream_seq):
            return False  # its ack may still count
        try:
            info = self._stream.consumer(self._route.consumer).info()
            message = self._stream.get_message(advisory.stream_seq)
            if not _confirms(info, advisory, message):
                self._report(
                    JetStreamError(
                        f"consumer {self._route.name} does not confirm that it has given up "
                        f"message {message.sequence}, so the advisory is ignored"
                    )
                )
                return True
            origin = MessageOrigin(
                self._route.stream,
                self._route.consumer,
                message.sequence,
                message.timestamp,
                advisory.deliveries,
                message.subject,
            )
            new = self._retrier.send_dead_letter(
                origin, message.data, message.headers, reason
            )
            if self._stream.config.retention == "workqueue":
                # The message cannot be acknowledged any more, so the stream would keep
                # it.
                self._stream.delete_message(message.sequence)
        except MessageNotFoundError:
            return True  # the letter is gone, or another process was faster
        except Error as error:
            if origin is None:
                self._report(error)
            else:
                self._record_outcome("kept")
                # In a work queue, a later search finds the message again.
                return self._retrier.report_unstored(origin, error)
            return False
        if new:
            self._record_outcome("dead")
            self._report(given_up_error(origin, subject, reason, None))
        return True


def _confirms(
    info: ConsumerInfo, advisory: MaxDeliveries, message: StoredMessage
) -> bool:
    """Return whether a consumer may have given up a message, as an advisory says.

    Any program may publish advisories, and an old advisory may name the sequence of another
    message if the stream or the consumer was created again. A server does not report which
    messages are under way. A forged advisory with the right number of deliveries therefore
    passes while any message is being redelivered, even if another process is handling its
    message.
    """
    at, times = advisory.timestamp, (message.timestamp, info.created)
    limit = info.config.max_deliver or -1
    if limit < 1 or advisory.deliveries < limit:
        return False
    if at is not None and any(moment is not None and at < moment for moment in times):
        return False
    return info.num_redelivered > 0 and info.delivered.stream_seq >= message.sequence


class DeadLetter:
    """A dead letter that a stream holds."""

    def __init__(self, message: StoredMessage) -> None:
        self.message = message

    @property
    def is_one(self) -> bool:
        """True if the message is a dead letter of `Retry`."""
        headers = self.message.headers
        return headers is not None and f"{PREFIX}Stream" in headers

    def detail(self, name: str) -> str:
        """Return the header `Dead-Letter-<name>`, without its escapes."""
        return as_text((self.message.headers or Headers()).get(f"{PREFIX}{name}", ""))

    @property
    def origin(self) -> str:
        """The stream, the sequence and the consumer of the message."""
        where = f"{self.detail('Stream')} {self.detail('Sequence')}"
        return f"{where} for {self.detail('Consumer')}"

    def replay(self, js: JetStream, subject: str | None = None) -> PubAck:
        """Publish the message again, and block until it is stored.

        The message keeps its headers, but for orders to the server (`Nats-...`). An old
        `Nats-Msg-Id` would make the message a duplicate.

        Args:
            js: The context to publish with.
            subject: The subject to publish to. Default: the subject of the message.

        Returns:
            The ack of the stream.

        Raises:
            InvalidSubjectError: The letter names a subject of the server or of a bucket.
            StreamNotFoundError: The letter names a subject that no stream takes.
        """
        stored = self.message
        headers = {
            name: values
            for name, values in original_headers(stored.headers).items()
            if not name.lower().startswith("nats-")
        }
        # If we are interrupted before the dead letter is deleted, a second replay does
        # no harm.
        msg_id = (
            f"replay:{stored.stream}:{stored.sequence}:{stored.timestamp.timestamp()}"
        )
        where = subject or self._own_subject(js)
        return js.publish(where, stored.data, headers=headers, msg_id=msg_id)

    def _own_subject(self, js: JetStream) -> str:
        """Return the subject that the letter names. Raises unless a stream takes it.

        Any program may publish to the stream of dead letters, so the subject may be that of
        a request, which a responder would obey with the rights of the user who replays.
        """
        subject = self.detail("Subject")
        if subject.startswith(RESERVED):
            raise InvalidSubjectError(
                f"dead letter {self.message.sequence} names {subject!r}, which is reserved for "
                "requests, replies and buckets; choose the subject to publish to"
            )
        js.stream_name_by_subject(subject)
        return subject

    def __repr__(self) -> str:
        return f"<DeadLetter {self.message.sequence} of {self.origin}>"
