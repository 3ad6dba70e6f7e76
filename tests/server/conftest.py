"""Common fixtures of the tests on the shared server."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.threads import SOON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer


HERE = Path(__file__).parent


# The outcome of these files depends on the Python: signals, exits, forks, threads, the garbage
# collector, sockets and TLS, annotations, pickles and processes.
PYTHONS = {
    *(
        "jetstream/pulls/test_abandoned",
        "jetstream/pulls/test_arrow_failures",
        "jetstream/pulls/test_ending",
    ),
    *(
        "jetstream/pulls/test_handlers",
        "jetstream/pulls/test_memory",
        "jetstream/pulls/test_workers",
    ),
    *(
        "jetstream/keyvalue/test_codecs",
        "jetstream/keyvalue/test_live",
        "jetstream/keyvalue/test_lock",
    ),
    *(
        "jetstream/objects/test_files",
        "jetstream/objects/test_fsspec",
        "jetstream/ordered/test_threads",
    ),
    *("services/test_ending", "services/test_endpoints"),
    *(
        "jetstream/subscribe/test_forked",
        "jetstream/subscribe/test_race",
        "jetstream/subscribe/test_unsubscribe",
    ),
    *(
        "support/test_certificates",
        "core/test_connect",
        "test_copies",
        "core/test_credentials",
    ),
    *(
        "core/test_dialers",
        "core/test_exit",
        "jetstream/ingest/test_process",
        "core/test_fork",
    ),
    *(
        "jetstream/ingest/test_threads",
        "core/test_interrupted",
        "jetstream/test_interrupted_reading",
    ),
    *(
        "test_local_server",
        "core/test_logging",
        "test_memory",
        "jetstream/publishing/test_arrow",
    ),
    *("jetstream/publishing/test_forgotten", "test_pytest_plugin", "test_secrets"),
    *("core/test_signals", "core/test_threads", "core/test_tls", "worker/test_worker"),
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
