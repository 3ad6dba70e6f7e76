"""`jsync pipeline status`, without Spark: no query, and entries that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.spark.monitoring.metrics import QueryMetrics
from jsync.spark.monitoring.status_store import open_status_bucket, write_status

from .support import Jsync

if TYPE_CHECKING:
    import jsync as package
    from jsync.server import LocalServer


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
