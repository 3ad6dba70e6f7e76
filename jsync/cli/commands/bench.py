"""`jsync bench`: quick figures of the server and the connection to it."""

from __future__ import annotations

import os
import platform
import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import click

import jsync
from jsync.errors import UnsupportedFeatureError
from jsync.server import LocalServer

from ..groups import ExampleCommand
from ..params.values import DURATION, SIZE, Number
from ..ui.output import echo, is_terminal, write_json, write_table
from .bench_scenarios import BenchOptions, BenchResult, run, scenarios

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..params.settings import Settings

_MAX_SIZE: Final = 1 << 20


@click.command(
    short_help="Measure publishing and consuming, in seconds.",
    cls=ExampleCommand,
    example="jsync bench --own --messages 10000",
)
@click.option("--own", is_flag=True, help="Use a private server.")
@click.option(
    "--messages",
    "-n",
    type=Number(1),
    default=100_000,
    show_default=True,
    help="The maximum number of messages for each figure.",
)
@click.option(
    "--seconds",
    "seconds",
    type=DURATION,
    default=2.0,
    show_default=True,
    help="The maximum time for each figure.",
)
@click.option(
    "--size", type=SIZE, default=128, show_default=True, help="The size of a payload."
)
@click.option(
    "--storage",
    type=click.Choice(["memory", "file"]),
    default="memory",
    show_default=True,
    help="Store messages in files or in memory.",
)
@click.pass_obj
def bench(
    settings: Settings,
    own: bool,
    messages: int,
    seconds: float,
    size: int,
    storage: str,
) -> None:
    """Measure publishing and consuming, in seconds.

    On a stream of its own, which is deleted at the end. One run on one machine: figures
    of the next run differ by a tenth, and by more beside other work.
    """
    if seconds == 0:
        raise click.UsageError("--seconds has to be above 0")
    if not 0 <= size <= _MAX_SIZE:
        raise click.UsageError(f"--size is from 0 to {_MAX_SIZE} bytes")
    with ExitStack() as opened:
        if own:
            server = opened.enter_context(LocalServer())
            nc = opened.enter_context(jsync.connect(server.url, name="jsync bench"))
            js = nc.jetstream()
        else:
            nc = opened.enter_context(settings.connect(name="jsync bench"))
            js = settings.jetstream(nc)
        info = nc.server_info
        url = nc.connected_url
        stream, batched = _create(js, storage)
        opened.callback(stream.delete)
        if not settings.json:
            echo(
                f"jsync {jsync.__version__} on Python {platform.python_version()}, "
                f"{os.cpu_count()} processors, with nats-server {info.version} at {url}: "
                f"payloads of {size} bytes, a stream in {_PLACES[storage]}"
            )
        subject = f"{stream.name}.x"
        plan = BenchOptions(nc, js, stream, subject, bytes(size), messages, seconds)
        results = list(_measure(plan, batched=batched))
    if settings.json:
        write_json(
            {
                "jsync": jsync.__version__,
                "python": platform.python_version(),
                "processors": os.cpu_count(),
                "server": info.version,
                "url": url,
                "size": size,
                "storage": storage,
                "figures": [_document(figure) for figure in results],
            }
        )
    elif is_terminal():
        _chart(results)
    else:
        write_table(
            ["", "messages", "seconds", "per second", "cpu us", "median us", "p99 us"],
            [_row(figure) for figure in results],
        )


_PLACES: Final = {"memory": "memory", "file": "files"}


def _create(js: jsync.JetStream, storage: str) -> tuple[jsync.Stream, bool]:
    name = f"JSYNC_BENCH_{secrets.token_hex(4)}"
    config = jsync.StreamConfig(
        name=name,
        subjects=[f"{name}.*"],
        storage="file" if storage == "file" else "memory",
        allow_batched=True,
    )
    try:
        return js.create_stream(config), True
    except UnsupportedFeatureError:
        return js.create_stream(config.updated({"allow_batched": None})), False


def _measure(plan: BenchOptions, *, batched: bool) -> Iterator[BenchResult]:
    from rich.status import Status

    from ..ui.console import console

    screen = console(err=True)
    with Status("", console=screen) as status:
        for scenario in scenarios(fast_ingest=batched):
            if screen.is_terminal:
                status.update(scenario[0])
            yield run(plan, scenario)


def _chart(results: list[BenchResult]) -> None:
    from rich import box
    from rich.bar import Bar
    from rich.table import Table

    from ..ui.console import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("per second", justify="right")
    table.add_column("", ratio=1, min_width=10)
    table.add_column("CPU µs", justify="right")
    table.add_column("median µs", justify="right")
    table.add_column("99 % µs", justify="right")
    peak = max(figure.rate for figure in results)
    for figure in results:
        median, late = figure.latency or (None, None)
        table.add_row(
            figure.what,
            f"{figure.rate:,.0f}",
            Bar(peak, 0, figure.rate),
            _micro(figure.cpu / max(1, figure.messages)),
            _micro(median),
            _micro(late),
        )
    console().print(table)


def _micro(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.{1 if seconds < 1e-5 else 0}f}"


def _row(figure: BenchResult) -> list[Any]:
    median, late = figure.latency or (None, None)
    return [
        figure.what,
        figure.messages,
        f"{figure.seconds:.3f}",
        round(figure.rate),
        _micro(figure.cpu / max(1, figure.messages)),
        _micro(median),
        _micro(late),
    ]


def _document(figure: BenchResult) -> dict[str, Any]:
    document = figure._asdict()
    document["per_second"] = round(figure.rate)
    return document
