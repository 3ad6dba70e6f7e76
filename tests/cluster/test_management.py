"""Tests of management on a cluster: replicas, lost servers and changing leaders."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.servers import wait_for

if TYPE_CHECKING:
    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

LONG = 120.0


def test_every_operation_works_on_replicas(whole: Cluster, unique: str) -> None:
    with jsync.connect(whole.urls[0]) as nc:
        js = nc.jetstream(timeout=LONG)
        stream = js.create_or_update_stream(
            name=unique,
            subjects=[f"{unique}.*"],
            num_replicas=3,
            allow_direct=True,
        )
        for number in range(6):
            js.publish(f"{unique}.{number % 2}", str(number).encode())
        info = stream.update(max_age=600)
        assert info.config.max_age == 600
        assert info.cluster is not None
        assert len(info.cluster.replicas or ()) == 2
        assert [found.name for found in js.streams(subject=f"{unique}.*")] == [unique]
        # A replica can be a moment behind. jsync then asks the leader for the message.
        assert [stream.get_message(n).sequence for n in range(1, 7)] == [*range(1, 7)]
        wait_for(lambda: len(list(stream.get_messages(batch=4))) == 6)
        stream.delete_message(1)
        stream.secure_delete_message(2)
        with pytest.raises(errors.MessageNotFoundError):
            stream.delete_message(1)
        with pytest.raises(errors.MessageNotFoundError):
            stream.get_message(1, direct=False)
        assert stream.purge(keep=3) == 1
        consumer = stream.create_consumer(durable_name="worker")
        pulled(consumer).ack_sync()
        assert consumer.reset(4).reset_seq == 4
        assert pulled(consumer).data == b"3"
        assert consumer.pause(600).paused
        assert not consumer.resume().paused
        assert [found.name for found in stream.consumers()] == ["worker"]
        consumer.delete()
        stream.delete()


@pytest.mark.parametrize("victim", ["the server connected to", "the leader"])
def test_reading_continues_in_place_after_a_server_kill(
    whole: Cluster, unique: str, victim: str
) -> None:
    count = 3000
    with jsync.connect(whole.urls, reconnect_wait=0.01) as nc:
        js = nc.jetstream(timeout=LONG)
        stream = js.create_stream(
            name=unique, subjects=[unique], num_replicas=3, allow_direct=True
        )
        with js.publisher() as publisher:
            for number in range(count):
                publisher.publish(unique, str(number).encode())
        read = []
        # The server that is killed may have had a request, which is sent again after this time.
        for message in stream.get_messages(batch=500, timeout=20):
            read.append(message.sequence)
            if len(read) == 750:
                (mine,) = (s for s in whole.servers if s.url == nc.connected_url)
                (whole.stream_leader(unique) if victim == "the leader" else mine).kill()
        assert read == list(range(1, count + 1))
        whole.start()
        wait_for(lambda: is_deleted(js, unique), LONG)


def test_a_list_ends_by_naming_servers_without_answer(
    whole: Cluster, unique: str
) -> None:
    lone = {f"{unique}1", f"{unique}3"}
    replicated = {f"{unique}2", f"{unique}4"}
    subject = f"{unique}.>"
    with jsync.connect(whole.urls[0]) as nc:
        js = nc.jetstream(timeout=LONG)
        leaders = {}
        for name in lone | replicated:
            info = js.create_stream(
                name=name,
                subjects=[f"{unique}.{name}"],
                num_replicas=1 if name in lone else 3,
            ).cached_info
            assert info.cluster is not None
            leaders[name] = info.cluster.leader
    nodes = {f"node-{n}": server for n, server in enumerate(whole.servers, 1)}
    victim = leaders[f"{unique}1"] or ""
    missing = {name for name in lone if leaders[name] == victim}
    nodes[victim].kill()
    whole.wait_until_ready()
    here = next(server for server in whole.servers if server.is_running)
    with jsync.connect(here.url) as nc:
        js = nc.jetstream(timeout=LONG)
        for name in replicated:
            wait_for(lambda name=name: is_there(js, name), LONG)  # type: ignore[misc]
        iterator = js.streams(subject=subject)
        given = [next(iterator).name for _ in (lone | replicated) - missing]
        assert set(given) == (lone | replicated) - missing
        with pytest.raises(errors.IncompleteListError) as raised:
            next(iterator)
        assert set(raised.value.missing) == missing
        # The server still lists the names of the missing streams.
        assert list(js.stream_names(subject=subject)) == sorted(lone | replicated)
        whole.start()
        for name in lone | replicated:
            wait_for(lambda name=name: is_deleted(js, name), LONG)  # type: ignore[misc]


def pulled(consumer: jsync.Consumer) -> jsync.JetStreamMsg:
    """Return the next message.

    A server knows a consumer that another server created a moment later.
    """
    got: list[jsync.JetStreamMsg] = []

    def is_pulled() -> bool:
        with contextlib.suppress(errors.NoRespondersError):
            got.append(consumer.next(timeout=LONG))
        return bool(got)

    wait_for(is_pulled, LONG)
    return got[0]


def is_there(js: jsync.JetStream, name: str) -> bool:
    """Return whether the stream has a leader again."""
    try:
        js.stream(name, timeout=2)
    except errors.Error:
        return False
    return True


def is_deleted(js: jsync.JetStream, name: str) -> bool:
    try:
        js.delete_stream(name, timeout=2)
    except errors.StreamNotFoundError:
        return True
    except errors.Error:
        return False
    return True
