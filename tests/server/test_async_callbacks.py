"""Tests that a callback which is `async def` is rejected wherever you can give one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.errors import ConfigError
from jsync.server import LocalServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.server


async def coroutine(*_: object) -> None: ...


later: Any = coroutine  # which types would reject as well


def _service(nc: jsync.Connection, **options: Any) -> None:
    with nc.service("asynchronous", "1.0.0", **options) as service:
        service.endpoint("one")(later)


CORE: dict[str, Callable[[jsync.Connection], object]] = {
    "subscribe": lambda nc: nc.subscribe("a", callback=later),
    "request_many": lambda nc: list(nc.request_many("a", sentinel=later)),
    "service": _service,
    "service on_done": lambda nc: _service(nc, on_done=later),
    "service stats_handler": lambda nc: _service(nc, stats_handler=later),
    "worker handle": lambda nc: jsync.Worker(stream="S").handle("a", consumer="c")(
        later
    ),
    "worker on_start": lambda nc: jsync.Worker().on_start(later),
    "worker on_stop": lambda nc: jsync.Worker().on_stop(later),
    "worker on_error": lambda nc: jsync.Worker(on_error=later),
    "worker connect": lambda nc: jsync.Worker(connect=later),
}
OPTIONS = [
    *("on_connect", "on_disconnect", "on_reconnect", "on_closed", "on_error"),
    *("on_lame_duck", "on_discovered", "reconnect_delay", "auth_callback", "dialer"),
    *("token", "ws_headers"),
]


@pytest.mark.parametrize("name", CORE)
def test_core_nats_rejects_it(server: LocalServer, name: str) -> None:
    with jsync.connect(server.url) as nc:
        with pytest.raises(ConfigError, match="is a coroutine function"):
            CORE[name](nc)
        assert nc.stats().subscriptions == 0


@pytest.mark.parametrize("name", OPTIONS)
def test_connect_rejects_it(server: LocalServer, name: str) -> None:
    option: dict[str, Any] = {name: later}
    with pytest.raises(ConfigError, match=f"{name} is a coroutine function"):
        jsync.connect(server.url, **option)


JETSTREAM: dict[str, Callable[[jsync.JetStream], object]] = {
    "subscribe": lambda js: js.subscribe("s", callback=later),
    "advisories": lambda js: js.advisories(callback=later),
    "publisher": lambda js: js.publisher(on_error=later),
    "fast_ingest": lambda js: js.fast_ingest(on_error=later),
    "consume": lambda js: js.create_consumer("S").consume(later),
    "consume on_error": lambda js: js.create_consumer("S").consume(
        print, on_error=later
    ),
    "ordered consume": lambda js: js.ordered_consumer("S").consume(later),
    "push consume": lambda js: js.create_push_consumer(
        "S", deliver_subject="d"
    ).consume(later),
    "key-value watch": lambda js: js.key_value("B").watch(callback=later),
    "key-value elect on_elected": lambda js: js.key_value("B").elect(
        "k", ttl=5, on_elected=later
    ),
    "key-value elect on_lost": lambda js: js.key_value("B").elect(
        "k", ttl=5, on_lost=later
    ),
    "key-value lock on_lost": lambda js: js.key_value("B").lock(
        "k", ttl=5, on_lost=later
    ),
    "objects watch": lambda js: js.object_store("O").watch(callback=later),
}


@pytest.fixture(scope="module")
def js() -> Iterator[jsync.JetStream]:
    with LocalServer() as server, jsync.connect(server.url) as nc:
        js = nc.jetstream()
        js.create_stream(name="S", subjects=["s"], storage="memory")
        js.create_key_value(bucket="B", storage="memory", limit_marker_ttl=60)
        js.create_object_store(bucket="O", storage="memory")
        yield js


@pytest.mark.parametrize("name", JETSTREAM)
def test_jetstream_rejects_it(js: jsync.JetStream, name: str) -> None:
    with pytest.raises(ConfigError, match="is a coroutine function"):
        JETSTREAM[name](js)
