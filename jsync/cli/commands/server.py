"""`jsync server`: run a nats-server here, or manage servers as the system account."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ..diagnosis import silent_servers
from ..groups import CommandGroup
from ..params.values import DURATION, Number
from ..ui.output import Size, write_json, write_key_values, write_result, write_table
from ..ui.prompts import confirm, force_option
from .local_server import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jsync
    from jsync.system import System

    from ..params.settings import Settings

_ENDPOINTS: Final = (
    *("varz", "connz", "subsz", "routez", "gatewayz", "leafz"),
    *("accountz", "jsz", "healthz", "statsz", "idz"),
    *("accstatz", "raftz", "ipqueuesz", "expvarz"),
)
_NAME: Final = click.argument("name", metavar="SERVER")


class _ServerGroup(CommandGroup):
    """The commands of `jsync server`. Without the name of a command, it is `run`."""

    other_names: Mapping[str, str] = {
        "list": "ls",
        "req": "request",
        "stepdown": "step-down",
    }

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        option = bool(args) and args[0].startswith("-")
        alone = not args and not ctx.resilient_parsing
        if alone or (option and args[0] not in ("--help", "-h")):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ServerGroup)
def server() -> None:
    """Run a server here, or look at and steer servers.

    Without a command, `jsync server` does what `jsync server run` does. All commands but
    `run` need a user of the system account.
    """


server.add_command(run)


@server.command("ls", example="jsync server ls --context system")
@click.pass_obj
def list_(settings: Settings) -> None:
    """List the servers, with their load.

    The state is the health that a server reports of itself. A server of JetStream's cluster
    that does not reply is in the list, too.
    """
    with settings.connect() as nc:
        system = _system(nc, settings)
        found = system.ping()
        health = {reply.server.id: reply.data.status for reply in system.healthz()}
        silent = silent_servers(system, [reply.server.name for reply in found])
    if settings.json:
        write_json(
            [
                _document(reply.server, reply.data)
                | {"health": health.get(reply.server.id)}
                for reply in found
            ]
            + [
                {
                    "server": {"name": name, "cluster": cluster},
                    "data": None,
                    "health": None,
                }
                for name, cluster in silent.items()
            ]
        )
        return
    write_table(
        [
            *("name", "version", "cluster", "jetstream", "conns", "subs", "cpu", "mem"),
            "state",
        ],
        [
            [
                reply.server.name,
                reply.server.ver,
                reply.server.cluster,
                "yes" if reply.server.jetstream else "no",
                reply.data.connections,
                reply.data.subscriptions,
                reply.data.cpu,
                Size(reply.data.mem),
                health.get(reply.server.id, "no reply"),
            ]
            for reply in found
        ]
        + [
            [name, "", cluster, "yes", "", "", "", "", "no reply"]
            for name, cluster in silent.items()
        ],
    )


@server.command(example="jsync server info nats-1")
@_NAME
@click.pass_obj
def info(settings: Settings, name: str) -> None:
    """Show the configuration and the counters of a server."""
    with settings.connect() as nc:
        one = _system(nc, settings).server(name)
        varz, health = one.varz(), one.healthz()
    if settings.json:
        write_json(varz.to_wire())
        return
    write_key_values(
        f"Server {varz.server_name}",
        {
            "name": varz.server_name,
            "id": varz.server_id,
            "version": varz.version,
            "health": health.status,
            "uptime": varz.uptime,
            "host": f"{varz.host}:{varz.port}",
            "cluster": one.info.cluster,
            "domain": one.info.domain,
            "connections": varz.connections,
            "max_connections": varz.max_connections,
            "subscriptions": varz.subscriptions,
            "routes": varz.routes,
            "leafnodes": varz.leafnodes,
            "in_msgs": varz.in_msgs,
            "out_msgs": varz.out_msgs,
            "slow_consumers": varz.slow_consumers,
            "cpu": varz.cpu,
            "mem": Size(varz.mem),
            "config_load_time": varz.config_load_time,
        },
    )


@server.command(example="jsync server request jsz nats-1")
@click.argument("endpoint", type=click.Choice(_ENDPOINTS))
@click.argument("name", required=False, metavar="[SERVER]")
@click.pass_obj
def request(settings: Settings, endpoint: str, name: str | None) -> None:
    """Write what servers reply to a request, as JSON.

    All servers, or the one that you name.
    """
    with settings.connect() as nc:
        system = _system(nc, settings)
        call = "ping" if endpoint == "statsz" else endpoint
        if name is not None:
            one = system.server(name)
            write_json(_document(one.info, getattr(one, call)()))
        else:
            replies = getattr(system, call)()
            write_json([_document(reply.server, reply.data) for reply in replies])


@server.command(example="jsync server profile nats-1 heap heap.pprof")
@_NAME
@click.argument("kind", metavar="PROFILE")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--duration",
    type=DURATION,
    help="The time to measure for a cpu profile, up to 15s.",
)
@click.option(
    "--debug",
    type=Number(0, 2),
    default=0,
    help="Write text, brief with 1 and whole with 2, not a binary profile.",
)
@click.pass_obj
def profile(
    settings: Settings,
    name: str,
    kind: str,
    file: Path,
    duration: float | None,
    debug: int,
) -> None:
    """Write a profile of a server to a file, for `go tool pprof`.

    PROFILE is cpu, which needs --duration, heap, allocs, goroutine, block, mutex or
    threadcreate.
    """
    with settings.connect() as nc:
        one = _system(nc, settings).server(name)
        data = one.profilez(kind, debug=debug, duration=duration).profile
    file.write_bytes(data)
    write_result(
        settings,
        f"wrote {len(data):,} bytes to {file}",
        {"profile": kind, "bytes": len(data), "file": str(file)},
    )


@server.command(example="jsync server reload nats-1")
@_NAME
@click.pass_obj
def reload(settings: Settings, name: str) -> None:
    """Have a server read its configuration file again."""
    with settings.connect() as nc:
        _system(nc, settings).server(name).reload()
    write_result(settings, f"reloaded server {name}", {"reloaded": name})


@server.command(example="jsync server kick nats-1 42")
@_NAME
@click.argument("client_id", type=click.IntRange(1))
@force_option
@click.pass_obj
def kick(settings: Settings, name: str, client_id: int, force: bool) -> None:
    """Close the connection of a client, which will reconnect."""
    with settings.connect() as nc:
        found = _system(nc, settings).server(name)
        confirm(f"Close the connection of client {client_id} to {name}?", force=force)
        found.kick(client_id)
    write_result(
        settings, f"closed the connection of client {client_id}", {"kicked": client_id}
    )


@server.command("step-down", example="jsync server step-down")
@click.option("--preferred", metavar="SERVER", help="The server to become the leader.")
@force_option
@click.pass_obj
def step_down(settings: Settings, preferred: str | None, force: bool) -> None:
    """Have the leader of the meta group of JetStream step down."""
    confirm("Have the leader of the meta group step down?", force=force)
    with settings.connect() as nc:
        _system(nc, settings).meta_leader_step_down(preferred=preferred)
    write_result(
        settings, "the leader of the meta group steps down", {"stepped_down": True}
    )


@server.command("peer-remove", example="jsync server peer-remove nats-3")
@_NAME
@force_option
@click.pass_obj
def peer_remove(settings: Settings, name: str, force: bool) -> None:
    """Remove a server that will not come back from JetStream's cluster."""
    confirm(f"Remove server {name} from the cluster for ever?", force=force)
    with settings.connect() as nc:
        _system(nc, settings).remove_server(name)
    write_result(settings, f"removed server {name}", {"removed": name})


def _system(nc: jsync.Connection, settings: Settings) -> System:
    return nc.system(timeout=settings.timeout)


def _document(server: Any, data: Any) -> dict[str, Any]:
    return {"server": server.to_wire(), "data": data.to_wire()}
