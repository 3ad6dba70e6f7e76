from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import sys
import threading
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import HealthCheck, settings

from jsync.core.session import _open_sessions
from jsync.server import LocalServer

from .support import optional_libraries as missing  # noqa: F401 (first: the libraries that this Python has not)
from .support.accounts import Account, Operator
from .support.certificates import certificates_in
from .support.proxy import FaultProxy
from .support.servers import Cluster, WebSocketServer, threads_since, wait_for

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from .support.certificates import Certificates


# The duration of an example depends on the load of the machine, not on the tested code. Each run
# tries the same examples, so that no test fails by chance. `make fuzz` sets this variable, to try
# more of them, and others each time.
EXAMPLES = os.environ.get("JSYNC_EXAMPLES", "")
settings.register_profile(
    "jsync",
    deadline=None,
    database=None,
    derandomize=not EXAMPLES,
    max_examples=int(EXAMPLES or 100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("jsync")

FAILED = pytest.StashKey[bool]()
"""Set for a test that has failed, in its set-up or in its body."""


WARNING = re.compile(r"\[(WRN|ERR|FTL)\]")


# `make websocket` sets this variable to run the same tests over WebSocket.
OVER = os.environ.get("JSYNC_TESTS_OVER", "tcp")
SERVERS = {"tcp": LocalServer, "websocket": WebSocketServer}


class StartServer(Protocol):
    """The type of `own_server`: takes the keywords of `LocalServer` and returns a running server."""

    def __call__(self, **options: Any) -> LocalServer: ...


# A shell starts background jobs with these signals ignored, and every process of the tests would
# inherit that: Ctrl-C would end nothing, and no server would reload.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Deselect the tests of UNSTEADY.md, except in a run that selects this marker."""
    if "unsteady" in config.getoption("markexpr"):
        return
    unsteady = [item for item in items if item.get_closest_marker("unsteady")]
    if unsteady:
        config.hook.pytest_deselected(items=unsteady)
        items[:] = [item for item in items if item not in unsteady]


def pytest_collection_finish() -> None:
    """Exclude the thousands of test objects from garbage collection.

    Each full run of the collector would take half a second.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


@pytest.fixture(scope="session")
def server() -> Iterator[LocalServer]:
    """The server that tests share. Leave it as it was, and use `unique` names."""
    with SERVERS[OVER](args=["-m", "-1"]) as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[StartServer]:
    """Start servers that belong to this test, which may kill or configure them."""
    with ExitStack() as running:

        def start(**options: Any) -> LocalServer:
            return running.enter_context(SERVERS[OVER](**options))

        yield start


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three servers. A test that ends one starts it again and waits until all are ready."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def proxy(server: LocalServer) -> Iterator[FaultProxy]:
    """A proxy for this test alone, in front of `server`."""
    with FaultProxy("127.0.0.1", server.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if made := os.environ.get("JSYNC_TESTS_CERTIFICATES"):
        return certificates_in(Path(made))
    from .support.certificate_authority import make_certificates  # noqa: PLC0415 (needs cryptography)

    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_server(certificates: Certificates) -> Iterator[LocalServer]:
    """A server that requires TLS, but no certificate of the client."""
    with LocalServer(config=certificates.server_config()) as server:
        yield server


@pytest.fixture(scope="session")
def mutual_tls_server(certificates: Certificates) -> Iterator[LocalServer]:
    """A server that requires TLS and `certificates.client`."""
    with LocalServer(config=certificates.server_config(verify=True)) as server:
        yield server


@pytest.fixture(scope="session")
def account() -> Account:
    """The account of `jwt_server`. `account.user(...)` makes users that the server accepts."""
    return Operator().account("APP")


@pytest.fixture(scope="session")
def jwt_server(account: Account) -> Iterator[LocalServer]:
    """A server in operator mode that knows `account`, with JetStream."""
    with SERVERS[OVER](config=account.operator.config) as server:
        yield server


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, valid for a stream and for the first token of a subject."""
    return f"T{uuid.uuid4().hex[:12]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
        # Some facts are only in the log of the server, such as why it cannot create a stream.
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, LocalServer) and (told := warnings_of(value)):
                report.sections.append((f"warnings of {name}", told))
    return report


def warnings_of(server: LocalServer, count: int = 20) -> str:
    """Return the last warnings and errors in the log of a server."""
    lines = server.log.splitlines()
    return "\n".join([line for line in lines if WARNING.search(line)][-count:])


@pytest.fixture(autouse=True)
def _nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check that a test leaves no threads, and close the connections of a failed test."""
    before, connected = set(threading.enumerate()), set(_open_sessions)
    yield
    if FAILED not in request.node.stash:
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not left_since(before))
    left = left_since(before)
    for session in set(_open_sessions) - connected:
        session.close()
    if left and FAILED not in request.node.stash:
        pytest.fail(f"threads left behind: {', '.join(left)}")


def left_since(before: set[threading.Thread]) -> list[str]:
    names = (thread.name for thread in threads_since(before))
    return sorted(name for name in names if name.startswith("jsync-"))
