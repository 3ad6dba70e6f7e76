"""Publishing ahead of the acks: a window of messages, and a future for each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...checks import callback, count, flag, seconds, span
from ...core.single import Single
from ...errors import ConfigError, Error, TimeoutError as LateError
from .acks import PublisherAcks
from .arrow import arrow_source, publish_table
from .options import newer_options, publish_headers
from .publish import RETRY_FOR_EVER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from ..._fast import PubAckFuture
    from ...core.requests import Data
    from ...headers import HeadersLike
    from ...models.publish import PublishOptions
    from ..api import API
    from .acks import OnError
    from .arrow import ArrowTable, MessageColumns

WIDEST = 1 << 20
_ONE = (bytes, bytearray, memoryview, str)
"""A payload, where a sequence of them has to be: refused where they are sent."""


class Publisher(Single):
    """Publishes without waiting for each ack. What `JetStream.publisher` returns.

    Any thread may publish, and each one's messages keep their order. Use it in a `with`
    statement: its end waits for the acks, and raises `PublisherError` when some did not
    come and nobody has seen that yet. One that is forgotten without a `close` ends once all
    its acks have come; what failed then goes to the connection's `on_error`, or to the log
    if the connection was closed before. It does not keep the connection, which is closed
    when that is forgotten too.
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
        retry_attempts: int | None,
        retry_wait: float,
        on_error: OnError | None,
    ) -> None:
        window = count(window, "window", 1, WIDEST)
        window_bytes = count(window_bytes, "window_bytes", 1)
        ack_timeout = span(ack_timeout, "ack_timeout")
        stall_timeout = span(stall_timeout, "stall_timeout")
        resend = flag(resend, "resend")
        if retry_attempts is None:
            retry_attempts = RETRY_FOR_EVER if resend else 0
        retry_attempts = count(retry_attempts, "retry_attempts", RETRY_FOR_EVER)
        retry_wait = span(retry_wait, "retry_wait")
        callback(on_error, "on_error")
        self._api = api
        self._session = api.session
        self._closed = False
        self._acks = PublisherAcks(
            self._session,
            window=window,
            window_bytes=window_bytes,
            ack_timeout=ack_timeout,
            stall_timeout=stall_timeout,
            resend=resend,
            retry_attempts=retry_attempts,
            retry_wait=retry_wait,
            on_error=on_error,
        )
        self._window = self._acks.window

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
        headers = None
        if options:
            subject = subjects if isinstance(subjects, str) else ""
            data: Data = b""
            if options.get("incr") is not None and not isinstance(payloads, _ONE):
                payloads = list(payloads)
                data = next((one for one in payloads if one), b"")
            headers = self._headers(subject, data, options)
        return self._window.publish_many(subjects, payloads, headers, msg_ids)

    def publish_arrow(
        self,
        table: ArrowTable,
        *,
        subject: str,
        data: str,
        **columns: Unpack[MessageColumns],
    ) -> int:
        """Publish the rows of a table in their order; how many those were.

        `table` is any object with `__arrow_c_stream__`, of pyarrow, polars or DuckDB.
        `data` names a column of text or binary, `subject` one of text, or is the subject
        of all where there is no such column; data and subjects cannot be null. The others
        are options of the messages: `MessageColumns` says which, and what they may be.

        Blocks like `publish`. Up to 1000 rows at a time are looked at before the first of
        them is sent. Raises what `publish` raises, `ConfigError` for columns that are not
        there or not such, and `OSError` when the table ends with an error; an error on the
        way says in its attribute `published` how many messages are on theirs. Those whose
        acks do not come are told by `flush` and the end of `with`.
        """
        source = arrow_source(table, subject, data, columns)
        if columns.get("ttl") is not None:
            self._api.require(newer_options({"ttl": 1}))
        return publish_table(source, lambda rows: self._window.publish_rows(*rows))

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

    @property
    def published(self) -> int:
        """Messages that were written so far."""
        return self._window.published

    @property
    def acknowledged(self) -> int:
        """Messages whose acks have come, `duplicates` included."""
        return self._window.acknowledged

    @property
    def duplicates(self) -> int:
        """Messages that their stream had already, by their `msg_id`, as their acks say."""
        return self._window.duplicates

    @property
    def failed(self) -> int:
        """Messages that were refused, or had no ack."""
        return self._window.failed

    @property
    def stored_range(self) -> tuple[int, int] | None:
        """The first and the last sequence in acks that are of no duplicates; None: none.

        What others publish may stand in between.
        """
        window = self._window
        return (window.first_stored, window.last_stored) if window.last_stored else None

    def flush(self, timeout: float | None = None) -> None:
        """Block until all that was published before has its ack, or has failed.

        At most `timeout` seconds, then `TimeoutError`; all waits end with `ack_timeout`
        at the latest. Raises `PublisherError` for the failures whose errors nobody has
        seen yet on their futures, or by an earlier `flush`. Callbacks may still be running.
        """
        self._session.outbox.check_process()
        if timeout is not None:
            timeout = seconds(timeout, "timeout")
        if not self._window.flush(timeout):
            raise LateError(
                f"{self.pending} messages had no ack within {timeout} s: still pending"
            )
        self._acks.raise_failures()

    def close(self, timeout: float | None = None) -> None:
        """Wait for the acks like `flush`, then take no more messages. May be called twice.

        Whatever is still pending after `timeout` fails with `PublisherClosedError`; 0 waits
        for nothing. Raises `PublisherError` like `flush`.
        """
        self._session.outbox.check_process()
        if timeout is not None:
            # Checked first: what is no time must not give up what is pending.
            timeout = seconds(timeout, "timeout")
        try:
            if timeout is None or timeout > 0:
                self._window.flush(timeout)
        finally:
            self._end()
        self._acks.raise_failures()

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
        failures = self._acks.failures()
        if failures is not None:
            error.add_note(f"and {failures}")

    def _end(self) -> None:
        self._acks.end()
        self._closed = True

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if not self._closed:
                self._acks.forget()

    def __repr__(self) -> str:
        if not hasattr(self, "_window"):  # its options were refused
            return super().__repr__()
        return f"<Publisher {self._window!r}>"
