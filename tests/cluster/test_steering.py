"""Tests of stepping leaders down and removing servers, in a cluster with a system account."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..cli.support import Jsync
from ..support.servers import Cluster, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.server

ACCOUNTS = """
accounts {
  SYS { users: [{user: admin, password: x}] }
  APP { jetstream: enabled, users: [{user: app, password: x}] }
}
system_account: SYS
no_auth_user: app
"""
PARTS = ("server", "jetstream", "streams")


@pytest.fixture
def steered() -> Iterator[Cluster]:
    with Cluster(config=ACCOUNTS) as cluster:
        yield cluster


def test_leaders_step_down_and_gone_servers_are_removed(
    steered: Cluster,
) -> None:
    with (
        jsync.connect(steered.urls, user="admin", password="x") as admin,
        jsync.connect(steered.urls) as nc,
    ):
        system, js = admin.system(timeout=30), nc.jetstream(timeout=30)
        names = ["node-1", "node-2", "node-3"]
        assert [server.name for server in system.servers()] == names
        assert [reply.server.name for reply in system.varz()] == names
        assert len(admin.system(server_name="node-2").varz()) == 1
        assert {reply.data.num_routes > 0 for reply in system.routez()} == {True}
        stream = js.create_stream(name="ORDERS", subjects=["orders"], num_replicas=3)
        consumer = stream.create_consumer(durable_name="billing")

        wait_for(lambda: led(stream) != "")
        was = led(stream)
        stream.leader_step_down()
        wait_for(lambda: led(stream) not in ("", was))
        now = led(stream)
        other = next(name for name in names if name != now)
        # A server may lose the election that it is preferred for.
        wait_for(lambda: led_after_asking(stream, other), 120)

        wait_for(lambda: led(consumer) != "")
        was = led(consumer)
        consumer.leader_step_down()
        wait_for(lambda: led(consumer) not in ("", was))

        seen = {reply.server.name: reply.data.groups["SYS"] for reply in system.raftz()}
        assert [each["_meta_"].size for each in seen.values()] == [3] * 3
        states = sorted(each["_meta_"].state for each in seen.values())
        assert states == ["FOLLOWER", "FOLLOWER", "LEADER"]
        peers_of = {peer.name for peer in seen["node-1"]["_meta_"].peers.values()}
        assert peers_of == {"node-2", "node-3"}
        (named,) = [each for each in system.servers() if each.name == "node-2"]
        assert list(named.raftz(group="_meta_").groups["SYS"]) == ["_meta_"]
        assert named.accstatz(accounts=["$G"]).extra["server_id"] == named.id

        was = meta_leader(admin)
        system.meta_leader_step_down()
        wait_for(lambda: meta_leader(admin) not in ("", was))

        js.publish("orders", b"1")
        single = js.create_stream(name="SINGLE", subjects=["single"], num_replicas=1)
        holder = led(single)
        single.remove_peer(holder)
        wait_for(lambda: led(single) not in ("", holder))
        with pytest.raises(errors.APIError):
            single.remove_peer("node-9")

        gone = steered.servers[2]
        gone.stop()
        wait_for(lambda: meta_leader(admin) in names[:2])
        wait_for(lambda: removed(system, "node-3"))
        assert "node-3" not in peers(admin)


def led(led: jsync.Stream | jsync.Consumer) -> str:
    """Return the name of the leader, or an empty name while there is none and requests fail."""
    try:
        cluster = led.info(timeout=1).cluster
    except errors.Error:
        return ""
    return (cluster.leader if cluster else None) or ""


def led_after_asking(stream: jsync.Stream, preferred: str) -> bool:
    """Return whether the preferred server leads within ten seconds after it was asked for."""
    with contextlib.suppress(errors.Error):  # there may be no leader at the moment
        stream.leader_step_down(preferred=preferred)
    with contextlib.suppress(TimeoutError):
        wait_for(lambda: led(stream) == preferred, 10)
    return led(stream) == preferred


def meta_leader(admin: jsync.Connection) -> str:
    for reply in admin.system(timeout=30).jsz():
        meta = reply.data.meta_cluster
        if meta is not None and meta.leader == reply.server.name:
            return reply.server.name
    return ""


def peers(admin: jsync.Connection) -> set[str]:
    for reply in admin.system(timeout=30).jsz():
        meta = reply.data.meta_cluster
        if meta is not None and meta.leader == reply.server.name:
            return {peer.name for peer in meta.replicas or []}
    return set()


def removed(system: jsync.system.System, name: str) -> bool:
    """Remove a server, once the leader has noticed that the server is gone."""
    try:
        system.remove_server(name)
    except errors.Error:
        return False
    return True


def test_a_trace_passes_the_servers_of_a_cluster(cluster: Cluster) -> None:
    one, two, three = cluster.servers
    with (
        jsync.connect(one.url) as nc,
        jsync.connect(two.url) as far,
        jsync.connect(three.url) as farther,
        far.subscribe("traced"),
        farther.subscribe("traced"),
    ):
        far.flush()
        farther.flush()
        wait_for(lambda: len(nc.trace("traced", timeout=30).clients) == 2)
        found = nc.trace("traced", timeout=30)
        assert found.complete
        assert [hop.hop for hop in found.hops] == ["", "1", "2"]
        assert found.hops[0].server.name == "node-1"
        assert found.hops[0].forwards == 2
        names = {hop.server.name for hop in found.hops}
        assert names == {"node-1", "node-2", "node-3"}
        assert {each.cid for each in found.clients} == {
            far.client_id,
            farther.client_id,
        }


def test_the_command_shows_servers_that_are_away(steered: Cluster) -> None:
    urls = ",".join(steered.urls)
    with jsync.connect(steered.urls) as nc:
        js = nc.jetstream(timeout=30)
        js.create_stream(name="ORDERS", subjects=["orders"], num_replicas=3)

    def listed() -> dict[str, str]:
        run = Jsync(next(each for each in steered.servers if each.is_running))
        ended = run("--user", "admin", "--password", "x", "server", "ls")
        return {row[0]: row[-1] for row in ended.rows}

    def told(*parts: str) -> dict[str, tuple[str, str, str]]:
        ended = Jsync()("--server", urls, "doctor", *parts, "--json")
        checks = json.loads(ended.output)["checks"]
        return {
            each["part"]: (each["state"], each["says"], each["do"]) for each in checks
        }

    def blames_the_majority(part: str) -> bool:
        return "more than half of the servers" in told(part)[part][2]

    assert set(listed().values()) == {"ok"}
    wait_for(lambda: {state for state, *_ in told(*PARTS).values()} == {"ok"}, 120)
    # The successor of a killed leader may never have heard from it.
    with jsync.connect(steered.urls) as nc:
        while steered.stream_leader("ORDERS") is not steered.servers[2]:
            nc.request("$JS.API.STREAM.LEADER.STEPDOWN.ORDERS", timeout=5)
    steered.servers[2].kill()
    # The others may be unavailable while they elect a leader.
    assert listed()["node-3"] == "no reply"
    found = told("server")
    assert found["server"][0] == "note"
    assert (
        f"cannot connect to 127.0.0.1:{steered.servers[2].port}" in found["server"][1]
    )
    wait_for(lambda: "node-3 is away" in told("streams")["streams"][1], 120)
    assert told("streams")["streams"][0] == "note"
    steered.servers[1].kill()
    for part in ("jetstream", "streams"):
        # Before the last server misses its leader, requests end without an answer.
        wait_for(partial(blames_the_majority, part), 120)
        assert told(part)[part][0] == "broken"
    assert told("server")["server"][0] == "note"
    found_servers = listed()
    assert found_servers["node-2"] == found_servers["node-3"] == "no reply"
