"""Tests of groups whose bucket has foreign keys, or servers that are behind."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.jetstream.keyvalue.bucket import KeyValue

from ....support.connection_faults import Events, connect
from ....support.lagging import lag
from ....support.servers import wait_for
from ....support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ....conftest import StartServer

pytestmark = pytest.mark.server

ELASTIC, STATIC = "elastic-consumer-groups", "static-consumer-groups"


@pytest.fixture
def alone(own_server: StartServer) -> LocalServer:
    return own_server()


@pytest.fixture
def js(alone: LocalServer) -> Iterator[jsync.JetStream]:
    with connect(alone.url, Events()) as nc:
        js = nc.jetstream()
        subjects = ["s.>", "0.s.>", "1.s.>"]
        js.create_stream(name="S", subjects=subjects, storage="memory")
        yield js


def create(js: jsync.JetStream) -> jsync.ConsumerGroup:
    return js.create_consumer_group("S", "g", partitions=2, members=["a"])


@pytest.fixture
def behind(js: jsync.JetStream) -> jsync.JetStream:
    """A server that knows the deletion of the group, but not its second creation."""
    create(js)
    js.delete_consumer_group("S", "g")
    lag(js, ELASTIC)
    return js


def test_a_server_that_is_behind_deletes_no_group(behind: jsync.JetStream) -> None:
    create(behind)
    behind.publish("s.x", b"")
    wait_for(lambda: behind.stream("S-g").info().state.messages == 1)
    for _ in range(8):
        create(behind)
        group = behind.consumer_group("S", "g")
        with group.join("a") as member:
            member.next(SOON).nak()
    assert behind.stream("S-g").info().state.messages == 1


def test_a_server_that_is_behind_hides_no_change(js: jsync.JetStream) -> None:
    group = create(js)
    lag(js, ELASTIC)
    stored = js.key_value(ELASTIC)._from_leader()
    for _ in range(4):
        assert group.add_members("b") == ("a", "b")
        assert b'"b"' in stored.get("S.g").value
        assert group.delete_members("b") == ("a",)
        assert b'"b"' not in stored.get("S.g").value


def test_a_lagging_server_hides_no_group_from_deletion(
    behind: jsync.JetStream,
) -> None:
    for _ in range(6):
        create(behind)
        behind.delete_consumer_group("S", "g")
        with pytest.raises(errors.KeyNotFoundError):
            behind.key_value(ELASTIC)._from_leader().get("S.g")


def test_an_older_marker_deletes_nothing(
    behind: jsync.JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A former leader answers like a server that is behind."""
    create(behind)
    monkeypatch.setattr(KeyValue, "_from_leader", lambda bucket: bucket)
    members: list[jsync.GroupMember] = []
    while len(members) < 6:
        with contextlib.suppress(errors.ConsumerGroupNotFoundError):
            members.append(create(behind).join("a"))
        assert "S-g" in behind.stream_names()
    for member in members:
        with contextlib.suppress(errors.TimeoutError):
            member.next(0.1)
        assert member.state is not jsync.MemberState.ENDED
        member.stop()


def test_foreign_keys_hide_no_group(js: jsync.JetStream, alone: LocalServer) -> None:
    create(js)
    bucket = js.key_value(ELASTIC)
    for key in ("AAA", "A.b.c", "A/x.g"):
        bucket.put(key, bucket.get("S.g").value)
    with socket.create_connection(("127.0.0.1", alone.port)) as raw:
        subject = b"$KV.%s.S.\xff" % ELASTIC.encode()
        raw.sendall(b'CONNECT {"verbose":false}\r\nPUB %s 0\r\n\r\n' % subject)
        wait_for(lambda: bucket.status().values == 5)
    assert [each.name for each in js.consumer_groups()] == ["g"]
    assert [each.name for each in js.consumer_groups("S")] == ["g"]


def test_a_deletion_keeps_the_consumers_of_unreadable_groups(
    js: jsync.JetStream,
) -> None:
    for name in ("g", "g-b"):
        js.create_consumer_group(
            *("S", name), kind="static", partitions=2, members=["a"], filters="s.>"
        )
        with js.consumer_group("S", name).join("a") as member:
            with contextlib.suppress(errors.TimeoutError):
                member.next(0.2)
    assert sorted(js.consumer_names("S")) == ["g-a", "g-b-a"]
    js.key_value(STATIC).put("S.g-b", b"a newer format")
    js.publish(f"$KV.{STATIC}.S.z:1", b"")
    js.delete_consumer_group("S", "g")
    assert [*js.consumer_names("S")] == ["g-b-a"]
