"""Tests that services and clients of jsync, nats-py and nats.go find and answer each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import TYPE_CHECKING, Any

import msgspec
import nats
import nats.micro
import pytest
from nats.micro.request import Request as TheirRequest, ServiceError as TheirError
from nats.micro.service import (
    ServiceInfo as TheirInfo,
    ServicePing as TheirPing,
    ServiceStats as TheirStats,
)

import jsync
from jsync import errors

from .go_program import GoClient, nats_command
from .test_nats_py import sent, theirs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server


class Order(msgspec.Struct):
    quantity: int


@pytest.fixture
def ours(nc: jsync.Connection, unique: str) -> Iterator[jsync.Service]:
    """A service of jsync with the typed endpoint `<name>.total`, and `<name>.no`, which fails."""
    with nc.service(
        unique,
        "1.2.0",
        description="of jsync",
        metadata={"by": "jsync"},
        stats_handler=lambda endpoint: {"endpoint": endpoint.name},
    ) as service:
        group = service.group(unique)

        @group.endpoint("total", workers=2)
        def total(order: Order) -> Order:
            return Order(order.quantity * 100)

        @group.endpoint("no", queue="own")
        def no(request: jsync.Request) -> None:
            request.error(404, "no such order", b"more")

        nc.flush()
        yield service


@pytest.fixture
def go(server: LocalServer) -> Iterator[GoClient]:
    with GoClient(server.url) as client:
        yield client


# nats.go --------------------------------------------------------------------------------


def test_nats_go_reads_all_that_our_service_tells(
    go: GoClient, ours: jsync.Service, unique: str
) -> None:
    go.ask("call", key=f"{unique}.total", value=b'{"quantity":3}')
    go.ask("call", key=f"{unique}.no", value=b"")
    read = {
        verb: go.ask("discover", key=f"$SRV.{verb}.{unique}.{ours.id}")["told"]
        for verb in ("PING", "INFO", "STATS")
    }
    identity = {
        "name": unique,
        "id": ours.id,
        "version": "1.2.0",
        "metadata": {"by": "jsync"},
    }
    assert read["PING"] == {**identity, "type": "io.nats.micro.v1.ping_response"}
    info = ours.info().to_wire()
    assert read["INFO"] == info
    assert info["description"] == "of jsync"
    assert [e["queue_group"] for e in info["endpoints"]] == ["q", "own"]
    stats = ours.stats().to_wire()
    # nats.go parses the time and formats it again.
    assert read["STATS"] == stats
    assert [e["num_requests"] for e in stats["endpoints"]] == [1, 1]
    assert [e["num_errors"] for e in stats["endpoints"]] == [0, 1]
    assert [e["data"]["endpoint"] for e in stats["endpoints"]] == ["total", "no"]


def test_nats_go_calls_our_service(
    go: GoClient, ours: jsync.Service, unique: str
) -> None:
    answer = go.ask("call", key=f"{unique}.total", value=b'{"quantity":3}')
    assert answer["entries"][0]["value"] == b'{"quantity":300}'
    assert "headers" not in answer
    answer = go.ask("call", key=f"{unique}.no", value=b"")
    assert answer["entries"][0]["value"] == b"more"
    assert answer["headers"] == {
        "Nats-Service-Error": ["no such order"],
        "Nats-Service-Error-Code": ["404"],
    }
    answer = go.ask("call", key=f"{unique}.total", value=b'{"quantity":"3"}')
    assert answer["headers"]["Nats-Service-Error-Code"] == ["400"]
    assert "$.quantity" in answer["headers"]["Nats-Service-Error"][0]


def test_we_find_and_call_a_nats_go_service(
    go: GoClient, nc: jsync.Connection, unique: str
) -> None:
    assert "error" not in go.ask("serve", bucket=unique)
    (ping,) = nc.services.ping(unique)
    assert (ping.name, ping.version, ping.metadata) == (unique, "2.1.0", {"by": "go"})
    assert nc.services.call(f"{unique}.echo", b"abc").data == b"abc"
    with pytest.raises(errors.ServiceError) as raised:
        nc.services.call(f"{unique}.no")
    error = raised.value
    assert (error.code, error.description, error.data) == (
        404,
        "no such order",
        b"more",
    )
    (info,) = nc.services.info(unique, ping.id)
    assert info.description == "of nats.go"
    assert [(e.name, e.subject, e.queue_group, e.metadata) for e in info.endpoints] == [
        ("echo", f"{unique}.echo", "q", {}),
        ("no", f"{unique}.no", "own", {}),
    ]
    (stats,) = nc.services.stats(unique)
    assert stats.started is not None
    assert [(e.num_requests, e.num_errors) for e in stats.endpoints] == [(1, 0), (1, 1)]
    assert stats.endpoints[1].last_error == "404:no such order"
    assert [e.data for e in stats.endpoints] == [
        {"endpoint": "echo"},
        {"endpoint": "no"},
    ]
    go.ask("stop")
    assert nc.services.ping(unique) == []


def test_both_share_the_requests_of_one_queue_group(
    go: GoClient, nc: jsync.Connection, unique: str
) -> None:
    with nc.service(unique, "1.2.0") as service:
        service.endpoint("echo", subject=f"{unique}.echo")(lambda request: b"ours")
        nc.flush()
        go.ask("serve", bucket=unique)
        replies = {nc.request(f"{unique}.echo", b"theirs").data for _ in range(200)}
        assert replies == {b"ours", b"theirs"}
        assert len(nc.services.ping(unique)) == 2
        asked = [stats.endpoints[0].num_requests for stats in nc.services.stats(unique)]
        assert sum(asked) == 200
    go.ask("stop")


def nats_micro(server: LocalServer, *arguments: str) -> str:
    """Return the output of `nats micro`."""
    command = [str(nats_command()), "--server", server.url, "--no-context", "micro"]
    return subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    ).stdout


@pytest.mark.bulk
def test_the_nats_command_reads_and_calls_our_service(
    server: LocalServer, ours: jsync.Service, unique: str
) -> None:
    answer = nats_micro(server, "request", unique, "total", '{"quantity":3}')
    assert answer.strip() == '{"quantity":300}'
    listed = nats_micro(server, "ls", unique)
    assert all(word in listed for word in (unique, "1.2.0", ours.id, "of jsync"))
    info = nats_micro(server, "info", unique, ours.id)
    assert all(word in info for word in (f"{unique}.total", "by: jsync", "own"))
    assert '"endpoint": "total"' in info
    (told,) = json.loads(nats_micro(server, "stats", unique, "--json"))
    assert told["endpoints"][0]["num_requests"] == 1
    assert unique in nats_micro(server, "ping", unique)


# nats-py --------------------------------------------------------------------------------


def test_nats_py_reads_all_that_our_service_tells(
    server: LocalServer, ours: jsync.Service, unique: str
) -> None:
    async def ask(other: Any) -> list[Any]:
        return [
            msgspec.json.decode((await other.request(f"$SRV.{verb}.{unique}")).data)
            for verb in ("PING", "INFO", "STATS")
        ]

    ping, info, stats = theirs(server, ask)
    assert TheirPing.from_dict(ping).id == ours.id
    read = TheirInfo.from_dict(info)
    assert read.to_dict() == info == ours.info().to_wire()
    counted = TheirStats.from_dict(stats)
    assert counted.started.year > 2000
    assert [endpoint.data for endpoint in counted.endpoints] == [
        {"endpoint": "total"},
        {"endpoint": "no"},
    ]


def test_nats_py_calls_our_service(
    server: LocalServer, ours: jsync.Service, unique: str
) -> None:
    async def ask(other: Any) -> tuple[Any, Any]:
        return (
            await other.request(f"{unique}.total", b'{"quantity":3}'),
            await other.request(f"{unique}.no"),
        )

    total, no = theirs(server, ask)
    assert total.data == b'{"quantity":300}'
    assert no.data == b"more"
    assert no.headers["Nats-Service-Error"] == "no such order"
    assert no.headers["Nats-Service-Error-Code"] == "404"


def test_we_find_and_call_a_nats_py_service(
    server: LocalServer, nc: jsync.Connection, unique: str
) -> None:
    def use() -> None:
        (ping,) = nc.services.ping(unique)
        assert (ping.version, ping.metadata) == ("3.0.1", {"by": "nats-py"})
        assert nc.services.call(f"{unique}.echo", b"abc").data == b"abc"
        with pytest.raises(errors.ServiceError, match="404: no such order"):
            nc.services.call(f"{unique}.no")
        (info,) = nc.services.info(unique)
        assert [endpoint.subject for endpoint in info.endpoints] == [
            f"{unique}.echo",
            f"{unique}.no",
        ]
        (stats,) = nc.services.stats(unique)
        assert stats.started is not None
        counts = [(e.num_requests, e.num_errors) for e in stats.endpoints]
        assert counts == [(1, 0), (1, 1)]

    theirs(server, lambda other: serving(other, unique, use))


async def serving(other: Any, name: str, use: Callable[[], object]) -> None:
    """Run a service of nats-py while `use` runs on a thread."""

    async def echo(request: TheirRequest) -> None:
        await request.respond(request.data)

    async def no(request: TheirRequest) -> None:
        raise TheirError("404", "no such order")

    service = await nats.micro.add_service(
        other, name=name, version="3.0.1", metadata={"by": "nats-py"}
    )
    group = service.add_group(name=name)
    await group.add_endpoint(name="echo", handler=echo)
    await group.add_endpoint(name="no", handler=no)
    await sent(other)
    try:
        await asyncio.to_thread(use)
    finally:
        await service.stop()
