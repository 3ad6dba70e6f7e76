"""Tests of `jsync service`: ls, info, stats, ping and serve, against a real server."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from .processes import LONG, Process

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync as package
    from jsync import Request
    from jsync.server import LocalServer

    from .support import Jsync

pytestmark = pytest.mark.server


@pytest.fixture
def service(nc: package.Connection, unique: str) -> Iterator[package.Service]:
    with nc.service(
        unique, "1.2.0", description="\x1b[31mred", metadata={"region": "eu"}
    ) as service:
        service.endpoint("total", subject=f"{unique}.total")(lambda request: b"0")

        @service.endpoint("no", subject=f"{unique}.no", queue=None)
        def no(request: Request) -> None:
            request.error(404, "no\x1b such order")

        nc.flush()
        yield service


def test_ls_shows_each_instance(
    jsync: Jsync, service: package.Service, unique: str
) -> None:
    shown = jsync("service", "ls", unique)
    assert shown.rows == [[unique, "1.2.0", service.id, "2", "\\u001b[31mred"]]
    every = jsync("micro", "ls", "--stall", "1s")
    assert [unique, service.id] in [[row[0], row[2]] for row in every.rows]
    (listed,) = jsync("service", "ls", unique, "--json").json
    assert listed == service.info().to_wire()


def test_info_shows_the_setup_of_service_and_endpoints(
    jsync: Jsync, service: package.Service, unique: str
) -> None:
    shown = jsync("service", "info", unique, service.id)
    assert shown.lines == [
        f"name\t{unique}",
        "version\t1.2.0",
        f"id\t{service.id}",
        "description\t\\u001b[31mred",
        "metadata\tregion: eu",
        "endpoint\ttotal",
        f"subject\t{unique}.total",
        "queue\tq",
        "endpoint\tno",
        f"subject\t{unique}.no",
        "queue\tnone: each instance gets each request",
    ]
    assert jsync("service", "info", unique, "-j").json == [service.info().to_wire()]


def test_stats_show_the_requests_of_each_endpoint(
    jsync: Jsync, nc: package.Connection, service: package.Service, unique: str
) -> None:
    for name in ("total", "total", "no"):
        nc.request(f"{unique}.{name}")
    rows = jsync("service", "stats", unique).rows
    assert [[*row[:5], row[6]] for row in rows] == [
        [unique, service.id, "total", "2", "0", ""],
        [unique, service.id, "no", "1", "1", "404:no\\u001b such order"],
    ]
    assert all(row[5].split()[1] in {"µs", "ms", "s"} for row in rows)
    (stats,) = jsync("service", "stats", unique, service.id, "--json").json
    assert stats == service.stats().to_wire()


def test_ping_shows_the_round_trip(
    jsync: Jsync, service: package.Service, unique: str
) -> None:
    (row,) = jsync("service", "ping", unique).rows
    assert row[:3] == [unique, "1.2.0", service.id]
    (found,) = jsync("service", "ping", unique, "--json").json
    assert found["type"] == "io.nats.micro.v1.ping_response"
    assert 0 < found["rtt"] < LONG


def test_a_missing_service_is_not_found(jsync: Jsync, unique: str) -> None:
    for command in ("ls", "info", "stats", "ping"):
        missing = jsync("service", command, unique)
        assert (missing.code, missing.output) == (3, "")
        assert missing.errors == f"jsync: no service '{unique}' answers\n"
        assert jsync("service", command, "a.b").code == 2
    assert jsync("service", "ping", unique, "no.id").code == 2
    nothing = jsync("service", "ls", "--prefix", unique)
    assert (nothing.code, nothing.rows) == (0, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_echoes_until_a_signal(
    jsync: Jsync, server: LocalServer, nc: package.Connection, unique: str, number: int
) -> None:
    options = ("service", "serve", unique, "--workers", "2", "--json")
    with Process(server, *options) as process:
        told = json.loads(process.line())
        assert (told["name"], told["subject"]) == (unique, f"{unique}.echo")
        assert nc.request(told["subject"], b"hello").data == b"hello"
        (row,) = jsync("service", "ping", unique, told["id"]).rows
        assert row[0] == unique
        os.kill(process.pid, number)
        assert process.finish() == (130, "", "")
    assert nc.services.ping(unique) == []


def test_an_invalid_service_is_a_usage_error(jsync: Jsync, unique: str) -> None:
    assert jsync("service", "serve", "a.b").code == 2
    assert jsync("service", "serve", unique, "--version", "1").code == 2
    assert jsync("service", "serve", unique, "--workers", "0").code == 2
