from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from .wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

    from ...proxy import FaultProxy


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


@pytest.fixture
def subject(stream: jsync.Stream) -> str:
    """A subject of the stream."""
    return f"{stream.name}.new"


@pytest.fixture
def wire(proxy: FaultProxy) -> Wire:
    return Wire(proxy)


@pytest.fixture
def far(wire: Wire, proxy: FaultProxy) -> Iterator[jsync.JetStream]:
    """JetStream through the proxy: `wire` sees what passes."""
    with jsync.connect(proxy.url) as connection:
        yield connection.jetstream()
