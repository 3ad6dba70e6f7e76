"""Fixtures of pytest for tests with real servers: `jsync_server` and `jsync_cluster`.

pytest loads this module in every run, so it imports jsync only for a test that uses a
fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalCluster, LocalServer


@pytest.fixture
def jsync_server() -> Iterator[LocalServer]:
    """A nats-server with JetStream for one test: `jsync.connect(jsync_server.url)`."""
    from jsync.server import LocalServer  # noqa: PLC0415

    with LocalServer() as server:
        yield server


@pytest.fixture
def jsync_cluster() -> Iterator[LocalCluster]:
    """Three nats-servers with JetStream for one test: `jsync.connect(jsync_cluster.urls)`."""
    from jsync.server import LocalCluster  # noqa: PLC0415

    with LocalCluster() as cluster:
        yield cluster
