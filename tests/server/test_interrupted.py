"""Ctrl-C between two waits of a call: what it had begun ends all the same."""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.core.session import Session

from ..servers import threads_since, wait_for
from .support import SOON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync.server import LocalServer

pytestmark = pytest.mark.server


@pytest.fixture
def nothing_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    wait_for(lambda: not threads_since(before), SOON)


def interrupt(*_: object) -> Any:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("nothing_left")
def test_a_connection_whose_thread_had_just_begun_ends(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def begin_and_interrupt(thread: threading.Thread) -> None:
        begin(thread)
        interrupt()

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            jsync.connect(server.url)


def test_a_connection_whose_thread_cannot_begin_leaves_no_descriptor(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gc.collect()
    before = len(os.listdir("/dev/fd"))
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(20):
            with pytest.raises(RuntimeError, match="can't start new thread"):
                jsync.connect(server.url)
    gc.collect()
    assert len(os.listdir("/dev/fd")) < before + 10


@pytest.mark.usefixtures("nothing_left")
def test_a_connection_that_was_being_closed_ends(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    nc = jsync.connect(server.url)
    monkeypatch.setattr(nc.session, "ping", interrupt)
    with pytest.raises(KeyboardInterrupt):
        nc.close()
    wait_for(lambda: nc.is_closed, SOON)


@pytest.mark.usefixtures("nothing_left")
def test_a_connection_whose_block_was_being_left_ends(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = Session.forked
    moments = iter([interrupt])

    def look(session: Session) -> bool:
        next(moments, bool)()
        return bool(forked.__get__(session))

    with pytest.raises(KeyboardInterrupt), jsync.connect(server.url) as nc:
        monkeypatch.setattr(Session, "forked", property(look))
    assert nc.is_closed


def test_a_consume_whose_thread_had_just_begun_ends(
    nc: jsync.Connection, stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start
    begun = []

    def begin_and_interrupt(thread: threading.Thread) -> None:
        begun.append(thread)
        begin(thread)
        interrupt()

    consumer = stream.create_consumer()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", begin_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            consumer.consume(print)
    wait_for(lambda: not any(thread.is_alive() for thread in begun), SOON)


def test_a_consume_whose_block_was_being_left_ends(
    nc: jsync.Connection, stream: jsync.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    consuming = stream.create_consumer().consume(print)
    monkeypatch.setattr(consuming, "drain", interrupt)
    with pytest.raises(KeyboardInterrupt), consuming:
        pass
    assert consuming.wait(SOON)


@pytest.mark.parametrize("how", ["stop", "drain"])
def test_a_consume_that_was_being_ended_ends(
    nc: jsync.Connection,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    consuming = stream.create_consumer().consume(print)
    with monkeypatch.context() as patch:
        patch.setattr(nc.session, "silence", interrupt)
        with pytest.raises(KeyboardInterrupt):
            getattr(consuming, how)()
    assert consuming.wait(SOON)
