"""Tests of readers with lost servers and limited permissions, without Spark."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.spark.connection import close_connections

from ..support.accounts import Permissions, password_config
from .campaign import KILLS
from .engine import batch, latest, sequences, streaming
from .support import fill, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ..conftest import StartServer
    from ..support.servers import Cluster


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_connections()


def test_killing_the_server_loses_and_repeats_nothing(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server(store_dir=tmp_path)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="A", subjects=["A.>"], allow_direct=True)
        fill(js, stream, *([bytes(1 << 17)] * 300))
    options = {"nats.servers": server.url, "stream": "A", "startingOffsets": "earliest"}
    for mode in ("consumer", "direct"):
        reader = batch(options, readMode=mode)
        (part,) = reader.partitions()
        reading = reader.read(part)
        found = next(reading)["sequence"].to_pylist()
        assert len(found) < 300
        server.kill()
        server.start()
        for more in reading:
            found += more["sequence"].to_pylist()
        assert found == list(range(1, 301))
    query = streaming(options)
    start = query.initialOffset()
    server.kill()
    server.start()
    end = latest(query, start)
    server.kill()
    server.start()
    assert len(sequences(query, query.partitions(start, end))) == 300


def test_the_wait_for_a_server_is_an_option(
    own_server: StartServer, tmp_path: Path
) -> None:
    server = own_server(store_dir=tmp_path)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="A", subjects=["A.>"])
        fill(js, stream, *numbers(10))
    options = {"nats.servers": server.url, "stream": "A", "nats.timeout": "0.2"}
    reader = batch(options, **{"nats.retryTimeout": "0.3"})
    patient = batch(options, **{"nats.retryTimeout": "60"})
    parts = reader.partitions()
    server.kill()
    with pytest.raises((errors.TimeoutError, errors.ConnectionLostError)):
        sequences(reader, parts)
    # A task that begins during the outage, in a process without a connection, waits as well.
    close_connections()
    started = threading.Timer(0.5, server.start)
    started.start()
    try:
        assert sequences(patient, parts) == list(range(1, 11))
    finally:
        started.join()


NEEDED = (
    "$JS.API.STREAM.INFO.A",
    "$JS.API.STREAM.MSG.GET.A",
    "$JS.API.CONSUMER.CREATE.A.>",
    "$JS.API.CONSUMER.INFO.A.*",
    "$JS.API.CONSUMER.MSG.NEXT.A.*",
    "$JS.API.CONSUMER.DELETE.A.*",
    "$JS.API.DIRECT.GET.A",
)


def test_file_credentials_with_few_permissions_are_enough(
    own_server: StartServer, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    allowed = Permissions(publish_allow=NEEDED, subscribe_allow=("_INBOX.>",))
    server = own_server(
        config=password_config({"all": "x", "ann": "s3cret"}, ann=allowed)
    )
    with jsync.connect(server.url, user="all", password="x") as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="A", subjects=["A.>"], allow_direct=True)
        fill(js, stream, *numbers(10))
        stream.delete_message(10)
    options = {
        "nats.servers": server.url,
        "nats.user": "ann",
        "nats.passwordFile": str(password),
        "stream": "A",
    }
    for mode in ("consumer", "direct"):
        reader = batch(options, readMode=mode, subjects="A.0,A.1")
        assert sequences(reader, reader.partitions()) == [1, 2, 4, 5, 7, 8]
    close_connections()
    password.write_text("other")
    with pytest.raises(errors.AuthenticationError) as refused:
        batch(options).partitions()
    assert "other" not in str(refused.value)


@pytest.mark.parametrize("missing", ["STREAM.INFO", "CONSUMER.CREATE", "MSG.NEXT"])
def test_the_driver_reports_a_missing_permission(
    own_server: StartServer, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    allowed = Permissions(
        publish_allow=tuple(subject for subject in NEEDED if missing not in subject),
        subscribe_allow=("_INBOX.>",),
    )
    server = own_server(
        config=password_config({"all": "x", "ann": "s3cret"}, ann=allowed)
    )
    with jsync.connect(server.url, user="all", password="x") as nc:
        nc.jetstream().create_stream(name="A", subjects=["A.>"])
    monkeypatch.setenv("ANNS_PASSWORD", "s3cret")
    options = {
        "nats.servers": server.url,
        "nats.user": "ann",
        "nats.passwordEnv": "ANNS_PASSWORD",
        "stream": "A",
    }
    with pytest.raises(errors.PermissionsError, match=missing) as refused:
        batch(options).partitions()
    assert "s3cret" not in str(refused.value)


def test_a_consumer_unknown_to_its_server_is_retried(
    nc: jsync.Connection,
    js: jsync.JetStream,
    unique: str,
    server: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    fill(js, js.stream(unique), b"1")
    asked: list[str] = []
    request = jsync.Connection.request

    def late(self: jsync.Connection, subject: str, *args: Any, **options: Any) -> Any:
        if ".MSG.NEXT." in subject:
            asked.append(subject)
            if len(asked) < 3:  # as of a server in a cluster
                raise errors.NoRespondersError(
                    f"no responders for {subject!r}: no client subscribes to it"
                )
        return request(self, subject, *args, **options)

    monkeypatch.setattr(jsync.Connection, "request", late)
    options = {"nats.servers": server.url, "stream": unique, "readMode": "consumer"}
    assert batch(options).partitions()
    assert len(asked) == 3


@pytest.mark.cluster
@pytest.mark.fault
@pytest.mark.parametrize("kill", range(KILLS))
def test_a_lost_leader_loses_and_repeats_no_message(
    cluster: Cluster, unique: str, kill: int
) -> None:
    with jsync.connect(cluster.urls) as nc:
        js = nc.jetstream(timeout=20)
        stream = js.create_stream(
            name=unique, subjects=[f"{unique}.>"], num_replicas=3, allow_direct=True
        )
        fill(js, stream, *([bytes(1 << 17)] * 200))
        options = {
            "nats.servers": ",".join(cluster.urls),
            "stream": unique,
        }
        reader = batch(options, subjects=f"{unique}.0")
        (part,) = reader.partitions()
        reading = reader.read(part)
        found = next(reading)["sequence"].to_pylist()
        leader = cluster.stream_leader(unique)
        leader.kill()
        for more in reading:
            found += more["sequence"].to_pylist()
        leader.start()
        cluster.wait_until_ready()
        assert found == list(range(1, 201, 3))
        stream.delete()


def test_a_context_names_the_server(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "here.json").write_text(json.dumps({"url": server.url}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    fill(js, stream, *numbers(3))
    given = {"nats.context": "here", "stream": stream.name}
    reader = batch(given)
    assert sequences(reader, reader.partitions()) == [1, 2, 3]
    close_connections()
    with pytest.raises(
        errors.ConfigError, match=r"nats\.context and nats\.servers exclude"
    ):
        batch({**given, "nats.servers": server.url})
    with pytest.raises(errors.ConfigError, match="nowhere"):
        batch({**given, "nats.context": "nowhere"}).partitions()
