"""Fixtures with a server of each release line that jsync supports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync.jetstream.features import version_of_server
from jsync.models.server_version import parse_version
from jsync.server import LocalServer

from .lines import LINES, binary_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.models.server_version import ServerVersion


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.matrix)


@pytest.fixture(scope="session", params=LINES)
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """A server of each release line, shared by the tests of this directory."""
    with LocalServer(binary=binary_of(request.param), args=["-m", "-1"]) as server:
        yield server


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as nc:
        yield nc


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


@pytest.fixture
def line(nc: jsync.Connection, request: pytest.FixtureRequest) -> ServerVersion:
    """The release line of `server`."""
    line = version_of_server(nc.server_info)
    assert line == parse_version(nc.server_info.version)
    return line
