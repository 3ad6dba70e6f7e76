"""The options of a write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ...errors import ConfigError
from ...models import check_filter
from ...subjects import has_wildcard
from ..buckets import check_bucket
from ..connection import ConnectionOptions
from ..options import exclusive, invalid_option

if TYPE_CHECKING:
    from ..options import Options
    from .columns import ColumnPlan

FENCE_BUCKET: Final = "jsync_spark"
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]+")
_KEY: Final = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*")


def _check_bucket_options(options: Options, bucket: str) -> None:
    """Raise `ConfigError` if options do not fit a write into a bucket."""
    exclusive(options, "stream", "bucket")
    check_bucket(bucket)
    for name, remedy in (
        ("subject", "give a column key"),
        ("allowPurge", "give the operation DEL for keys to delete"),
        ("maxRestartTime", "leave it out"),
    ):
        if options.text(name) is not None:
            raise ConfigError(
                f"option {name} is for streams, not for a bucket: {remedy}"
            )
    if options.choice("delivery", ("at-least-once", "exactly-once"), "") == (
        "exactly-once"
    ):
        raise ConfigError(
            "delivery=exactly-once is for streams: a value that is put again changes "
            "nothing but its revision. For compare-and-set give a column expected_revision"
        )
    if options.text("publisher") == "ingest":
        raise ConfigError("publisher=ingest is for streams: leave it out")


def _check_subject(options: Options, name: str) -> None:
    """Raise `ConfigError` unless messages can be published to the subject of an option."""
    subject = options.text(name)
    if subject is None:
        return
    expected = "a subject without wildcards, such as orders.new"
    try:
        check_filter(subject, name)
    except ConfigError as error:
        raise invalid_option(name, expected, subject) from error
    if has_wildcard(subject):
        raise invalid_option(name, expected, subject)


@dataclass(frozen=True, kw_only=True)
class SinkSettings:
    """The settings of a write without secrets, safe to pickle and show."""

    connection: ConnectionOptions
    stream: str | None = None
    bucket: str | None = None
    """Rows are changes of the keys of this bucket, which `stream` stores."""
    subject: str | None = None
    exactly_once: bool = False
    publisher: Literal["auto", "ingest", "async"] = "auto"
    fence_bucket: str | None = None
    """None: nothing is noted. With exactly-once there is always a bucket."""
    dead_letters: str | None = None
    """The subject for rows that cannot be published."""
    allow_purge: bool = False
    job: str | None = None
    job_batch: int | None = None
    """The number of this batch in the job. Each batch is written once, in order."""
    max_restart_time: float | None = None
    """Seconds."""

    @classmethod
    def of(cls, options: Options) -> SinkSettings:
        """Read the options. Raises `ConfigError` if one is invalid."""
        delivery = options.choice(
            "delivery", ("at-least-once", "exactly-once"), "at-least-once"
        )
        exactly_once = delivery == "exactly-once"
        publisher = options.choice("publisher", ("auto", "ingest", "async"), "auto")
        bucket = options.text("fenceBucket")
        if bucket is not None and not _BUCKET.fullmatch(bucket):
            raise ConfigError(
                f"option fenceBucket: not the name of a bucket: {bucket!r}; use letters, "
                "digits, _ and -"
            )
        job = options.text("jobId")
        if job is not None and not _KEY.fullmatch(job):
            raise ConfigError(
                f"option jobId: cannot be part of a key: {job!r}; use letters, digits, -, "
                "_, =, / and single dots"
            )
        dead_letters = options.text("deadLetterSubject")
        if dead_letters is not None and publisher == "ingest":
            raise ConfigError(
                "deadLetterSubject needs publisher=async: a fast ingest does not say "
                "which of its messages a stream refuses"
            )
        entries = options.text("bucket")
        if entries is not None:
            _check_bucket_options(options, entries)
        for name in ("subject", "deadLetterSubject"):
            _check_subject(options, name)
        return cls(
            connection=ConnectionOptions.of(options),
            stream=options.text("stream") if entries is None else f"KV_{entries}",
            bucket=entries,
            subject=options.text("subject"),
            exactly_once=exactly_once,
            publisher=publisher,  # type: ignore[arg-type]
            fence_bucket=bucket or (FENCE_BUCKET if exactly_once else None),
            dead_letters=dead_letters,
            allow_purge=options.flag("allowPurge", False),
            job=job,
            job_batch=options.count("jobBatch", 0),
            max_restart_time=options.seconds("maxRestartTime"),
        )

    def check(self, plan: ColumnPlan, *, overwrite: bool, streaming: bool) -> None:
        """Raise `ConfigError` if the write is impossible with these columns."""
        if overwrite and self.bucket is not None:
            raise ConfigError(
                'mode("overwrite") would purge the whole bucket: use mode("append"), '
                "and the operation DEL for keys to delete"
            )
        if overwrite:
            self._check_overwrite(plan, streaming)
        if self.exactly_once:
            self._check_exactly_once(plan)
        elif self.max_restart_time is not None:
            raise ConfigError(
                "maxRestartTime is for delivery=exactly-once: what is written at least "
                "once is written again, however late"
            )
        if self.job is not None and streaming:
            raise ConfigError(
                "jobId is for batch writes: a streaming query has an id in its checkpoint"
            )
        if self.job_batch is not None and self.job is None:
            raise ConfigError(
                "jobBatch is the number of a batch of a job: give its jobId"
            )
        if self.job is not None and self.fence_bucket is None and self.bucket is None:
            raise ConfigError(
                "jobId needs delivery=exactly-once: what is written at least once is "
                "written again (or a fenceBucket, if only its report is to be kept)"
            )
        if self.publisher == "ingest" and plan.has("expected_last_msg_id"):
            raise ConfigError(
                "the column expected_last_msg_id needs publisher=async: in a fast ingest "
                "servers drop such a message and count it as stored"
            )

    def _check_exactly_once(self, plan: ColumnPlan) -> None:
        if not plan.has("msg_id"):
            raise ConfigError(
                "delivery=exactly-once needs a column msg_id that names each row for "
                "good, such as a key of the data. Row numbers do not: a replay may have "
                "the rows in another order, and then rows would be dropped and doubled. "
                "Nor do hashes of the content: rows that are equal would be dropped"
            )
        if self.stream is None:
            raise ConfigError(
                "delivery=exactly-once needs the option stream: how long that remembers "
                "ids is checked"
            )
        if plan.expectations:
            raise ConfigError(
                f"delivery=exactly-once cannot have the column {plan.expectations[0]}: a "
                "stream looks at that before it looks at msg_id, and so would refuse the "
                "replay of a row that it has"
            )

    def _check_overwrite(self, plan: ColumnPlan, streaming: bool) -> None:
        if streaming:
            raise ConfigError(
                "the output mode complete would purge the stream with each batch: use "
                "append or update"
            )
        if not self.allow_purge:
            raise ConfigError(
                'mode("overwrite") would purge the whole stream: give '
                'allowPurge=true if that is what you want, else mode("append")'
            )
        if self.stream is None:
            raise ConfigError('mode("overwrite") needs the option stream, to be purged')
        if plan.has("msg_id"):
            raise ConfigError(
                'mode("overwrite") cannot have a column msg_id: a stream that is purged '
                "still knows the ids of before, and would drop rows that have them"
            )
