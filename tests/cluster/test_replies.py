"""Tests that jsync reads all fields that a cluster adds to replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.models import (
    AccountInfo,
    ConsumerConfig,
    ConsumerInfo,
    StreamConfig,
    StreamInfo,
)

from ..support.raw_api import (
    ask,
    assert_nothing_is_lost,
    create_consumer,
    create_stream,
)
from ..support.threads import LONG

if TYPE_CHECKING:
    from ..support.servers import Cluster


@pytest.mark.cluster
def test_clusters_are_read_whole(cluster: Cluster, unique: str) -> None:
    with jsync.connect(cluster.urls) as nc:
        create_stream(nc, StreamConfig(name=unique, num_replicas=3))
        create_consumer(nc, unique, ConsumerConfig(durable_name="d"))
        reply = ask(nc, f"STREAM.INFO.{unique}")
        assert_nothing_is_lost(StreamInfo, reply)
        for info in (
            StreamInfo.from_wire(reply),
            ConsumerInfo.from_wire(ask(nc, f"CONSUMER.INFO.{unique}.d")),
        ):
            assert info.cluster is not None
            assert info.cluster.leader
            if nc.server_info.api_lvl:  # since 2.11.9
                assert info.cluster.leader_since is not None
            assert not info.cluster.extra
            assert len(info.cluster.replicas or ()) == 2
            for peer in info.cluster.replicas or ():
                assert peer.name
                assert peer.active < LONG
                assert not peer.extra
        assert_nothing_is_lost(AccountInfo, ask(nc, "INFO"))
