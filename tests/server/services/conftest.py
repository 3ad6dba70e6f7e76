from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...support.connection_faults import Events


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
