from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ....support.connection_faults import Events, connect
from ....support.threads import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ....support.proxy import FaultProxy


@pytest.fixture
def stream(nc: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    stream = nc.jetstream().create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_direct=True
    )
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


@pytest.fixture
def far(proxy: FaultProxy) -> Iterator[jsync.Connection]:
    """A connection through the proxy that reconnects at once."""
    with connect(proxy.url, Events()) as connection:
        yield connection
        connection.close()  # no drain: the test may have cut it a moment ago


@pytest.fixture
def far_stream(far: jsync.Connection, stream: jsync.Stream) -> jsync.Stream:
    return far.jetstream().stream(stream.name)


@pytest.fixture
def told() -> Recorder:
    return Recorder()
