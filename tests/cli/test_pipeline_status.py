"""`jsync pipeline status`, where no query was ever watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .support import Jsync

if TYPE_CHECKING:
    from jsync.server import LocalServer


def test_a_bucket_without_queries_says_how_they_get_there(
    server: LocalServer, unique: str
) -> None:
    jsync = Jsync(server)
    ended = jsync("pipeline", "status", "--bucket", unique)
    assert (ended.code, ended.lines) == (0, [])
    assert f"no query in the bucket {unique}" in ended.errors
    assert "jsync.spark.monitor" in ended.errors
    assert jsync("pipeline", "status", "--bucket", unique, "--json").json == []
