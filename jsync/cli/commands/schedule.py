"""`jsync schedule`: messages that a server publishes later or repeatedly."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..groups import CommandGroup
from ..params.completion import STREAM
from ..params.payloads import headers_option, read_payloads
from ..params.values import DURATION, FUTURE_TIME
from ..ui.formatting import format_duration
from ..ui.messages import body_document, body_text, pairs
from ..ui.output import (
    write_bytes,
    write_json,
    write_key_values,
    write_result,
    write_table,
)
from ..ui.prompts import confirm, force_option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from jsync import Schedule

    from ..params.settings import Settings

_STREAM = click.argument("stream", type=STREAM)
_SUBJECT = click.argument("subject")


class _ScheduleGroup(CommandGroup):
    other_names: Mapping[str, str] = {
        "cancel": "rm",
        "create": "add",
        "del": "rm",
        "delete": "rm",
        "get": "info",
        "list": "ls",
        "new": "add",
        "put": "add",
        "view": "info",
    }


@click.group(cls=_ScheduleGroup)
def schedule() -> None:
    """Have a server publish messages later, or again and again (2.12).

    A schedule is a message on a subject of its own, in a stream with --allow-schedules.
    """


@schedule.command("ls", example="jsync schedule ls JOBS")
@_STREAM
@click.argument("filter_", metavar="[FILTER]", default=">")
@click.pass_obj
def list_(settings: Settings, stream: str, filter_: str) -> None:
    """List the schedules of a stream.

    All schedules, or those whose subjects match FILTER, which may have wildcards.
    """
    with settings.connect() as nc:
        found = list(settings.jetstream(nc).schedules(stream).list(filter_))
    if settings.json:
        write_json([_document(schedule) for schedule in found])
    else:
        columns = ["subject", "schedule", "time_zone", "target", "source", "created"]
        write_table(columns, [_row(schedule) for schedule in found])


@schedule.command(example="jsync schedule info JOBS jobs.mail")
@_STREAM
@_SUBJECT
@click.option("--raw", "-r", is_flag=True, help="Write only the payload, unchanged.")
@click.pass_obj
def info(settings: Settings, stream: str, subject: str, raw: bool) -> None:
    """Show a schedule.

    The exit code is 3 if the subject has no schedule, for instance because it has published.
    """
    if raw and settings.json:
        raise click.UsageError("--json and --raw exclude each other")
    with settings.connect() as nc:
        found = settings.jetstream(nc).schedules(stream).get(subject)
    if raw:
        write_bytes(found.data)
    elif settings.json:
        write_json(_document(found))
    else:
        headers = [f"{name}: {value}" for name, value in pairs(found.headers)]
        write_key_values(
            f"Schedule {subject}",
            {
                "subject": found.subject,
                "schedule": found.pattern,
                "time_zone": found.time_zone,
                "target": found.target,
                "source": found.source,
                "rollup": found.rollup or None,
                "target_ttl": found.target_ttl,
                "ttl": found.ttl,
                "created": found.created,
                "sequence": found.sequence,
                "headers": headers or None,
                "data": body_text(found.data) if found.data else None,
            },
        )


@schedule.command(
    example="jsync schedule add JOBS jobs.report weekly --target todo.report --cron @weekly"
)
@_STREAM
@_SUBJECT
@click.argument("body", required=False)
@click.option(
    *("--target", "--dest"),
    required=True,
    metavar="SUBJECT",
    help="The subject to publish to.",
)
@click.option(
    *("--at", "--after"),
    type=FUTURE_TIME,
    help="Publish once, at a time or after a duration: `1h30m`.",
)
@click.option("--every", type=DURATION, help="Publish at this interval (2.14).")
@click.option(
    "--cron",
    metavar="PATTERN",
    help="Publish by six fields, seconds first, or @hourly, @daily and others (2.14).",
)
@click.option("--time-zone", metavar="ZONE", help="The time zone of --cron.")
@click.option(
    "--source",
    metavar="SUBJECT",
    help="Publish the last payload of this subject (2.14).",
)
@click.option(
    "--rollup",
    is_flag=True,
    default=None,
    help="Replace the earlier messages of the target (2.14).",
)
@click.option(
    "--target-ttl",
    type=DURATION,
    help="The time after which published messages expire.",
)
@click.option("--ttl", type=DURATION, help="The time after which the schedule expires.")
@headers_option
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with the payload.",
)
@click.pass_obj
def add(
    settings: Settings,
    stream: str,
    subject: str,
    body: str | None,
    target: str,
    at: datetime | None,
    every: float | None,
    cron: str | None,
    time_zone: str | None,
    source: str | None,
    rollup: bool | None,
    target_ttl: float | None,
    ttl: float | None,
    headers: tuple[tuple[str, str], ...],
    file: Path | None,
) -> None:
    """Store a schedule, instead of the one that SUBJECT had.

    Give one of --at, --every and --cron. Without BODY and --file the command reads the
    payload from the standard input. If that is a terminal, the payload is empty.
    """
    whens = {"--at": at, "--every": every, "--cron": cron}
    given = [name for name, value in whens.items() if value is not None]
    if len(given) != 1:
        words = f"{' and '.join(given)} exclude each other" if given else ""
        raise click.UsageError(words or "give one of --at, --every and --cron")
    if file is not None and body is not None:
        raise click.UsageError("BODY and --file exclude each other")
    when = at or cron or timedelta(seconds=every or 0)
    data = file.read_bytes() if file is not None else next(read_payloads(body, "eof"))
    fields: dict[str, list[str]] = {}
    for name, value in headers:
        fields.setdefault(name, []).append(value)
    with settings.connect() as nc:
        ack = (
            settings.jetstream(nc)
            .schedules(stream)
            .put(
                subject,
                data,
                schedule=when,
                target=target,
                source=source,
                time_zone=time_zone,
                rollup=rollup,
                target_ttl=target_ttl,
                ttl=ttl,
                headers=fields or None,
            )
        )
    shown = format_duration(every) if every is not None else str(when)
    write_result(
        settings,
        f"stored schedule {subject} in stream {stream}: {shown}, to {target}",
        {"stream": stream, "subject": subject, "sequence": ack.seq},
    )


@schedule.command(example="jsync schedule rm JOBS jobs.mail --force")
@_STREAM
@_SUBJECT
@force_option
@click.pass_obj
def rm(settings: Settings, stream: str, subject: str, force: bool) -> None:
    """Cancel a schedule, so that it publishes no more.

    The exit code is 3 if the subject has no schedule, for instance because it has published.
    """
    confirm(f"Cancel schedule {subject} of stream {stream}?", force=force)
    with settings.connect() as nc:
        settings.jetstream(nc).schedules(stream).cancel(subject)
    write_result(
        settings,
        f"cancelled schedule {subject}",
        {"stream": stream, "cancelled": subject},
    )


def _row(found: Schedule) -> list[object]:
    about = [found.subject, found.pattern, found.time_zone, found.target, found.source]
    return [*about, f"{found.created:%FT%T.%fZ}"]


def _document(found: Schedule) -> dict[str, Any]:
    headers = found.headers
    return {
        "subject": found.subject,
        "schedule": found.pattern,
        "time_zone": found.time_zone,
        "target": found.target,
        "source": found.source,
        "rollup": found.rollup,
        "target_ttl": found.target_ttl,
        "ttl": found.ttl,
        "created": found.created.isoformat(),
        "sequence": found.sequence,
        "headers": {name: headers.get_all(name) for name in headers} if headers else {},
        **body_document("data", found.data),
    }
