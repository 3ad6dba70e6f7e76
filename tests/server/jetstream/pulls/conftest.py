from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ....support.connection_faults import Events, connect
from .support import (
    Pulls,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ....support.proxy import FaultProxy


@pytest.fixture
def worker(stream: jsync.Stream) -> jsync.Consumer:
    return stream.create_consumer(durable_name="worker", ack_wait=60)


@pytest.fixture
def far(proxy: FaultProxy, events: Events) -> Iterator[jsync.Connection]:
    """A connection through the proxy that reconnects at once."""
    with connect(proxy.url, events) as connection:
        yield connection
        connection.close()  # no drain: the test may have cut it a moment ago


@pytest.fixture
def far_worker(
    far: jsync.Connection, stream: jsync.Stream, worker: jsync.Consumer
) -> jsync.Consumer:
    return far.jetstream().stream(stream.name).consumer("worker")


@pytest.fixture
def pulls(proxy: FaultProxy) -> Pulls:
    return Pulls(proxy)
