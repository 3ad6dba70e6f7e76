"""Tests of an account that exports the JetStream API as services usually are: with one reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.jetstream.watching import driver

from ....support.threads import Recorder
from .support import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ....conftest import StartServer

pytestmark = pytest.mark.server

ACCOUNTS = """accounts {
  HOME: {
    jetstream: enabled
    users: [{user: home, password: p}]
    exports: [{service: "$JS.API.>"}]
  }
  AWAY: {
    users: [{user: away, password: p}]
    imports: [{service: {account: HOME, subject: "$JS.API.>"}, to: "home.>"}]
  }
}"""


@pytest.fixture
def away(own_server: StartServer) -> Iterator[jsync.JetStream]:
    """JetStream of another account, with a bucket of six entries and an empty one."""
    server = own_server(config=ACCOUNTS)
    with (
        jsync.connect(server.url, user="home", password="p") as home,
        jsync.connect(server.url, user="away", password="p") as nc,
    ):
        bucket = home.jetstream().create_key_value(bucket="B", history=5)
        home.jetstream().create_key_value(bucket="EMPTY")
        for number in range(6):
            bucket.put(f"k.{number % 3}", b"%d" % number)
        yield nc.jetstream(prefix="home", timeout=0.5)


def by_get_messages(js: jsync.JetStream) -> None:
    list(js.stream("KV_B").get_messages())


def by_keys(js: jsync.JetStream) -> None:
    list(js.key_value("B").keys())


def by_watch(js: jsync.JetStream) -> None:
    with js.key_value("EMPTY").watch(on_error=Recorder()) as watch:
        watch.next(60)


@pytest.mark.parametrize("read", [by_get_messages, by_keys, by_watch])
def test_the_error_of_single_replies_names_the_remedy(
    away: jsync.JetStream,
    read: Callable[[jsync.JetStream], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "IDLE_HEARTBEAT", 0.5)
    with pytest.raises(errors.JetStreamError, match="response_type: stream"):
        read(away)


def test_a_fetch_with_one_reply_names_the_remedy(away: jsync.JetStream) -> None:
    with away.stream("KV_B").ordered_consumer().fetch(3, timeout=0.5) as batch:
        assert numbers(batch) == [0]
        assert "response_type: stream" in str(batch.error)
