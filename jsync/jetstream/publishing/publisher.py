"""Publishing without waiting for each ack: a window of messages, and a future for each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ... import errors
from ..._fast import enter_self, safe_finalizer
from ...core.resources import NotCopyable
from ...errors import ConfigError, Error
from ...validation import check_seconds, format_seconds
from .ack_tracker import AckTracker
from .arrow import arrow_source, publish_table
from .leader_check import LeaderCheck
from .options import publish_headers, required_features

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from ..._fast import PubAckFuture
    from ...core.requests import Data
    from ...headers import HeadersLike
    from ...models.publish import PublishOptions
    from ...validation import Seconds
    from ..api import API
    from .ack_tracker import OnError
    from .arrow import ArrowTable, MessageColumns

MAX_WINDOW = 1 << 20
_ONE = (bytes, bytearray, memoryview, str)
"""The types of a single payload. `publish_many` rejects one instead of a sequence."""


class Publisher(NotCopyable):
    """A publisher that does not wait for each ack. `JetStream.publisher` returns it.

    Any thread may publish, and the messages of each thread keep their order. Use it in
    a `with` statement: the end waits for the acks, and raises `PublisherError` if some
    did not come and you have not seen that yet. If you drop a publisher without
    `close`, it ends once all its acks have come, and failures go to the connection's
    `on_error`, or to the log. A publisher does not keep its connection open.

    Example:
        ```python
        with js.publisher() as publisher:
            for number in range(1000):
                publisher.publish("orders.new", b"%d" % number)
        print(publisher.acknowledged)
        ```
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
        retry_attempts: int,
        retry_wait: float,
        on_error: OnError | None,
    ) -> None:
        self._api = api
        self._session = api.session
        self._closed = False
        self._leaders = LeaderCheck(api)
        self._acks = AckTracker(
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
        """Publish a message, without waiting for its ack.

        Blocks while the window is full, and while there is no connection. If the call
        raises, the message was not sent.

        Args:
            subject: The subject to publish to.
            data: The payload.
            **options: The options of `PublishOptions`.

        Returns:
            The future of the ack.

        Raises:
            StallTimeoutError: There was no room or no connection for `stall_timeout`
                seconds.
            ConfigError: An option has a value that is not allowed.
            InvalidSubjectError: Nothing can be published to the subject.
            InvalidHeaderError: A header cannot be sent.
            MaxPayloadError: The message is too large for the server.
            UnsupportedFeatureError: The server, or the one that leads the stream in a
                cluster of several versions, is too old for an option.
            WriteTimeoutError: The server reads too slowly.
            PublisherClosedError: The publisher is closed.
            ConnectionClosedError: The connection is closed.

        Example:
            ```python
            with js.publisher() as publisher:
                future = publisher.publish("orders.new", b"7", msg_id="order-7")
                print(future.result(timeout=5).seq)
            ```
        """
        if not options:
            return self._window.publish(subject, data)
        # The most frequent option takes the shortest path.
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
        """Publish many messages in order, without waiting for their acks.

        All messages are checked before the first is sent. Blocks and raises like
        `publish`. The attribute `published` of an error says how many messages were
        sent. `flush` and the end of `with` wait for their acks.

        Args:
            subjects: One subject for all messages, or one for each payload.
            payloads: The payloads.
            msg_ids: One id for each payload. Default: none.
            **options: The options of `PublishOptions`, the same for all messages.

        Returns:
            The futures of the acks, in the order of the messages.

        Example:
            ```python
            with js.publisher() as publisher:
                publisher.publish_many("orders.new", [b"7", b"8", b"9"])
            ```
        """
        if options.get("msg_id") is not None:
            raise ConfigError(
                "msg_id: publish_many takes msg_ids, one for each message"
            )
        headers = None
        if options:
            subject = subjects if isinstance(subjects, str) else ""
            data: Data = b""
            if options.get("incr") is not None and not isinstance(payloads, _ONE):
                payloads = list(payloads)
                data = next((one for one in payloads if one), b"")
            several = subjects if isinstance(subjects, list | tuple) else ()
            headers = self._headers(subject, data, options, several)
        return self._window.publish_many(subjects, payloads, headers, msg_ids)

    def publish_arrow(
        self,
        table: ArrowTable,
        *,
        subject: str,
        data: str,
        **columns: Unpack[MessageColumns],
    ) -> int:
        """Publish the rows of a table in order, without waiting for their acks.

        Blocks and raises like `publish`. Up to 1000 rows at a time are checked before
        the first of them is sent. The attribute `published` of an error says how many
        rows were sent. `flush` and the end of `with` wait for their acks, and report
        failures.

        Args:
            table: Any object with `__arrow_c_stream__`, of pyarrow, polars or DuckDB.
            subject: The name of a text column with the subjects. If there is no such
                column: the subject of all rows.
            data: The name of the column with the payloads, text or binary.
            **columns: The names of further columns, as `MessageColumns` lists them.

        Returns:
            The number of rows.

        Raises:
            ConfigError: A column is missing, or has a type that is not allowed.
            OSError: The table ended with an error.

        Example:
            ```python
            import pyarrow

            table = pyarrow.table({"data": [b"7", b"8"]})
            with js.publisher() as publisher:
                publisher.publish_arrow(table, subject="orders.new", data="data")
            ```
        """
        source = arrow_source(table, subject, data, columns)
        if columns.get("ttl") is not None:
            self._api.require(required_features({"ttl": 1}))
        return publish_table(source, lambda rows: self._window.publish_rows(*rows))

    def _headers(
        self,
        subject: str,
        data: Data,
        options: PublishOptions,
        subjects: Sequence[str] = (),
    ) -> HeadersLike | None:
        headers = publish_headers(subject, data, options)
        needs = required_features(options)
        if needs:
            self._api.require(needs)
            for name in dict.fromkeys(subjects or (subject,)):
                self._leaders.require(name, needs)
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
        """Messages that were acknowledged, `duplicates` included."""
        return self._window.acknowledged

    @property
    def duplicates(self) -> int:
        """Messages that the stream already had, by their `msg_id`."""
        return self._window.duplicates

    @property
    def failed(self) -> int:
        """Messages that were rejected, or got no ack."""
        return self._window.failed

    @property
    def stored_range(self) -> tuple[int, int] | None:
        """The first and the last sequence of the acks, without duplicates, or None.

        Messages of other publishers may be in between.
        """
        window = self._window
        return (window.first_stored, window.last_stored) if window.last_stored else None

    @property
    def duplicate_range(self) -> tuple[int, int] | None:
        """The first and the last sequence at which the stream had `duplicates`, or None.

        A message that the publisher sent twice is left out, because its first sending may
        have stored it.
        """
        window = self._window
        first, last = window.first_duplicate, window.last_duplicate
        return (first, last) if last else None

    def flush(self, timeout: Seconds | None = None) -> None:
        """Block until every earlier message has its ack, or has failed.

        Callbacks of futures may still be running afterwards.

        Args:
            timeout: Seconds to wait. Default: until `ack_timeout` has ended the last
                wait.

        Raises:
            TimeoutError: Some acks did not come in time.
            PublisherError: Messages failed, and you have not seen their errors yet, on
                their futures or by an earlier `flush`.
        """
        self._session.write_buffer.check_process()
        if timeout is not None:
            timeout = check_seconds(timeout, "timeout")
        if not self._window.flush(timeout):
            raise errors.TimeoutError(
                f"{self.pending} messages had no ack within {format_seconds(timeout)}: still pending"
            )
        self._acks.raise_failures()

    def close(self, timeout: Seconds | None = None) -> None:
        """Wait for the acks like `flush`, then accept no more messages.

        A second call does nothing.

        Args:
            timeout: Seconds to wait. 0 does not wait. Messages that are still pending
                then fail with `PublisherClosedError`. Default: until `ack_timeout` has
                ended the last wait.

        Raises:
            PublisherError: Messages failed, as with `flush`.
        """
        self._session.write_buffer.check_process()
        if timeout is not None:
            # Validate first: an invalid timeout must not drop pending messages.
            timeout = check_seconds(timeout, "timeout")
        try:
            if timeout is None or timeout > 0:
                self._window.flush(timeout)
        finally:
            self._end()
        self._acks.raise_failures()

    __enter__ = enter_self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(Error):
            self._end()
        failures = self._acks.failures()
        if failures is not None:
            error.add_note(f"and {failures}")

    def _end(self) -> None:
        self._acks.close()
        self._closed = True

    @safe_finalizer
    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            if not self._closed:
                self._acks.detach()

    def __repr__(self) -> str:
        if not hasattr(self, "_window"):  # __init__ raised for an invalid option
            return super().__repr__()
        return f"<Publisher {self._window!r}>"
