"""What most tests on the shared server begin with; one that needs more makes its own."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer


HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever is in this folder needs a server, whether it says so or not."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.server)


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """A stream in memory, of all below the test's own first token."""
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
