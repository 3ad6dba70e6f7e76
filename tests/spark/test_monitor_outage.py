"""Tests of the monitor whose server goes away, refuses it, or holds records of others.

The streaming query is made up, so no JVM is needed.
"""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jsync
from jsync.spark import monitor, query_statuses
from jsync.spark.monitoring.status_store import BUCKET

from ..support.servers import monitor as page, wait_for
from ..support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

    from jsync.server import LocalServer
    from jsync.spark import Monitor

    from ..conftest import StartServer


def session(stream: jsync.Stream, rows: int = 0) -> Any:
    """Return a session with one query, which has read some rows of a stream."""
    created = stream.cached_info.created
    assert created is not None
    place = {"created": created.isoformat(), "next": 1}
    progress = {
        "runId": "r",
        "name": "q",
        "batchId": 0,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "sources": [{"endOffset": json.dumps({"streams": {stream.name: place}})}],
    }

    def begin(listener: Any) -> None:
        listener.events.put(("progress", "q1", progress))

    streams = SimpleNamespace(
        active=(), addListener=begin, removeListener=lambda _: None
    )
    return SimpleNamespace(sparkContext=None, streams=streams)


@contextlib.contextmanager
def watching(
    patch: pytest.MonkeyPatch,
    stream: jsync.Stream,
    options: dict[str, str],
    **more: Any,
) -> Iterator[Monitor]:
    """A monitor that measures often, after its first measurement."""
    patch.setattr("jsync.spark.monitoring.monitor.PAUSE", 0.02)
    with monitor(session(stream), options, interval=0.1, **more) as found:
        wait_for(lambda: bool(found.queries()))
        yield found


def await_measurement(found: Monitor) -> None:
    """Wait until the query is measured once more."""
    before = found.queries()[0].time
    wait_for(lambda: found.queries()[0].time > before and found.is_ready())


def clients(server: LocalServer) -> set[int]:
    """Return the ids of the connections that a server has."""
    return {each["cid"] for each in page(server, "connz")["connections"]}


def test_a_monitor_is_ready_while_it_measures(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server()
    with jsync.connect(server.url) as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["s"])
    options = {"nats.servers": server.url, "nats.timeout": "0.2"}
    with watching(monkeypatch, stream, options) as found:
        await_measurement(found)
        assert "jsync_spark_measured_timestamp_seconds" in found.prometheus_text()
        server.kill()
        wait_for(lambda: not found.is_ready())
        assert found.is_alive()
        server.start()
        await_measurement(found)


def test_counters_wait_for_those_of_earlier_runs(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is away when the monitor sees the query first."""
    server = own_server()
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="S", subjects=["s"])
        board = js.create_key_value(bucket=BUCKET)
        board.put("q1", b'{"id":"q1","batches":9,"rows":90,"malformed":4}')
        monkeypatch.setattr("jsync.spark.monitoring.monitor.PAUSE", 0.02)
        spark = session(stream, 7)
        begin = spark.streams.addListener

        def interrupted(listener: Any) -> None:
            server.kill()
            begin(listener)

        spark.streams.addListener = interrupted
        options = {"nats.servers": server.url, "nats.timeout": "0.2"}
        with monitor(spark, options, interval=0.1) as found:
            wait_for(lambda: bool(found.queries()))
            (query,) = found.queries()
            assert (query.is_complete, query.rows, query.batch) == (False, 7, 0)
            text = found.prometheus_text()
            assert "query_running{" in text
            totals = {part.split("{")[0] for part in text.split() if "_total{" in part}
            # The checkpoint has this one.
            assert totals == {"jsync_spark_missing_total"}
            server.start()
            await_measurement(found)
            assert 'jsync_spark_rows_total{query="q"} 97' in found.prometheus_text()
            assert 'jsync_spark_batches_total{query="q"} 10' in found.prometheus_text()
        (kept,) = query_statuses(js)
    assert (kept.rows, kept.batches, kept.malformed, kept.batch) == (97, 10, 4, 0)


def test_a_monitor_connects_again_with_a_new_password(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "password"

    def config(password: str) -> str:
        file.write_text(password)
        return f"authorization {{ users: [{{user: a, password: {password}}}] }}"

    server = own_server(config=config("one"), args=["-m", "-1"])
    with jsync.connect(server.url, user="a", password="one") as nc:
        stream = nc.jetstream().create_stream(name="S", subjects=["s"])
    options = {
        "nats.servers": server.url,
        "nats.timeout": "0.2",
        "nats.user": "a",
        "nats.passwordFile": str(file),
    }
    with watching(monkeypatch, stream, options) as found:
        before = clients(server)
        server.reload(config("two"))
        wait_for(lambda: bool(clients(server) - before), SOON)
        await_measurement(found)


def test_a_damaged_record_does_not_end_the_monitor(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
    unique: str,
) -> None:
    bucket = js.create_key_value(bucket=f"{unique}fence")
    bucket.put("query.q1.committed", b"no entry")
    options = {"nats.servers": server.url}
    more = {"fence_bucket": bucket.bucket, "bucket": f"{unique}progress"}
    with watching(monkeypatch, stream, options, **more) as found:
        await_measurement(found)
        await_measurement(found)
    js.delete_key_value(f"{unique}fence")
    js.delete_key_value(f"{unique}progress")


def test_a_key_of_others_hides_no_query(js: jsync.JetStream, unique: str) -> None:
    board = js.create_key_value(bucket=unique)
    board.put("q1", b'{"id": "q1"}')
    for key in ("a$b", "a.>", "q2", "AAA"):
        with contextlib.suppress(jsync.errors.Error):
            js.publish(f"$KV.{unique}.{key}", b'{"id": 1}')
    assert [query.id for query in query_statuses(js, unique)] == ["q1"]
    js.delete_key_value(unique)
