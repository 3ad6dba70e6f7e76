from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync

from ....support.subscribe_requests import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....support.proxy import FaultProxy


@pytest.fixture
def subject(stream: jsync.Stream) -> str:
    """A subject of the stream."""
    return f"{stream.name}.new"


@pytest.fixture
def wire(proxy: FaultProxy) -> Wire:
    return Wire(proxy)


@pytest.fixture
def far(wire: Wire, proxy: FaultProxy) -> Iterator[jsync.JetStream]:
    """JetStream through the proxy. `wire` records the frames."""
    with jsync.connect(proxy.url) as connection:
        yield connection.jetstream()
