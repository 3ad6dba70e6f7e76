"""`jsync counter`: numbers that servers add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jsync.errors import JetStreamError

from ..groups import CommandGroup
from ..ui.output import write_json, write_key_values, write_result, write_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jsync
    from jsync import CounterEntry

    from ..params.settings import Settings

_SUBJECT = click.argument("subject")
_STREAM = click.option(
    "--stream",
    metavar="STREAM",
    help="The stream of the counters. Default: the stream of the subject.",
)
_MSG_ID = click.option(
    "--msg-id", metavar="ID", help="Add only once, however often you call with this id."
)


class _CounterGroup(CommandGroup):
    other_names: Mapping[str, str] = {
        "list": "ls",
        "info": "view",
        "inc": "increment",
        "incr": "increment",
        "add": "increment",
        "dec": "decrement",
        "decr": "decrement",
        "load": "get",
    }


@click.group(cls=_CounterGroup)
def counter() -> None:
    """Read counters, and add to them (2.12).

    A counter is a subject of a stream with --allow-counter. The servers add up.
    """


@counter.command("ls", example="jsync counter ls 'counts.>'")
@click.argument("filter_", metavar="[FILTER]", required=False)
@_STREAM
@click.pass_obj
def list_(settings: Settings, filter_: str | None, stream: str | None) -> None:
    """List the counters of a stream, with their values.

    All counters, or those that match FILTER, which may have wildcards: `hits.*`, `hits.>`.
    """
    if filter_ is None and stream is None:
        raise click.UsageError("give a FILTER, or --stream STREAM")
    found: list[CounterEntry] = []
    unreadable: JetStreamError | None = None
    with settings.connect() as nc:
        counters = _counters(nc, settings, filter_, stream)
        try:
            found.extend(counters.get_many(filter_ or ">"))
        except JetStreamError as error:
            if not found:
                raise
            unreadable = error
    found.sort(key=lambda entry: entry.subject)
    if settings.json:
        write_json([_document(entry) for entry in found])
    else:
        write_table(
            ["subject", "value"], [[entry.subject, entry.value] for entry in found]
        )
    if unreadable is not None:
        raise unreadable


@counter.command(example="jsync counter get counts.clicks")
@_SUBJECT
@_STREAM
@click.pass_obj
def get(settings: Settings, subject: str, stream: str | None) -> None:
    """Write the value of a counter.

    The exit code is 3 if nothing was added to it yet.
    """
    with settings.connect() as nc:
        value = _counters(nc, settings, subject, stream).load(subject)
    _write_value(settings, subject, value)


@counter.command(example="jsync counter view counts.clicks")
@_SUBJECT
@_STREAM
@click.pass_obj
def view(settings: Settings, subject: str, stream: str | None) -> None:
    """Show a counter with its last increment, and with the parts of its sources."""
    with settings.connect() as nc:
        counters = _counters(nc, settings, subject, stream)
        entry = counters.get(subject)
    if settings.json:
        write_json(_document(entry))
        return
    write_key_values(
        f"Counter {subject}",
        {
            "subject": entry.subject,
            "stream": counters.stream_name,
            "value": entry.value,
            "increment": entry.increment,
            "sequence": entry.sequence,
            "sources": [
                f"{source} {of} {value}"
                for source, values in entry.sources.items()
                for of, value in values.items()
            ]
            or None,
        },
    )


@counter.command(example="jsync counter increment counts.clicks 5")
@_SUBJECT
@click.argument("value", type=int, default=1)
@_STREAM
@_MSG_ID
@click.pass_obj
def increment(
    settings: Settings, subject: str, value: int, stream: str | None, msg_id: str | None
) -> None:
    """Add to a counter, and write its new value.

    VALUE is 1 if you omit it. A new counter begins at 0.
    """
    _add(settings, subject, value, stream, msg_id)


@counter.command(example="jsync counter decrement counts.clicks 5")
@_SUBJECT
@click.argument("value", type=int, default=1)
@_STREAM
@_MSG_ID
@click.pass_obj
def decrement(
    settings: Settings, subject: str, value: int, stream: str | None, msg_id: str | None
) -> None:
    """Subtract from a counter, and write its new value.

    VALUE is 1 if you omit it. A new counter begins at 0.
    """
    _add(settings, subject, -value, stream, msg_id)


def _add(
    settings: Settings, subject: str, value: int, stream: str | None, msg_id: str | None
) -> None:
    with settings.connect() as nc:
        counters = _counters(nc, settings, subject, stream)
        total = counters.add(subject, value, msg_id=msg_id)
    _write_value(settings, subject, total)


def _counters(
    nc: jsync.Connection, settings: Settings, subject: str | None, stream: str | None
) -> jsync.Counters:
    js = settings.jetstream(nc)
    return js.counters(stream or js.stream_name_by_subject(subject or ">"))


def _write_value(settings: Settings, subject: str, value: int) -> None:
    write_result(settings, str(value), {"subject": subject, "value": value})


def _document(entry: CounterEntry) -> dict[str, Any]:
    return {
        "subject": entry.subject,
        "value": entry.value,
        "increment": entry.increment,
        "sequence": entry.sequence,
        "sources": entry.sources,
    }
