"""`JetStream.schedules`: messages that a server publishes later, or again and again."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from ...errors import (
    ConfigError,
    MessageNotFoundError,
    MessageScheduleInvalidError,
    ScheduleNotFoundError,
    SchedulesNotEnabledError,
    WrongLastSequenceError,
)
from ...headers import Headers
from ...models import StoredMessage
from ...models.name import check_literal
from ..features import CANCEL_AND_PUBLISH
from ..management import purge_stream, stream_info
from ..publishing.options import publish_headers, required_features
from ..publishing.publish import publish
from ..stored import get as stored
from ..stored.engine import MAX_SUBJECTS, PAGE_BYTES, LastPerSubjectReader
from .engine import error_hint, read_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime, timedelta

    from ...core.requests import Data
    from ...headers import HeadersLike
    from ...models import PubAck
    from ...models.publish import TTL, PublishOptions
    from ...validation import Seconds
    from ..api import API
    from .engine import Schedule


class Schedules:
    """The schedules of a stream, one for each subject (ADR-51).

    `JetStream.schedules` returns it. Any thread may use it.

    Example:
        ```python
        js.create_stream(
            name="JOBS", subjects=["at.>", "jobs.>"], allow_msg_schedules=True, allow_msg_ttl=True
        )
        schedules = js.schedules("JOBS")
        schedules.put("at.report", b"{}", schedule="@every 1h", target="jobs.report")
        schedules.cancel("at.report")
        ```
    """

    def __init__(self, api: API, stream: str, timeout: Seconds | None) -> None:
        config = stream_info(api, stream, timeout=timeout).config
        if not config.allow_msg_schedules:
            raise SchedulesNotEnabledError(
                f"stream {stream} has no allow_msg_schedules: turn it on with "
                f"update_stream(name={stream!r}, allow_msg_schedules=True)"
            )
        self._api = api
        self._stream = stream

    @property
    def stream_name(self) -> str:
        """The name of the stream."""
        return self._stream

    def put(
        self,
        subject: str,
        data: Data = b"",
        *,
        schedule: datetime | timedelta | str,
        target: str,
        source: str | None = None,
        time_zone: str | None = None,
        target_ttl: TTL | None = None,
        rollup: bool | None = None,
        ttl: TTL | None = None,
        headers: HeadersLike | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Store a schedule, instead of the one that the subject had. Blocks.

        Args:
            subject: A subject of the stream for the schedule itself.
            data: The payload to publish.
            schedule: An aware `datetime` publishes once. A `timedelta`, from one second,
                publishes repeatedly. A str is a pattern of the server: six fields of
                cron, seconds first, or `@hourly`, `@daily`, `@weekly`, `@monthly`,
                `@yearly`, `@every 90s`. `timedelta` and str need nats-server 2.14.
            target: The subject to publish to: another subject of the stream.
            source: Publish the last payload of this subject instead of `data`, if it has
                a message. Since nats-server 2.14.
            time_zone: The time zone of a cron pattern, such as `Europe/Prague`. Default:
                UTC. Since nats-server 2.14.
            target_ttl: Whole seconds that published messages live, or `"never"`.
            rollup: Let each published message replace all earlier ones of `target`. Since
                nats-server 2.14.
            ttl: Whole seconds that the schedule lives.
            headers: Your own headers, which are published as well.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The ack of the stream.

        Raises:
            ConfigError: An argument has a value that is not allowed. Nothing is sent.
            MessageScheduleInvalidError: The server does not know the pattern or the time
                zone, or the target or the source is not a subject of the stream.
            MessageTTLDisabledError: The stream has no `allow_msg_ttl`, for `ttl` and
                `target_ttl`.
            UnsupportedFeatureError: The server, or the one that leads the stream, is too
                old. Nothing is sent.
            APIError: The server rejects the schedule.

        Example:
            ```python
            js.create_stream(
                name="JOBS", subjects=["at.>", "jobs.>"], allow_msg_schedules=True, allow_msg_ttl=True
            )
            schedules = js.schedules("JOBS")
            schedules.put("at.report", b"{}", schedule="@every 1h", target="jobs.report")
            ```
        """
        options: PublishOptions = {
            "headers": headers,
            "expected_stream": self._stream,
            "ttl": ttl,
            "schedule": schedule,
            "schedule_target": target,
            "schedule_source": source,
            "schedule_time_zone": time_zone,
            "schedule_ttl": target_ttl,
            "schedule_rollup": rollup,
        }
        written = publish_headers(subject, data, options)
        needs = required_features(options)
        self._api.require(needs)
        seconds = self._api.seconds(timeout)
        deadline = monotonic() + seconds
        self._api.require_of_leader(self._stream, needs, seconds)
        left = max(0.0, deadline - monotonic())
        try:
            return publish(self._api.session, subject, data, written, left)
        except MessageScheduleInvalidError as error:
            about = error_hint(error.err_code, schedule, target, source, time_zone)
            raise MessageScheduleInvalidError(
                f"{error}{about}",
                code=error.code,
                err_code=error.err_code,
                description=error.description,
            ) from error

    def get(self, subject: str, *, timeout: Seconds | None = None) -> Schedule:
        """Get the schedule of a subject. Blocks.

        Args:
            subject: The subject of the schedule.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The schedule.

        Raises:
            ScheduleNotFoundError: The subject has no schedule. One that published once is
                gone.
        """
        check_literal(subject, "subject")
        try:
            message = stored.get_message(
                self._api,
                self._stream,
                last_by_subject=subject,
                direct=False,
                timeout=timeout,
            )
        except MessageNotFoundError as nothing:
            raise self._not_found_error(subject) from nothing
        found = read_schedule(message)
        if found is None:
            raise self._not_found_error(subject)
        return found

    def list(
        self, subjects: str | Iterable[str] = ">", *, timeout: Seconds | None = None
    ) -> Iterator[Schedule]:
        """Iterate over the schedules, the oldest first.

        Iterating blocks for each message that has not come yet. The stream needs
        `allow_direct`.

        Args:
            subjects: A subject, or several, wildcards allowed. Default: all. Name the
                subjects of the schedules if the stream has many others.
            timeout: Seconds to wait for each schedule. Default: the context's.

        Returns:
            An iterator over the schedules.

        Raises:
            TooManyResultsError: More than 1024 subjects match.
            DirectGetNotAllowedError: The stream has no `allow_direct`.

        Example:
            ```python
            js.create_stream(
                name="JOBS",
                subjects=["at.>", "jobs.>"],
                allow_msg_schedules=True,
                allow_msg_ttl=True,
                allow_direct=True,
            )
            schedules = js.schedules("JOBS")
            schedules.put("at.report", b"{}", schedule="@every 1h", target="jobs.report")
            for schedule in schedules.list():
                print(schedule)
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
        found = map(
            read_schedule, stored.get_messages(self._api, self._stream, pages, timeout)
        )
        return (schedule for schedule in found if schedule is not None)

    def cancel(self, subject: str, *, timeout: Seconds | None = None) -> Schedule:
        """Delete the schedule of a subject, so that it publishes no more. Blocks.

        Messages that were published stay. A schedule that another client puts there at the
        same time is not deleted.

        Args:
            subject: The subject of the schedule.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The schedule that was deleted.

        Raises:
            ScheduleNotFoundError: The subject has no schedule. One that published once is
                gone.

        Example:
            ```python
            js.create_stream(
                name="JOBS", subjects=["at.>", "jobs.>"], allow_msg_schedules=True, allow_msg_ttl=True
            )
            schedules = js.schedules("JOBS")
            schedules.put("at.report", b"{}", schedule="@every 1h", target="jobs.report")
            schedules.cancel("at.report")
            ```
        """
        found = self.get(subject, timeout=timeout)
        purged = purge_stream(
            self._api,
            self._stream,
            subject=subject,
            sequence=found.sequence + 1,
            keep=None,
            timeout=timeout,
        )
        if not purged:
            raise self._not_found_error(subject)
        return found

    def cancel_and_publish(
        self,
        subject: str,
        target: str,
        data: Data = b"",
        *,
        headers: HeadersLike | None = None,
        timeout: Seconds | None = None,
    ) -> PubAck:
        """Delete the schedule of a subject and publish a message, both or neither. Blocks.

        Use it to publish a delayed message earlier, but only once, or to tell consumers
        that a schedule was cancelled. Since nats-server 2.14.

        Args:
            subject: The subject of the schedule.
            target: The subject of the message: another subject of the stream, such as the
                target of the schedule.
            data: The payload.
            headers: Headers of the message.
            timeout: Seconds to wait. Default: the context's.

        Returns:
            The ack of the message.

        Raises:
            ScheduleNotFoundError: The subject has no schedule, because it has published,
                was cancelled, or was replaced. Nothing is published.
            ConfigError: The target is the subject of the schedule. Nothing is sent.
            UnsupportedFeatureError: The server is too old. Nothing is sent.
            APIError: The server rejects the message.
        """
        if target == subject:
            raise ConfigError("target cannot be the subject of the schedule itself")
        self._api.require(CANCEL_AND_PUBLISH)
        found = self.get(subject, timeout=timeout)
        given = Headers(headers or {})
        options: PublishOptions = {
            "headers": {
                **{name: given.get_all(name) for name in given},
                "Nats-Scheduler": subject,
                "Nats-Schedule-Next": "purge",
            },
            "expected_stream": self._stream,
            "expected_last_subject": subject,
            "expected_last_subject_sequence": found.sequence,
        }
        written = publish_headers(target, data, options)
        seconds = self._api.seconds(timeout)
        try:
            return publish(self._api.session, target, data, written, seconds)
        except WrongLastSequenceError as changed:
            raise self._not_found_error(subject) from changed

    def _not_found_error(self, subject: str) -> ScheduleNotFoundError:
        return ScheduleNotFoundError(
            f"stream {self._stream} has no schedule on {subject!r}: it was cancelled, or "
            "has published already"
        )

    def __repr__(self) -> str:
        return f"<Schedules {self._stream!r}>"
