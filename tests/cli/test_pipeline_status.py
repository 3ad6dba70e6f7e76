"""`jsync pipeline status`, without Spark: no query, and entries that are none."""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

import jsync as package
from jsync.spark.monitoring.metrics import QueryMetrics, StreamMetrics
from jsync.spark.monitoring.status_store import open_status_bucket, write_status

from .processes import Process
from .support import Jsync

if TYPE_CHECKING:
    from jsync.server import LocalServer

    from ..conftest import StartServer


def test_an_empty_bucket_says_how_queries_get_there(
    server: LocalServer, unique: str
) -> None:
    jsync = Jsync(server)
    ended = jsync("pipeline", "status", "--bucket", unique)
    assert (ended.code, ended.lines) == (0, [])
    assert f"no query in the bucket {unique}" in ended.errors
    assert "jsync.spark.monitor" in ended.errors
    assert jsync("pipeline", "status", "--bucket", unique, "--json").json == []


DEEP = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    "bad", [b"{", b'{"id":"\xff"}', DEEP], ids=["cut", "binary", "deep"]
)
def test_an_unreadable_entry_hides_no_query(
    server: LocalServer, js: package.JetStream, unique: str, bad: bytes
) -> None:
    board = open_status_bucket(js, unique)
    write_status(board, QueryMetrics(id="good"))
    board.put("bad", bad)
    found = Jsync(server)("pipeline", "status", "--bucket", unique, "--json").json
    assert [query["id"] for query in found] == ["good"]
    js.delete_key_value(unique)


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_page_shows_queries_and_their_streams(
    own_server: StartServer, unique: str
) -> None:
    server = own_server()
    arguments = ("pipeline", "status", "--bucket", unique, "--http", "127.0.0.1:0")
    with package.connect(server.url) as nc, Process(server, *arguments) as process:
        js = nc.jetstream()
        stream = js.create_stream(name="ORDERS", subjects=["orders"])
        for _ in range(7):
            js.publish("orders", b"")
        created = stream.info().created
        assert created is not None
        board = open_status_bucket(js, unique)
        streams = {"ORDERS": StreamMetrics(created=created.isoformat(), next=3)}
        write_status(board, QueryMetrics(id="1", name="<late>", streams=streams))
        line = process.await_words("on port")
        url = f"http://127.0.0.1:{line.split('port ')[1].split(',')[0]}"
        code, page = fetch(f"{url}/")
        assert code == 200
        assert "&lt;late&gt;" in page
        assert "<td>ORDERS</td><td>3</td><td>5</td>" in page
        assert "<late>" not in page
        assert 'lag_messages{query="<late>"' in fetch(f"{url}/metrics")[1]
        assert fetch(f"{url}/readyz") == (200, "ok\n")
        error = "StreamNotFoundError: <gone>"
        write_status(board, QueryMetrics(id="2", state="failed", error=error))
        assert "StreamNotFoundError: &lt;gone&gt;" in fetch(f"{url}/")[1]
        assert fetch(f"{url}/readyz")[0] == 503
        assert fetch(f"{url}/other") == (404, "/, /livez, /readyz or /metrics\n")
        nc.close()
        server.kill()
        code, reason = fetch(f"{url}/")
        assert (code, bool(reason)) == (503, True)
        process.interrupt()
        assert process.finish()[0] == 130


def test_a_page_takes_no_options_of_output(server: LocalServer) -> None:
    ended = Jsync(server)("pipeline", "status", "--streams", "--http", "127.0.0.1:0")
    assert ended.code == 2
    assert "--streams and --http are mutually exclusive" in ended.errors
