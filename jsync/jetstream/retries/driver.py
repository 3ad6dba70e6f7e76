"""Failed messages: returned to the server with a delay, or stored as dead letters."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import UTC, datetime
from random import random
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ..._fast import encode_publish
from ...errors import (
    APIError,
    ConfigError,
    DeadLetterError,
    Error,
    InvalidHeaderError,
    MaxPayloadError,
    PermissionsError,
    RetriesExhaustedError,
)
from ...headers import Headers
from ...health import CONFIRM_SECONDS
from ...models import ConsumerInfo
from ..api import CallbackRequest
from ..publishing.publish import publish
from ..steps import unwrap
from .engine import MessageOrigin, dead_letter_headers, extension_interval, format_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..._fast import JetStreamMsg
    from ...core.session import Session
    from ...headers import HeadersLike
    from ...models import ConsumerConfig
    from ..api import API
    from ..steps import ReplyOrError
    from .engine import Retry

MIN_DEAD_LETTER_DELAY: Final = 1.0
MAX_DEAD_LETTER_DELAY: Final = 30.0
"""The limits in seconds for the redelivery of a message whose dead letter was not stored.

If only the ack of the letter was lost, its stream drops the second letter, but only within
its `duplicate_window`, which is 2 minutes by default."""

MAX_UNSTORED: Final = 100
"""The most failures that are kept for dead letters that could not be stored."""
MAX_TOLD: Final = 10_000
"""The most messages of which is remembered that they are too large for a dead letter."""
SHORT_REASON: Final = 100
"""The characters of the reason in a dead letter that would be too large otherwise."""
TOO_LARGE: Final = (10054, 10097)
"""The codes of rejections by the `max_msg_size` of a stream, and for headers beyond 64 KB."""

Outcome: TypeAlias = Literal["retried", "dead", "dropped", "kept"]
"""The outcome of a failed message: nak'ed, a dead letter, terminated without one, or nak'ed
because its dead letter was not stored."""


class RetryHandler:
    """Applies a `Retry` to the messages of one consumer. Any thread may use it."""

    def __init__(
        self,
        session: Session,
        policy: Retry,
        config: ConsumerConfig | None,
        timeout: float,
        report: Callable[[Exception], object],
        on_outcome: Callable[[Outcome], object] = lambda _: None,
    ) -> None:
        self._session = session
        self._requested_policy = policy
        self._timeout = timeout
        self._report = report
        self._on_outcome = on_outcome
        self._config = config
        self._unstored: dict[int, tuple[str, BaseException]] = {}
        """The last failures of messages whose dead letters were not stored, by sequence."""
        self._told: set[str] = set()
        """The ids of dead letters of which is reported that they are too large."""
        self._apply(policy, config)

    def _apply(self, policy: Retry, config: ConsumerConfig | None) -> None:
        self._max_deliver = policy.max_deliver(config)
        self._policy = policy
        self._interval = (
            extension_interval(None, None)
            if config is None
            else extension_interval(config.backoff, config.ack_wait)
        )

    def adapt(self, config: ConsumerConfig) -> None:
        """Apply a configuration of the consumer that another program has changed.

        If its `max_deliver` does not leave enough deliveries, there are fewer attempts. The
        server would otherwise give the messages up without a dead letter.

        Raises:
            ConfigError: The consumer does not fit the policy any more.
        """
        try:
            self._apply(self._requested_policy, config)
        except ConfigError:
            limit = config.max_deliver or -1
            if limit >= 1:
                attempts = self._max_deliver = max(1, limit - 1)
                self._policy = replace(
                    self._requested_policy, attempts=attempts, deliveries=None
                )
                self._interval = extension_interval(config.backoff, config.ack_wait)
            raise

    @property
    def interval(self) -> float:
        """Seconds between two requests for more time for a message.

        At most `CONFIRM_SECONDS`, because another program may shorten the `ack_wait`.
        """
        return min(CONFIRM_SECONDS, self._interval)

    def follow(self, api: API, consumer: str, is_over: Callable[[], bool]) -> None:
        """Adapt to changes of the consumer by other programs, until `is_over` is true.

        `consumer` is the stream and the consumer, joined by a dot. Does not block.
        """
        known = self._config
        denied = False

        def check() -> None:  # on the I/O thread
            if is_over() or denied:
                return
            with contextlib.suppress(Error):  # the next check follows
                CallbackRequest(api, f"CONSUMER.INFO.{consumer}", None, compare)
            self._session.call_later(CONFIRM_SECONDS, check)

        def compare(reply: ReplyOrError) -> None:
            nonlocal known, denied
            try:
                config = ConsumerInfo.from_wire(unwrap(reply)).config
                if config != known:
                    known = config
                    self.adapt(config)
            except PermissionsError:
                denied = True
            except ConfigError as error:
                self._report(error)
            except Error:
                pass  # unknown, so the last configuration stays valid

        self._session.call_later(CONFIRM_SECONDS, check)

    def wrap(
        self,
        handler: Callable[[JetStreamMsg], object],
        in_hand: dict[JetStreamMsg, None],
    ) -> Callable[[JetStreamMsg], object]:
        """Return the handler, without calls for messages that were delivered too often.

        While the handler has a message, the message is in `in_hand`.
        """

        def call(msg: JetStreamMsg) -> None:
            if msg.metadata.num_delivered > self._max_deliver:
                self.exhausted(msg)
                return
            in_hand[msg] = None
            try:
                handler(msg)
            finally:
                in_hand.pop(msg, None)

        return call

    def is_exhausted(self, msg: JetStreamMsg) -> bool:
        """Return whether a message was delivered too often to be handled."""
        return msg.metadata.num_delivered > self._max_deliver

    def exhausted(self, msg: JetStreamMsg) -> None:
        """End a message that was delivered too often, as it may kill each process."""
        with contextlib.suppress(Error):
            about = msg.metadata
            times = about.num_delivered
            reason, error = self._unstored.get(about.stream_sequence, ("", None))
            self._end(
                msg,
                reason or f"delivered {times} times, but never handled to the end",
                error,
            )

    def delay_after(self, msg: JetStreamMsg, error: BaseException) -> float | None:
        """Return the seconds until the next attempt, or None if none follows.

        Pass the result to `failed`.
        """
        if msg.is_acked:
            return None
        return self._policy.delay_after(msg.metadata.num_delivered, error, random())

    def failed(
        self, msg: JetStreamMsg, error: BaseException, delay: float | None
    ) -> None:
        """Nak a message whose handler raised, or end it. Blocks for its dead letter.

        If the handler acknowledged the message before it raised, nothing happens.
        """
        with contextlib.suppress(Error):  # the server delivers it again after ack_wait
            if msg.is_acked:
                return
            if delay is None:
                self._end(msg, format_error(error), error)
            else:
                msg.nak(delay)
                self._on_outcome("retried")

    def _end(self, msg: JetStreamMsg, reason: str, error: BaseException | None) -> None:
        about = msg.metadata
        origin = MessageOrigin(
            about.stream,
            about.consumer,
            about.stream_sequence,
            about.timestamp,
            about.num_delivered,
            msg.subject,
        )
        subject = self._policy.dead_letter
        if subject is not None:
            try:
                with self._kept_alive(msg):
                    self.send_dead_letter(origin, msg.data, msg.headers, reason, error)
            except Error as failure:
                too_large = self.report_unstored(origin, failure)
                if error is not None:
                    # A later delivery has no handler that would fail again.
                    self._unstored[about.stream_sequence] = reason, error
                if len(self._unstored) > MAX_UNSTORED:
                    with contextlib.suppress(KeyError, RuntimeError):  # another thread
                        del self._unstored[next(iter(self._unstored))]
                delay = max(self._policy.delay(origin.attempts), MIN_DEAD_LETTER_DELAY)
                if too_large or delay > MAX_DEAD_LETTER_DELAY:
                    delay = MAX_DEAD_LETTER_DELAY
                msg.nak(delay)
                self._on_outcome("kept")
                return
        self._unstored.pop(about.stream_sequence, None)
        # Not earlier: the server must keep the message until its dead letter is stored.
        msg.term("dead letter" if subject else "given up")
        self._report(given_up_error(origin, subject, reason, error))
        self._on_outcome("dead" if subject else "dropped")

    def report_unstored(self, origin: MessageOrigin, failure: Error) -> bool:
        """Report that a dead letter is not stored. Return whether it is too large.

        A dead letter that is too large is reported once, because each attempt has the same
        outcome until somebody raises a limit.
        """
        too_large = _is_too_large(failure)
        if not too_large or origin.msg_id not in self._told:
            self._report(_dead_letter_error(origin, self._policy.dead_letter, failure))
        if too_large:
            if len(self._told) >= MAX_TOLD:
                self._told.clear()
            self._told.add(origin.msg_id)
        return too_large

    @contextlib.contextmanager
    def _kept_alive(self, msg: JetStreamMsg) -> Iterator[None]:
        """Request more time from the server in the background.

        No handler has the message any more, so this is not done elsewhere.
        """
        is_over = False

        def extend() -> None:
            if is_over:
                return
            with contextlib.suppress(Error):
                msg.in_progress()
            self._session.call_later(self._interval, extend)

        extend()
        try:
            yield
        finally:
            is_over = True

    def send_dead_letter(
        self,
        origin: MessageOrigin,
        data: bytes,
        headers: HeadersLike | None,
        reason: str,
        error: BaseException | None = None,
    ) -> bool:
        """Publish a dead letter, and block until it is stored.

        If it is too large, it is published without the traceback, then with a short reason,
        and then without the largest headers of the message.

        Returns:
            False if the dead letter was stored before.

        Raises:
            Error: The dead letter was not stored, as in `JetStream.publish`.
        """
        subject = self._policy.dead_letter
        assert subject is not None
        now = datetime.now(UTC)
        size = self._policy.traceback_size
        lost: list[str] = []
        while True:
            why = dead_letter_headers(origin, headers, reason, error, now, size, lost)
            try:
                ack = publish(self._session, subject, data, why, self._timeout)
                return not ack.duplicate
            except (MaxPayloadError, APIError) as rejection:
                if not _is_too_large(rejection):
                    raise
                if size:
                    size = 0
                elif len(reason) > SHORT_REASON:
                    reason = f"{reason[: SHORT_REASON - 3]}..."
                elif headers:
                    headers, name = _without_largest(headers)
                    lost.append(name)
                else:
                    raise
            except InvalidHeaderError:
                headers, unsendable = _sendable(headers or {})
                if not unsendable:
                    raise
                lost += unsendable


def _is_too_large(error: Error) -> bool:
    """Return whether a message was refused because of its size."""
    return isinstance(error, MaxPayloadError) or (
        isinstance(error, APIError) and error.err_code in TOO_LARGE
    )


def _without_largest(headers: HeadersLike) -> tuple[HeadersLike, str]:
    """Return the headers without the largest one, and the name of that header."""
    given = Headers(headers)
    kept = {name: given.get_all(name) for name in given}
    largest = max(kept, key=lambda name: sum(len(name) + len(v) for v in kept[name]))
    del kept[largest]
    return kept, largest


def _sendable(headers: HeadersLike) -> tuple[HeadersLike, list[str]]:
    """Return the headers that jsync can send, and the names of the others.

    Another client may have sent headers that are not valid.
    """
    kept: dict[str, list[str]] = {}
    lost = []
    given = Headers(headers)
    for name in given:
        values = given.get_all(name)
        try:
            encode_publish("dead.letter", headers={name: values})
            kept[name] = values
        except InvalidHeaderError:
            lost.append(name)
    return kept, lost


def given_up_error(
    origin: MessageOrigin, subject: str | None, reason: str, error: BaseException | None
) -> RetriesExhaustedError:
    """Return the error for `on_error` when a message has come to its end."""
    where = f"is a dead letter on {subject!r} now" if subject else "was terminated"
    failure = RetriesExhaustedError(
        f"message {origin.sequence} of {origin.stream!r} {where} after "
        f"attempt {origin.attempts}: {reason}",
        stream=origin.stream,
        consumer=origin.consumer,
        sequence=origin.sequence,
        attempts=origin.attempts,
        dead_letter=subject,
    )
    failure.__cause__ = error
    return failure


def _dead_letter_error(
    origin: MessageOrigin, subject: str | None, error: Error
) -> DeadLetterError:
    """Return the error for `on_error` when a dead letter is not stored."""
    message = f"message {origin.sequence} of {origin.stream!r}"
    failure = DeadLetterError(
        f"{message} is too large for a dead letter on {subject!r}, so it stays in its stream "
        f"until you delete it, or raise the max_payload of the server or the max_msg_size of "
        f"the stream that takes {subject!r}: {error}"
        if _is_too_large(error)
        else f"cannot store the dead letter of {message} on {subject!r}, so the message is "
        f"delivered again: {error}",
        stream=origin.stream,
        consumer=origin.consumer,
        sequence=origin.sequence,
        dead_letter=subject or "",
    )
    failure.__cause__ = error
    return failure
