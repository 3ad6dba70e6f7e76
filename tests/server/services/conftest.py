from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync

from ...support.connection_faults import Events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer


@pytest.fixture
def events() -> Events:
    """The callbacks of the connection of the service."""
    return Events()


@pytest.fixture
def host(server: LocalServer, events: Events) -> Iterator[jsync.Connection]:
    """The connection of the service, which the callers do not use."""
    with jsync.connect(server.url, **events.callbacks) as connection:
        yield connection


@pytest.fixture
def service(host: jsync.Connection, unique: str) -> Iterator[jsync.Service]:
    """A service with a unique name and without endpoints."""
    with host.service(unique, "1.2.0") as service:
        host.flush()
        yield service
