"""`jsync service`: find services, show them, and run one."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from jsync import Services, errors

from ..groups import CommandGroup
from ..params.settings import flush
from ..params.values import DURATION, Number
from ..ui.errors import print_error
from ..ui.output import echo, write_json, write_key_values, write_line, write_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    import jsync
    from jsync import EndpointInfo, ServiceInfo, ServicePing, ServiceStats

    from ..params.settings import Settings

    Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

Answer = TypeVar("Answer")

_NAME: Final = click.argument("name", required=False)
_ID: Final = click.argument("instance", required=False, metavar="[ID]")
_STALL: Final = click.option(
    "--stall",
    type=DURATION,
    default=0.3,
    help="The time to wait for one more reply. Default: 0.3s.",
)
_PREFIX: Final = click.option(
    "--prefix", default="$SRV", help="The prefix of control subjects. Default: $SRV."
)


@click.group(cls=CommandGroup)
def service() -> None:
    """Find services, and run one."""


def _service_options(*arguments: Decorator) -> Decorator:
    """Add these arguments, and the options of all commands about services."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        command = _STALL(_PREFIX(click.pass_obj(command)))
        for argument in reversed(arguments):
            command = argument(command)
        return command

    return decorate


def _call_services(
    settings: Settings,
    ask: Callable[..., list[Answer]],
    name: str | None,
    instance: str | None = None,
    **options: Any,
) -> list[Answer]:
    """Call a method of `jsync.Services`.

    Raises `NoRespondersError` if NAME is given and no service of that name answers.
    """
    with settings.connect() as nc:
        found = ask(nc.services, name, instance, timeout=settings.timeout, **options)
    if not found and name is not None:
        raise errors.NoRespondersError(f"no service {name!r} answers")
    return found


@service.command("ls", example="jsync service ls")
@_service_options(_NAME)
def list_(settings: Settings, **options: Any) -> None:
    """List the instances of all services, or of one NAME."""
    found = _call_services(settings, Services.info, **options)
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


@service.command(example="jsync service info hello")
@_service_options(_NAME, _ID)
def info(settings: Settings, **options: Any) -> None:
    """Show the configuration of services, and their endpoints."""
    found = _call_services(settings, Services.info, **options)
    if settings.json:
        write_json([info.to_wire() for info in found])
        return
    for info in sorted(found, key=_order):
        write_key_values(
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
            write_key_values(f"endpoint {endpoint.name}", _endpoint_fields(endpoint))


@service.command(example="jsync service stats hello")
@_service_options(_NAME, _ID)
def stats(settings: Settings, **options: Any) -> None:
    """Show the statistics of services, endpoint by endpoint."""
    found = _call_services(settings, Services.stats, **options)
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


@service.command(example="jsync service ping hello")
@_service_options(_NAME, _ID)
def ping(settings: Settings, **options: Any) -> None:
    """Show the running services, and how long each takes to answer."""
    found = _call_services(settings, Services.ping, **options)
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


@service.command(example="jsync service serve hello --workers 4")
@click.argument("name")
@click.option("--version", default="1.0.0", help="A semantic version. Default: 1.0.0.")
@click.option("--description", default="An echo", help="A description.")
@click.option("--subject", help="The subject to listen on. Default: NAME.echo.")
@click.option(
    "--queue", "-q", default="q", help="The queue group of the service. Default: q."
)
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
            print_error(f"answering on {where}, Ctrl-C ends it")
        service.wait()


def _echo(request: jsync.Request) -> bytes:
    return request.data


def _order(one: ServiceInfo | ServicePing | ServiceStats) -> tuple[str, str]:
    return one.name, one.id


def _pairs(metadata: dict[str, str]) -> list[str] | None:
    return [f"{name}: {value}" for name, value in metadata.items()] or None


def _endpoint_fields(endpoint: EndpointInfo) -> dict[str, Any]:
    return {
        "endpoint": endpoint.name,
        "subject": endpoint.subject,
        "queue": endpoint.queue_group or "none: each instance gets each request",
        "metadata": _pairs(endpoint.metadata),
    }


def _duration(seconds: float) -> str:
    """Return a duration in s, ms or µs."""
    for unit, of in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= of:
            return f"{seconds / of:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
