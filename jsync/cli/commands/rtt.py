"""`jsync rtt`: the round-trip time of a ping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..groups import ExampleCommand
from ..params.values import Number
from ..ui.errors import ExitCode, code_of, format_error, print_error
from ..ui.output import Duration, write_json, write_table

if TYPE_CHECKING:
    from ..params.settings import Settings

_COLUMNS = ("server", "round trips", "least", "average", "most")


@click.command(cls=ExampleCommand, example="jsync rtt 10")
@click.argument("iterations", type=Number(1), default=5)
@click.pass_obj
def rtt(settings: Settings, iterations: int) -> ExitCode | None:
    """Measure the round-trip time to each server.

    ITERATIONS is the number of pings, by default 5. The times of --json and of a pipe
    are seconds. The command fails if a server does not answer, once it has measured the
    others.
    """
    found: list[dict[str, Any]] = []
    failed: ExitCode | None = None
    for url in settings.servers:
        try:
            found.append(_measure(settings, url, iterations))
        except Exception as error:  # noqa: BLE001 - the others are still measured
            print_error(format_error(error))
            failed = failed or code_of(error)
    if settings.json:
        write_json(found)
    elif found:
        write_table(
            _COLUMNS,
            [
                [
                    result["server"],
                    len(result["times"]),
                    *(Duration(result[name]) for name in ("least", "average", "most")),
                ]
                for result in found
            ],
        )
    return failed


def _measure(settings: Settings, url: str, iterations: int) -> dict[str, Any]:
    with settings.connect(
        servers=url, allow_reconnect=False, ignore_discovered_servers=True
    ) as nc:
        nc.rtt(settings.timeout)  # warm up: the first round trip is slower
        times = [nc.rtt(settings.timeout) for _ in range(iterations)]
        server = nc.connected_url
    return {
        "server": server,
        "least": min(times),
        "average": sum(times) / len(times),
        "most": max(times),
        "times": times,
    }
