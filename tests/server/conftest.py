"""Common fixtures of the tests on the shared server."""

from __future__ import annotations

import contextlib
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors

from ..support.connection_faults import Events
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


# The tests that `make websocket` leaves out. Ordered consumers, groups and the rest of JetStream
# are about answers of the server, which pulls and subscriptions get over the same connection. TLS,
# certificates, dialers and the PROXY protocol are about the line itself: test_websocket has wss://,
# proxies and dialers of its own. test_handshake_faults and test_malformed send other bytes in place
# of those of NATS, as test_websocket does for frames. test_secrets, test_fork and test_exit open
# sockets beside the connection. A single test is marked where it stands, with the reason.
TCP_ONLY = {
    "core/test_dialers",
    "core/test_exit",
    "core/test_fork",
    "core/test_handshake_faults",
    "core/test_malformed",
    "core/test_proxy_protocol",
    "core/test_reconnect_choice",
    "core/test_tls",
    "core/test_unreadable_headers",
    "core/test_websocket",
    "jetstream/atomic/test_faults",
    "jetstream/atomic/test_rejections",
    "jetstream/backups",
    "jetstream/counters",
    "jetstream/groups",
    "jetstream/ingest/test_again",
    "jetstream/ingest/test_faults",
    "jetstream/ingest/test_ingest",
    "jetstream/ingest/test_leaders",
    "jetstream/ingest/test_overload",
    "jetstream/ingest/test_process",
    "jetstream/ingest/test_rejections",
    "jetstream/ingest/test_silence",
    "jetstream/keyvalue/test_domains",
    "jetstream/keyvalue/test_faults",
    "jetstream/keyvalue/test_forked",
    "jetstream/keyvalue/test_lock",
    "jetstream/objects/test_disk",
    "jetstream/objects/test_faults",
    "jetstream/objects/test_fsspec",
    "jetstream/objects/test_records",
    "jetstream/objects/test_rename",
    "jetstream/ordered",
    "jetstream/publishing/test_other_responders",
    "jetstream/schedules",
    "models",
    "services/test_faults",
    "support/test_certificates",
    "support/test_proxy",
    "system",
    "test_async_callbacks",
    "test_contexts",
    "test_local_server",
    "test_mutated_records",
    "test_pytest_plugin",
    "test_secrets",
    "test_thread_shortage",
    "tracing",
    "worker",
}
assert all(
    (HERE / name).is_dir() or (HERE / f"{name}.py").exists() for name in TCP_ONLY
)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test in this folder as one that needs a server."""
    item.add_marker(pytest.mark.server)
    for marker in markers_of(item.path):
        item.add_marker(marker)


@cache
def markers_of(file: Path) -> list[pytest.MarkDecorator]:
    name = file.relative_to(HERE).with_suffix("").as_posix()
    tcp_only = name in TCP_ONLY or name.rpartition("/")[0] in TCP_ONLY
    return [pytest.mark.pythons] * (name in PYTHONS) + [pytest.mark.tcp_only] * tcp_only


@pytest.fixture
def nc(server: LocalServer) -> Iterator[jsync.Connection]:
    with jsync.connect(server.url) as connection:
        yield connection


@pytest.fixture
def events() -> Events:
    """Callbacks of a connection, which keep what they are called with."""
    return Events()


@pytest.fixture
def narrow(server: LocalServer, events: Events) -> Iterator[jsync.Connection]:
    """Connect with a pool of two threads."""
    with jsync.connect(server.url, callback_threads=2, **events.callbacks) as nc:
        yield nc


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
