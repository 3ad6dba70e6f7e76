"""Common fixtures of the tests on the shared server."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from .support import SOON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer


HERE = Path(__file__).parent


# The outcome of these files depends on the Python: signals, exits, forks, threads, the garbage
# collector, sockets and TLS, annotations, pickles and processes.
PYTHONS = {
    *("consume/test_abandoned", "consume/test_arrow_failures", "consume/test_ending"),
    *("consume/test_handlers", "consume/test_memory", "consume/test_workers"),
    *("keyvalue/test_codecs", "keyvalue/test_live", "keyvalue/test_lock"),
    *("objects/test_files", "objects/test_fsspec", "ordered/test_threads"),
    *("services/test_ending", "services/test_endpoints"),
    *("subscribe/test_forked", "subscribe/test_race", "subscribe/test_unsubscribe"),
    *("test_certificates", "test_connect", "test_copies", "test_credentials"),
    *("test_dialers", "test_exit", "test_fast_ingest_process", "test_fork"),
    *("test_ingest_threads", "test_interrupted", "test_interrupted_reading"),
    *("test_local_server", "test_logging", "test_memory", "test_publish_arrow"),
    *("test_publisher_forgotten", "test_pytest_plugin", "test_secrets"),
    *("test_signals", "test_threads", "test_tls", "test_worker"),
}
assert all((HERE / f"{name}.py").exists() for name in PYTHONS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test in this folder as one that needs a server."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.server)
            name = item.path.relative_to(HERE).with_suffix("").as_posix()
            if name in PYTHONS:
                item.add_marker(pytest.mark.pythons)


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection


@pytest.fixture
def js(nc: jsync.Connection) -> jsync.JetStream:
    return nc.jetstream()


@pytest.fixture
def stream(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    """A stream in memory with all subjects below the first token of this test."""
    stream = js.create_stream(name=unique, subjects=[f"{unique}.>"], storage="memory")
    yield stream
    with contextlib.suppress(errors.StreamNotFoundError):
        stream.delete(timeout=SOON)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
