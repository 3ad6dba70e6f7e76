"""Fixtures of the cluster tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.routed_cluster import RoutedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..support.servers import Cluster


@pytest.fixture(scope="module")
def routed() -> Iterator[RoutedCluster]:
    """Three servers with a proxy on each route."""
    with RoutedCluster() as cluster:
        yield cluster


@pytest.fixture
def whole(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster. All servers run before and after the test."""
    cluster.start()
    yield cluster
    cluster.start()
