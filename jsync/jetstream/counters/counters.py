"""`JetStream.counters`: numbers that servers add up."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from ...errors import (
    CounterNotFoundError,
    CountersNotEnabledError,
    Error,
    JetStreamError,
    MessageNotFoundError,
    StreamNotFoundError,
)
from ...models import StoredMessage
from ...models.name import check_literal
from ..management import stream_info
from ..publishing.options import publish_headers, required_features
from ..publishing.publish import publish
from ..stored import get as stored
from ..stored.engine import MAX_SUBJECTS, PAGE_BYTES, LastPerSubjectReader
from .engine import check_amount, missing_settings, read_entries, read_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...models.publish import PublishOptions
    from ...validation import Seconds
    from ..api import API
    from .engine import CounterEntry


class Counters:
    """The counters of a stream, one for each subject (ADR-49).

    `JetStream.counters` returns it. Any thread may use it. Python's integers have no
    limit, and counters of up to about 3800 digits work.

    Example:
        ```python
        js.create_stream(
            name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True
        )
        hits = js.counters("HITS")
        print(hits.add("hits.home", 1), hits.load("hits.home"))
        ```
    """

    def __init__(self, api: API, stream: str, timeout: Seconds | None) -> None:
        config = stream_info(api, stream, timeout=timeout).config
        if missing := missing_settings(config):
            raise CountersNotEnabledError(
                f"stream {stream} has no {' and no '.join(missing)}: create a stream with "
                "allow_msg_counter=True and allow_direct=True"
            )
        self._api = api
        self._stream = stream

    @property
    def stream_name(self) -> str:
        """The name of the stream."""
        return self._stream

    def add(
        self,
        subject: str,
        amount: int = 1,
        *,
        msg_id: str | None = None,
        timeout: Seconds | None = None,
    ) -> int:
        """Add to a counter, which begins at 0. Blocks until the stream has added.

        Args:
            subject: The subject of the counter, without wildcards.
            amount: The number to add, negative to subtract. Default: 1.
            msg_id: Add only once within the `duplicate_window` of the stream, however
                often you call with this id.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The new value. For a repeated `msg_id` the present value.

        Raises:
            ConfigError: The amount is not an int. Nothing is sent.
            UnsupportedFeatureError: The server, or the one that leads the stream in a cluster
                of several versions, is too old. Nothing is added.
            InvalidSubjectError: The subject has wildcards. Nothing is sent.
            NoStreamResponseError: No stream takes the subject.
            JetStreamError: Another stream has the counter, and has added the amount.
            TimeoutError: The amount may have been added. Only a `msg_id` makes it safe to
                call again.
            ConnectionLostError: The same.

        Example:
            ```python
            js.create_stream(
                name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True
            )
            hits = js.counters("HITS")
            print(hits.add("hits.home", 2))  # the sum after this call
            ```
        """
        options: PublishOptions = {"incr": check_amount(amount), "msg_id": msg_id}
        headers = publish_headers(subject, b"", options)
        needs = required_features(options)
        self._api.require(needs)
        deadline = monotonic() + self._api.seconds(timeout)
        # An older leader would store an empty message as the value of the counter.
        with suppress(StreamNotFoundError):
            self._api.require_of_leader(self._stream, needs, deadline - monotonic())
        left = max(0.0, deadline - monotonic())
        ack = publish(self._api.session, subject, b"", headers, left)
        if ack.stream != self._stream:
            # Servers reject `expected_stream` for counters.
            raise JetStreamError(
                f"{subject!r} is a counter of stream {ack.stream}, which has added the "
                f"amount, not of {self._stream}"
            )
        if ack.duplicate:
            # From the leader, because another server may not have the increment yet.
            return self._get(subject, timeout, direct=False).value
        value = ack.value
        if value is None:
            # An older server leads the stream since our check, and stored an empty message.
            with suppress(Error):
                stored.delete_message(
                    self._api, self._stream, ack.seq, erase=False, timeout=left
                )
            raise JetStreamError(f"stream {ack.stream} has not counted {subject!r}")
        return value

    def load(self, subject: str, *, timeout: Seconds | None = None) -> int:
        """Get the value of a counter. Blocks.

        Any replica may answer, so the value may be a moment old.

        Args:
            subject: The subject of the counter.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The value.

        Raises:
            CounterNotFoundError: Nothing was added to this counter yet.

        Example:
            ```python
            js.create_stream(
                name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True
            )
            hits = js.counters("HITS")
            hits.add("hits.home", 2)
            print(hits.load("hits.home"))
            ```
        """
        return self.get(subject, timeout=timeout).value

    def get(self, subject: str, *, timeout: Seconds | None = None) -> CounterEntry:
        """Get a counter with the contributions of its sources. Blocks.

        Args:
            subject: The subject of the counter.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The counter.

        Raises:
            CounterNotFoundError: Nothing was added to this counter yet.
        """
        return self._get(subject, timeout, direct=True)

    def _get(
        self, subject: str, timeout: Seconds | None, *, direct: bool
    ) -> CounterEntry:
        check_literal(subject, "subject")
        try:
            message = stored.get_message(
                self._api,
                self._stream,
                last_by_subject=subject,
                direct=direct,
                timeout=timeout,
            )
        except MessageNotFoundError as nothing:
            raise CounterNotFoundError(
                f"stream {self._stream} has no counter {subject!r}: add to it first"
            ) from nothing
        return read_entry(message)

    def get_many(
        self, subjects: str | Iterable[str] = ">", *, timeout: Seconds | None = None
    ) -> Iterator[CounterEntry]:
        """Iterate over counters, the one that was changed last at the end.

        Iterating blocks for each message that has not come yet.

        Args:
            subjects: A subject, or several, wildcards allowed. Default: all counters.
            timeout: Seconds to wait for each counter. Default: the context's.

        Returns:
            An iterator over the counters.

        Raises:
            TooManyResultsError: More than 1024 counters match.
            JetStreamError: Raised at the end, after all other counters, if a message
                cannot be read as a counter, for example because it has too many digits.

        Example:
            ```python
            js.create_stream(
                name="HITS", subjects=["hits.*"], allow_msg_counter=True, allow_direct=True
            )
            hits = js.counters("HITS")
            for page in ("home", "about"):
                hits.add(f"hits.{page}", 1)
            for entry in hits.get_many("hits.*"):
                print(entry.subject, entry.value)
            ```
        """
        pages: LastPerSubjectReader[StoredMessage] = LastPerSubjectReader(
            subjects,
            StoredMessage.from_answer,
            up_to_sequence=None,
            up_to_time=None,
            batch=MAX_SUBJECTS,
            max_bytes=PAGE_BYTES,
        )
        found = stored.get_messages(self._api, self._stream, pages, timeout)
        return read_entries(found)

    def __repr__(self) -> str:
        return f"<Counters {self._stream!r}>"
