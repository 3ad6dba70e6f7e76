"""Publishing ahead of the acks: a window of messages, and a future for each."""

from __future__ import annotations

import contextlib
from time import monotonic
from typing import TYPE_CHECKING

from .._fast import AckWindow
from ..core.deadline import deadline_after
from ..core.session import Interest
from ..errors import (
    ConfigError,
    Error,
    FailedMessage,
    PublisherClosedError,
    PublisherError,
    TimeoutError as LateError,
    WriteTimeoutError,
)
from ..models import PubAck
from .publish import RETRY_SECONDS, no_stream, read_ack
from .publish_options import newer_options, publish_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from .._fast import PubAckFuture
    from ..core.requests import Data
    from ..core.timers import Timer
    from ..headers import HeadersLike
    from .api import API
    from .publish_options import PublishOptions

    OnError = Callable[[PubAckFuture, Exception], object]

WIDEST = 1 << 20
LONGEST = 1e9
DOUBT_SECONDS = 2.0
"""How long a message that may be sent again goes without an answer."""


class Publisher:
    """Publishes without waiting for each ack. What `JetStream.publisher` returns.

    Any thread may publish, and each one's messages keep their order. Use it in a `with`
    statement: its end waits for the acks, and raises `PublisherError` when some did not
    come and nobody has seen that yet.
    """

    def __init__(
        self,
        api: API,
        *,
        window: int,
        window_bytes: int,
        ack_timeout: float,
        stall_timeout: float,
        resend: bool,
        on_error: OnError | None,
    ) -> None:
        _check_count("window", window, WIDEST)
        _check_count("window_bytes", window_bytes)
        _check_seconds("ack_timeout", ack_timeout)
        _check_seconds("stall_timeout", stall_timeout)
        if on_error is not None and not callable(on_error):
            raise ConfigError("on_error has to be callable")
        self._api = api
        self._session = session = api.connection.session
        self._on_error = on_error
        self._ack_timeout = ack_timeout
        self._timer: Timer | None = None
        self._sid = session.next_sid()
        prefix = f"{session.inbox}{self._sid}."
        self._window = AckWindow(
            session.outbox,
            prefix,
            window,
            window_bytes,
            ack_timeout,
            stall_timeout,
            resend=resend,
            pub_ack=PubAck,
            read_ack=read_ack,
            no_stream=no_stream,
        )
        self._window.watched = on_error is not None
        self._window.on_done = self._done
        self._window.on_timer = self._watch
        self._window.on_refused = self._refused
        session.outbox.check_process()
        session.subscribe(
            Interest(
                self._sid,
                f"{prefix}*",
                None,
                self._window,
                on_lost=self._window.lost,
                on_connected=self._connected,
                on_denied=lambda error: self._window.deny(error.subject, error),
                on_closed=self._window.close,
            ),
            riding=True,
        )

    # Publishing -----------------------------------------------------------------------

    def publish(
        self, subject: str, data: Data = b"", **options: Unpack[PublishOptions]
    ) -> PubAckFuture:
        """Publish a message; its ack or its error comes to the future that is returned.

        The options are those of `PublishOptions`. Blocks while the window is full, and
        while there is no connection, at most `stall_timeout` seconds; then it raises
        `StallTimeoutError`, and the message was not sent. So it was not when this raises
        `ConfigError`, `InvalidSubjectError`, `InvalidHeaderError`, `MaxPayloadError`,
        `UnsupportedFeatureError` (an option that the server is too old for),
        `WriteTimeoutError` (it reads too slowly), `PublisherClosedError` or
        `ConnectionClosedError`.
        """
        if not options:
            return self._window.publish(subject, data)
        # The most frequent one goes the shortest way.
        msg_id = options.pop("msg_id", None)
        headers = self._headers(subject, data, options) if options else None
        return self._window.publish(subject, data, headers, msg_id)

    def publish_many(
        self,
        subjects: str | Sequence[str],
        payloads: Sequence[Data],
        *,
        msg_ids: Sequence[str] | None = None,
        **options: Unpack[PublishOptions],
    ) -> list[PubAckFuture]:
        """Publish columns of messages, in order; the future of each.

        `subjects` is one for all or as many as `payloads`, and so are `msg_ids`; the
        options are the same for all. All are checked before the first is sent. Blocks
        like `publish`; an error on the way says in its attribute `published` how many
        messages are on theirs, and those are waited for by `flush` and the end of `with`.
        """
        if options.get("msg_id") is not None:
            raise ConfigError("msg_id: publish_many takes one for each, in msg_ids")
        subject = subjects if isinstance(subjects, str) else ""
        headers = self._headers(subject, b"", options) if options else None
        return self._window.publish_many(subjects, payloads, headers, msg_ids)

    def _headers(
        self, subject: str, data: Data, options: PublishOptions
    ) -> HeadersLike | None:
        headers = publish_headers(subject, data, options)
        self._api.require(newer_options(options))
        return headers

    # Waiting --------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Messages that wait for their ack."""
        return self._window.pending

    def flush(self, timeout: float | None = None) -> None:
        """Block until all that was published before has its ack, or has failed.

        At most `timeout` seconds, then `TimeoutError`; all waits end with `ack_timeout`
        at the latest. Raises `PublisherError` for the failures whose errors nobody has
        seen yet on their futures, or by an earlier `flush`. Callbacks may still be running.
        """
        self._session.outbox.check_process()
        if timeout is not None:
            deadline_after(timeout)
        if not self._window.flush(timeout):
            raise LateError(
                f"{self.pending} messages had no ack within {timeout} s: still pending"
            )
        self._raise_failures()

    def close(self, timeout: float | None = None) -> None:
        """Wait for the acks like `flush`, then take no more messages. May be called twice.

        Whatever is still pending after `timeout` fails with `PublisherClosedError`; 0 waits
        for nothing. Raises `PublisherError` like `flush`.
        """
        self._session.outbox.check_process()
        if timeout is not None:
            deadline_after(timeout)  # what is no time must not give up what is pending
        try:
            if timeout is None or timeout > 0:
                self._window.flush(timeout)
        finally:
            self._end()
        self._raise_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(Error):
            self._end()
        failures = self._failures()
        if failures is not None:
            error.add_note(f"and {failures}")

    def _end(self) -> None:
        self._session.outbox.check_process()
        self._session.unsubscribe(self._sid, lazy=True)
        self._window.close(
            PublisherClosedError(
                "the publisher was closed before the ack came: the message may have "
                "been stored"
            ),
            PublisherClosedError("the publisher is closed: the message was not sent"),
        )
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _failures(self) -> PublisherError | None:
        futures, more = self._window.take_failures()
        if not futures and not more:
            return None
        failures = [
            FailedMessage(future.subject, future.data, future.headers, error)
            for future in futures
            if (error := future.exception()) is not None
        ]
        count = len(failures) + more
        text = "1 message was" if count == 1 else f"{count} messages were"
        text += " not acknowledged"
        if failures:
            text += f"{'; the first' if count > 1 else ''}: {failures[0].error}"
        error = PublisherError(text, failures=failures, count=count)
        error.__cause__ = failures[0].error if failures else None
        return error

    def _raise_failures(self) -> None:
        error = self._failures()
        if error is not None:
            raise error

    # What the window asks for ---------------------------------------------------------

    def _done(self) -> None:
        if not self._session.callbacks.put(self._call_back):
            self._call_back()

    def _call_back(self) -> None:
        """On the connection's callback thread."""
        for future, callbacks, error in self._window.take_done():
            if error is not None and self._on_error is not None:
                self._call("on_error", self._on_error, future, error)
            for callback in callbacks:
                self._call("a callback of a publish", callback, future)

    def _call(self, what: str, call: Callable[..., object], *args: object) -> None:
        try:
            call(*args)
        except BaseException as error:  # noqa: BLE001 (SystemExit would end the thread)
            self._session.callbacks.raised(what, error)

    def _watch(self) -> None:
        self._call_later(self._ack_timeout)

    def _call_later(self, seconds: float) -> None:
        if self._window.resend:
            seconds = min(seconds, DOUBT_SECONDS)
        self._timer = self._session.call_later(seconds, self._expire)

    def _expire(self) -> None:
        due = self._window.expire()
        if due is not None:
            if self._window.resend and self._window.doubt(DOUBT_SECONDS):
                self._start_sending_again()
            self._call_later(due - monotonic())

    def _connected(self) -> None:
        if self._window.connected():
            self._start_sending_again()

    def _refused(self) -> None:
        self._session.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._window.retry()
        self._start_sending_again()

    def _start_sending_again(self) -> None:
        # The write buffer may fill up, and the I/O thread has to go on.
        name = f"{self._session.name}-publisher-{self._sid}"
        self._session.spawner.start(name, self._send_again)

    def _send_again(self) -> None:
        while True:
            try:
                return self._window.send_again()
            except WriteTimeoutError:  # until `ack_timeout` ends it
                continue
            except Error:  # closed, and all that waited knows
                return None

    def __repr__(self) -> str:
        return f"<Publisher {self._window!r}>"


def _check_count(name: str, value: object, most: int = 1 << 62) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ConfigError(f"{name} has to be an int from 1 to {most}, not {value!r}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{name} has to be a number of seconds, not {value!r}")
    if not 0 < value <= LONGEST:
        raise ConfigError(f"{name} has to be above 0 and at most {LONGEST:g} seconds")
