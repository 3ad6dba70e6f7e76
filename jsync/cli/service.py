"""`jsync service`: find services, show them, and run one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

import click

from jsync import errors

from .failures import say
from .family import Family
from .output import echo, write_facts, write_json, write_line, write_table
from .settings import flush
from .values import DURATION, Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jsync
    from jsync import EndpointInfo, ServiceInfo, ServicePing, ServiceStats

    from .settings import Settings

_NAME: Final = click.argument("name", required=False)
_ID: Final = click.argument("instance", required=False, metavar="[ID]")
_STALL: Final = click.option(
    "--stall",
    type=DURATION,
    default=0.3,
    help="Time to wait for one more answer. Default: 0.3s.",
)
_PREFIX: Final = click.option(
    "--prefix", default="$SRV", help="The prefix of control subjects. Default: $SRV."
)


@click.group(cls=Family)
def service() -> None:
    """Find services, and run one."""


@service.command("ls")
@_NAME
@_STALL
@_PREFIX
@click.pass_obj
def list_(settings: Settings, name: str | None, stall: float, prefix: str) -> None:
    """List the instances of all services, or of one NAME."""
    with settings.connect() as nc:
        found = nc.services.info(
            name, timeout=settings.timeout, stall=stall, prefix=prefix
        )
    _check_found(found, name)
    if settings.json:
        write_json([info.to_wire() for info in found])
        return
    write_table(
        ("name", "version", "id", "endpoints", "description"),
        [
            (info.name, info.version, info.id, len(info.endpoints), info.description)
            for info in sorted(found, key=_order)
        ],
    )


@service.command()
@_NAME
@_ID
@_STALL
@_PREFIX
@click.pass_obj
def info(
    settings: Settings,
    name: str | None,
    instance: str | None,
    stall: float,
    prefix: str,
) -> None:
    """Show the configuration of services, and their endpoints."""
    with settings.connect() as nc:
        found = nc.services.info(
            name, instance, timeout=settings.timeout, stall=stall, prefix=prefix
        )
    _check_found(found, name)
    if settings.json:
        write_json([info.to_wire() for info in found])
        return
    for info in sorted(found, key=_order):
        write_facts(
            f"{info.name} {info.version}",
            {
                "name": info.name,
                "version": info.version,
                "id": info.id,
                "description": info.description or None,
                "metadata": _pairs(info.metadata),
            },
        )
        for endpoint in info.endpoints:
            write_facts(f"endpoint {endpoint.name}", _facts(endpoint))


@service.command()
@_NAME
@_ID
@_STALL
@_PREFIX
@click.pass_obj
def stats(
    settings: Settings,
    name: str | None,
    instance: str | None,
    stall: float,
    prefix: str,
) -> None:
    """Show the statistics of services, endpoint by endpoint."""
    with settings.connect() as nc:
        found = nc.services.stats(
            name, instance, timeout=settings.timeout, stall=stall, prefix=prefix
        )
    _check_found(found, name)
    if settings.json:
        write_json([stats.to_wire() for stats in found])
        return
    write_table(
        ("name", "id", "endpoint", "requests", "errors", "mean", "last error"),
        [
            (
                *(stats.name, stats.id, endpoint.name),
                *(endpoint.num_requests, endpoint.num_errors),
                _duration(endpoint.average_processing_time),
                endpoint.last_error,
            )
            for stats in sorted(found, key=_order)
            for endpoint in stats.endpoints
        ],
    )


@service.command()
@_NAME
@_ID
@_STALL
@_PREFIX
@click.pass_obj
def ping(
    settings: Settings,
    name: str | None,
    instance: str | None,
    stall: float,
    prefix: str,
) -> None:
    """Show the running services, and how long each takes to answer."""
    with settings.connect() as nc:
        found = nc.services.ping(
            name, instance, timeout=settings.timeout, stall=stall, prefix=prefix
        )
    _check_found(found, name)
    if settings.json:
        write_json([{**ping.to_wire(), "rtt": ping.rtt} for ping in found])
        return
    write_table(
        ("name", "version", "id", "rtt"),
        [
            (ping.name, ping.version, ping.id, _duration(ping.rtt or 0))
            for ping in found
        ],
    )


@service.command()
@click.argument("name")
@click.option("--version", default="1.0.0", help="A semantic version. Default: 1.0.0.")
@click.option("--description", default="An echo", help="A description.")
@click.option("--subject", help="The subject to listen on. Default: NAME.echo.")
@click.option("--queue", "-q", default="q", help="The queue group. Default: q.")
@click.option(
    "--workers",
    type=Number(1, 1000),
    default=1,
    help="The number of threads. Default: 1.",
)
@_PREFIX
@click.pass_obj
def serve(
    settings: Settings,
    name: str,
    version: str,
    description: str,
    subject: str | None,
    queue: str,
    workers: int,
    prefix: str,
) -> None:
    """Run a service that answers each request with its payload.

    The service runs until Ctrl-C or SIGTERM. If you run several, they share the requests.
    """
    with (
        settings.connect(flow=True) as nc,
        nc.service(
            name, version, description=description, queue=queue, prefix=prefix
        ) as service,
    ):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        where = subject or f"{name}.echo"
        service.endpoint("echo", subject=where, workers=workers)(_echo)
        flush(nc, settings.timeout)
        if settings.json:
            write_line({"name": name, "id": service.id, "subject": where})
        else:
            echo(service.id)
            say(f"answering on {where}, Ctrl-C ends it")
        service.wait()


def _echo(request: jsync.Request) -> bytes:
    return request.data


def _check_found(found: Sequence[object], name: str | None) -> None:
    if not found and name is not None:
        raise errors.NoRespondersError(f"no service {name!r} answers")


def _order(one: ServiceInfo | ServicePing | ServiceStats) -> tuple[str, str]:
    return one.name, one.id


def _pairs(metadata: dict[str, str]) -> list[str] | None:
    return [f"{name}: {value}" for name, value in metadata.items()] or None


def _facts(endpoint: EndpointInfo) -> dict[str, Any]:
    return {
        "endpoint": endpoint.name,
        "subject": endpoint.subject,
        "queue": endpoint.queue_group or "none: each instance gets each request",
        "metadata": _pairs(endpoint.metadata),
    }


def _duration(seconds: float) -> str:
    """Write a duration in a readable unit."""
    for unit, of in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= of:
            return f"{seconds / of:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
