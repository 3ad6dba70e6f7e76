"""Fixtures of the cluster tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ..support.routed_cluster import RoutedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def routed() -> Iterator[RoutedCluster]:
    """Three servers with a proxy on each route."""
    with RoutedCluster() as cluster:
        yield cluster
