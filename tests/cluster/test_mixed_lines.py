"""Tests of a cluster during an upgrade: one server of the line 2.10, and two of the newest."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.jetstream import api as api_module
from jsync.jetstream.keyvalue import bucket as bucket_module
from jsync.jetstream.publishing.publish import publish

from ..matrix.lines import LINES, binary_of
from ..support.servers import Cluster, wait_for
from ..support.threads import Recorder, Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def mixed() -> Iterator[Cluster]:
    cluster = Cluster(binary=binary_of(LINES[-1]))
    old = cluster.servers[0]
    old._binary = binary_of("2.10")
    with cluster:
        while cluster.meta_leader() is old:  # it could not create what the tests need
            old.kill()
            wait_for(lambda: cluster.meta_leader() is not old)
            old.start()
        yield cluster


@pytest.fixture
def old(mixed: Cluster) -> LocalServer:
    return mixed.servers[0]


@pytest.fixture
def js(mixed: Cluster) -> Iterator[jsync.JetStream]:
    """JetStream, through a new server."""
    with jsync.connect(mixed.servers[1].url) as nc:
        yield nc.jetstream(timeout=10)


@pytest.fixture
def bucket(js: jsync.JetStream, unique: str) -> Iterator[jsync.KeyValue]:
    made: list[jsync.KeyValue] = []

    def create() -> bool:
        # After their start, servers of 2.10 take some peers for offline.
        with contextlib.suppress(errors.Error):
            made.append(
                js.create_key_value(bucket=unique, replicas=3, limit_marker_ttl=2)
            )
        return bool(made)

    wait_for(create, 60)
    yield made[0]
    with contextlib.suppress(errors.Error):
        js.delete_key_value(unique)


def lead(cluster: Cluster, js: jsync.JetStream, stream: str, *, old: bool) -> None:
    """Have the old server lead the stream, or a new one."""

    def done() -> bool:
        if (cluster.stream_leader(stream) is cluster.servers[0]) is old:
            return True
        with contextlib.suppress(errors.Error):
            js.stream(stream).leader_step_down()
        return False

    wait_for(done, 60)


def create_stream(js: jsync.JetStream, name: str, **options: Any) -> None:
    """Create a stream with an option that the old server does not know."""
    # If the old server leads the new stream, its answer leaves the option out.
    with contextlib.suppress(errors.UnsupportedFeatureError):
        js.create_stream(name=name, subjects=[f"{name}.>"], num_replicas=3, **options)


def test_an_old_leader_refuses_keys_that_expire(
    mixed: Cluster, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stream = f"KV_{bucket.bucket}"
    lead(mixed, js, stream, old=True)
    for _ in range(2):
        with pytest.raises(errors.UnsupportedFeatureError, match=r"node-1.*step_down"):
            bucket.create("session", b"x", ttl=2)
    assert js.stream(stream).info().state.last_seq == 0
    with pytest.raises(errors.ConfigError):
        bucket.create("session", b"x", ttl=0.5)
    bucket.create("other", b"x")
    lead(mixed, js, stream, old=False)
    bucket.create("session", b"x", ttl=2)
    with pytest.raises(errors.KeyExistsError):
        bucket.create("session", b"x", ttl=2)
    wait_for(lambda: list(bucket.keys()) == ["other"])


def test_a_leader_change_removes_the_lasting_key(
    mixed: Cluster,
    js: jsync.JetStream,
    bucket: jsync.KeyValue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = f"KV_{bucket.bucket}"

    def slowly(*arguments: object) -> object:
        lead(mixed, js, stream, old=True)
        return publish(*arguments)  # type: ignore[arg-type]

    lead(mixed, js, stream, old=False)
    monkeypatch.setattr(api_module, "LEADER_CHECK_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(bucket_module, "publish", slowly)
        with pytest.raises(errors.UnsupportedFeatureError):
            bucket.create("session", b"x", ttl=2, timeout=60)
    assert list(bucket.keys()) == []


def test_locks_report_an_old_leader(
    mixed: Cluster, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stream = f"KV_{bucket.bucket}"
    lead(mixed, js, stream, old=False)
    holder = bucket.lock("job", ttl=3)
    assert holder.acquire()
    waiter = Thread(lambda: bucket.lock("job", ttl=3).acquire())
    lead(mixed, js, stream, old=True)
    with pytest.raises(errors.UnsupportedFeatureError):
        waiter.result()
    with pytest.raises(errors.UnsupportedFeatureError):
        bucket.elect("job", ttl=3)
    # The holder keeps its lock, and gives it back.
    assert holder.held
    holder.release()
    lead(mixed, js, stream, old=False)
    assert bucket.lock("job", ttl=3, on_lost=Recorder()).acquire(30)


def test_an_old_leader_refuses_markers_that_expire(
    mixed: Cluster, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stream = f"KV_{bucket.bucket}"
    bucket.put("session", b"x")
    lead(mixed, js, stream, old=True)
    with pytest.raises(errors.UnsupportedFeatureError, match=r"node-1.*step_down"):
        bucket.purge("session", ttl=2)
    assert bucket.get("session").value == b"x"
    bucket.purge("session")
    lead(mixed, js, stream, old=False)
    bucket.purge("session", ttl=2)
    wait_for(lambda: bucket.status().values == 0)


def test_locks_are_freed_where_all_servers_are_old(
    mixed: Cluster, old: LocalServer, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stream = f"KV_{bucket.bucket}"
    lead(mixed, js, stream, old=False)
    with jsync.connect(old.url) as nc:
        mine = nc.jetstream(timeout=10).key_value(bucket.bucket)
        holder = mine.lock("job", ttl=3600)
        assert holder.acquire()
        lead(mixed, js, stream, old=True)
        # As if an old server answered for the cluster, too, after a downgrade.
        mine._api._checked_version = nc.server_info.server_id, (2, 10)
        holder.release()
    assert list(bucket.keys()) == []
    lead(mixed, js, stream, old=False)
    assert bucket.lock("job", ttl=3).acquire(0)


def test_publish_tells_that_a_leader_ignored_ttl(
    mixed: Cluster, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stream = f"KV_{bucket.bucket}"
    subject = f"$KV.{bucket.bucket}.session"
    lead(mixed, js, stream, old=True)
    with pytest.raises(errors.UnsupportedFeatureError, match="1 is stored without"):
        js.publish(subject, b"x", ttl=2)
    js.publish(subject, b"x")
    lead(mixed, js, stream, old=False)
    assert js.publish(subject, b"x", ttl=2).seq == 3


def test_an_old_leader_refuses_schedules(
    mixed: Cluster, js: jsync.JetStream, unique: str
) -> None:
    create_stream(js, unique, allow_msg_schedules=True)
    stream = js.stream(unique)
    lead(mixed, js, unique, old=False)
    schedules = js.schedules(unique)
    lead(mixed, js, unique, old=True)
    with pytest.raises(errors.UnsupportedFeatureError, match=r"schedule.*nothing was"):
        schedules.put(
            f"{unique}.later",
            b"x",
            schedule=timedelta(minutes=1),
            target=f"{unique}.now",
        )
    assert stream.info().state.last_seq == 0
    js.delete_stream(unique)


def test_publishers_refuse_options_of_an_old_leader(
    mixed: Cluster, js: jsync.JetStream, bucket: jsync.KeyValue
) -> None:
    stream = f"KV_{bucket.bucket}"
    subject = f"$KV.{bucket.bucket}.session"
    lead(mixed, js, stream, old=True)
    with js.publisher() as publisher:
        calls: list[Callable[[], object]] = [
            lambda: publisher.publish(subject, b"x", ttl=2),
            lambda: publisher.publish_many(subject, [b"x"], ttl=2),
            lambda: publisher.publish_many([subject], [b"x"], ttl=2),
            lambda: js.publish_batch([(subject, b"x", {"ttl": 2})]),
        ]
        for call in calls:
            with pytest.raises(errors.Error):
                call()
        with pytest.raises(errors.UnsupportedFeatureError, match=r"node-1.*step_down"):
            publisher.publish(subject, b"x", ttl=2)
        assert publisher.published == 0
        assert js.stream(stream).info().state.last_seq == 0
        publisher.publish(subject, b"x")
        lead(mixed, js, stream, old=False)
        assert publisher.publish(subject, b"x", ttl=2).result(60).seq == 2


def test_counters_do_not_add_at_an_old_leader(
    mixed: Cluster,
    js: jsync.JetStream,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_stream(js, unique, allow_msg_counter=True, allow_direct=True)
    lead(mixed, js, unique, old=False)
    counters, subject = js.counters(unique), f"{unique}.visits"
    assert counters.add(subject, 5) == 5
    lead(mixed, js, unique, old=True)
    monkeypatch.setattr(api_module, "LEADER_CHECK_SECONDS", 3600.0)
    with pytest.raises(errors.JetStreamError, match="has not counted"):
        counters.add(subject, 5)
    monkeypatch.setattr(api_module, "LEADER_CHECK_SECONDS", 0.0)
    with pytest.raises(errors.UnsupportedFeatureError, match=r"node-1.*step_down"):
        counters.add(subject, 5)
    lead(mixed, js, unique, old=False)
    assert counters.add(subject, 5) == 10
    js.delete_stream(unique)
