"""Tests that a worker knows when the server that it is connected to cannot serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jsync
from jsync.worker import worker as worker_module

from ..support.servers import wait_for

if TYPE_CHECKING:
    import pytest

    from ..support.servers import Cluster


def test_a_worker_without_quorum_is_not_ready(
    cluster: Cluster, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server is there and connected, but the two others are gone."""
    monkeypatch.setattr(worker_module, "CONFIRM_SECONDS", 0.2)
    monkeypatch.setattr(worker_module, "READY_SECONDS", 2.0)
    with jsync.connect(cluster.servers[0].url) as nc:
        nc.jetstream().create_stream(name=unique, subjects=[unique], num_replicas=3)
    leader = cluster.stream_leader(unique)
    others = [each for each in cluster.servers if each is not leader]
    with jsync.connect(leader.url, allow_reconnect=False) as nc:
        js = nc.jetstream(timeout=1)
        app = jsync.Worker(stream=unique)
        app.handle(unique, consumer="w")(lambda _: None)
        with app.start(nc, js) as running:
            assert running.ready
            for each in others:
                each.pause()
            try:
                wait_for(lambda: not running.ready)
                assert nc.is_connected
            finally:
                for each in others:
                    each.resume()
            wait_for(lambda: running.ready)
    with jsync.connect(leader.url) as nc:
        nc.jetstream().stream(unique).delete()
