"""Tests of the cluster of servers that other tests use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.servers import RawClient, monitor, wait_for

if TYPE_CHECKING:
    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster


def test_every_server_knows_the_others(cluster: Cluster) -> None:
    with RawClient(cluster.urls[0]) as client:
        known = {f"nats://{address}" for address in client.info["connect_urls"]}
    assert known == set(cluster.urls)
    jsz = monitor(cluster.servers[0], "jsz")
    assert jsz["meta_cluster"]["cluster_size"] == 3


def test_streams_have_replicas_and_a_leader(cluster: Cluster, unique: str) -> None:
    for number, url in enumerate(cluster.urls):
        name = f"{unique}{number}"
        config = {"name": name, "subjects": [name], "num_replicas": 3}
        with RawClient(url) as client:
            assert client.connect() == "PONG"
            created = client.request(f"$JS.API.STREAM.CREATE.{name}", config)
        assert created["config"]["num_replicas"] == 3
        assert cluster.stream_leader(name) in cluster.servers
    with pytest.raises(TimeoutError):
        cluster.stream_leader("NOT_THERE", timeout=0.1)


def test_another_server_leads_when_the_leader_ends(
    cluster: Cluster, unique: str
) -> None:
    leader = cluster.meta_leader()
    leader.kill()
    cluster.wait_until_ready()
    other = cluster.meta_leader()
    assert other is not leader
    assert not leader.is_running
    url = leader.url
    leader.start()
    cluster.wait_until_ready()
    assert leader.url == url
    config = {"name": unique, "subjects": [unique], "num_replicas": 3}
    with RawClient(url) as client:
        client.connect()
        wait_for(
            lambda: (
                "error" not in client.request(f"$JS.API.STREAM.CREATE.{unique}", config)
            )
        )
