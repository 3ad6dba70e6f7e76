"""`jsync trace`: the route of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from jsync import tracing
from jsync.terminal import printable

from ..groups import ExampleCommand
from ..params.payloads import headers_option
from ..ui.output import echo, write_json

if TYPE_CHECKING:
    from ..params.settings import Settings


@click.command(cls=ExampleCommand, example="jsync trace orders.new '{\"id\": 42}'")
@click.argument("subject")
@click.argument("body", required=False, default="")
@headers_option
@click.option(
    "--deliver", is_flag=True, help="Also deliver the message to its subscribers."
)
@click.pass_obj
def trace(
    settings: Settings,
    subject: str,
    body: str,
    headers: tuple[tuple[str, str], ...],
    deliver: bool,
) -> None:
    """Show which way a message takes.

    The servers tell through which servers and accounts the message goes, and which
    streams and clients it reaches. Without --deliver no subscriber gets the message.
    """
    given: dict[str, list[str]] = {}
    for name, value in headers:
        given.setdefault(name, []).append(value)
    with settings.connect() as nc:
        found = nc.trace(
            subject,
            body.encode(),
            headers=given,
            deliver=deliver,
            timeout=settings.timeout,
        )
    if settings.json:
        write_json(msgspec.to_builtins(found, enc_hook=_wire))
        return
    for hop in found.hops:
        depth = len(hop.hop.split(".")) if hop.hop else 0
        cluster = f", cluster {hop.server.cluster}" if hop.server.cluster else ""
        echo(printable(f"{'  ' * depth}server {hop.server.name}{cluster}"))
        for event in hop.events:
            echo(printable(f"{'  ' * depth}  {_format_event(event)}"))
    if not found.complete:
        echo("some servers have not told in time")


def _wire(value: object) -> object:
    raise TypeError(type(value).__name__)


def _format_event(event: tracing.TraceEvent) -> str:
    match event:
        case tracing.Ingress():
            words = f"from {event.connection} {event.cid} {event.name!r}"
            words += f", account {event.account}, subject {event.subject}"
        case tracing.SubjectMapping():
            words = f"mapped to {event.to}"
        case tracing.StreamExport():
            words = f"exported to account {event.account} as {event.to}"
        case tracing.ServiceImport():
            words = (
                f"imported by account {event.account} from {event.source} to {event.to}"
            )
        case tracing.StreamIngress():
            words = f"to stream {event.stream}, subject {event.subject}"
            words += ", dropped without interest" if event.nointerest else ""
        case tracing.Egress():
            words = f"to {event.connection} {event.cid} {event.name!r}"
            words += (
                f", subscription {event.subscription}" if event.subscription else ""
            )
            words += f", queue {event.queue}" if event.queue else ""
        case _:
            words = f"event {event.type}"
    error = getattr(event, "error", None)
    return f"{words}: {error}" if error else words
