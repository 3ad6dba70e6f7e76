"""`jsync stream`: create, look at and change streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .family import Family
from .output import write_json, write_table

if TYPE_CHECKING:
    from .settings import Settings


@click.group(cls=Family)
def stream() -> None:
    """Create, look at and change streams."""


@stream.command("ls")
@click.option("--subject", metavar="SUBJECT", help="Only those that take some of it.")
@click.option("--names", "-n", is_flag=True, help="Only the names.")
@click.pass_obj
def list_(settings: Settings, subject: str | None, names: bool) -> None:
    """List the streams."""
    with settings.connect() as nc:
        js = settings.jetstream(nc)
        if names:
            found = list(js.stream_names(subject=subject))
            if settings.json:
                write_json(found)
            else:
                for name in found:
                    click.echo(name)
            return
        infos = [each.cached_info for each in js.streams(subject=subject)]
    if settings.json:
        write_json([info.to_wire() for info in infos])
        return
    write_table(
        ["name", "subjects", "messages", "bytes", "consumers"],
        [
            (
                info.config.name,
                info.config.subjects or [],
                info.state.messages,
                info.state.bytes,
                info.state.consumer_count,
            )
            for info in infos
        ],
    )
