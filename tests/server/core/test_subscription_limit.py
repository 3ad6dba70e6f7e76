"""Tests of a connection that has as many subscriptions as the server allows."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

import jsync
from jsync import errors
from jsync.core import session

from ...support.servers import wait_for
from ...support.threads import SOON, Recorder
from .test_interrupted import interrupted_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jsync.server import LocalServer

    from ...conftest import StartServer

pytestmark = pytest.mark.server

LIMIT = 10
CONFIG = f"max_subscriptions: {LIMIT}\n"


@pytest.fixture
def limited(own_server: StartServer) -> LocalServer:
    """A server that allows ten subscriptions, with a stream, a bucket and a store."""
    server = own_server(config=CONFIG)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        stream = js.create_stream(name="LIMITED", subjects=["limited.>"])
        js.publish("limited.a", b"1")
        stream.create_consumer(durable_name="reader")
        js.create_key_value(bucket="limited").put("a", b"1")
        js.create_object_store(bucket="limited").put("a", b"1")
    return server


@pytest.fixture
def reported() -> Recorder:
    """The errors that `on_error` of `nc` got."""
    return Recorder()


@pytest.fixture
def nc(limited: LocalServer, reported: Recorder) -> Iterator[jsync.Connection]:
    with jsync.connect(limited.url, on_error=reported) as nc:
        yield nc


def fill(nc: jsync.Connection, count: int) -> list[jsync.Subscription]:
    subscriptions = [nc.subscribe(f"full.{i}") for i in range(count)]
    nc.flush()
    return subscriptions


def _messages(js: jsync.JetStream) -> object:
    with js.consumer("LIMITED", "reader").messages() as messages:
        return messages.next(SOON)


def _publisher(js: jsync.JetStream) -> object:
    with js.publisher() as publisher:
        return publisher.publish("limited.a", b"2").result(SOON)


def _ordered(js: jsync.JetStream) -> object:
    with js.bind_stream("LIMITED").ordered_consumer() as reader:
        return reader.next(SOON)


def _watch(js: jsync.JetStream) -> object:
    with js.key_value("limited").watch() as watch:
        return list(watch.initial())


READS: dict[str, Callable[[jsync.JetStream], object]] = {
    "next": lambda js: js.consumer("LIMITED", "reader").next(SOON),
    "fetch": lambda js: list(js.consumer("LIMITED", "reader").fetch(1, timeout=SOON)),
    "messages": _messages,
    "publisher": _publisher,
    "ordered": _ordered,
    "keys": lambda js: list(js.key_value("limited").keys()),
    "watch": _watch,
    "live": lambda js: js.key_value("limited").live(),
    "list": lambda js: list(js.object_store("limited").list()),
    "put": lambda js: js.object_store("limited").put("b", b"2"),
    "subscribe": lambda js: js.subscribe("limited.>", ordered=True).next(SOON),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_refused_inbox_raises_from_the_call(
    nc: jsync.Connection, read: Callable[[jsync.JetStream], object]
) -> None:
    fill(nc, LIMIT - 1)
    nc.jetstream().account_info()  # the inbox of requests is the last one
    with pytest.raises(errors.SubscriptionLimitError, match="close others"):
        read(nc.jetstream())


def test_a_refused_subscription_raises_from_next(
    nc: jsync.Connection, reported: Recorder
) -> None:
    older = fill(nc, LIMIT)
    refused = nc.subscribe("one.more")
    with pytest.raises(errors.SubscriptionLimitError, match=r"'one\.more'") as caught:
        refused.next(SOON)
    assert caught.value.subject == "one.more"
    wait_for(lambda: reported.waiting == 1)
    for i, subscription in enumerate(older):
        nc.publish(f"full.{i}", b"1")
        assert subscription.next(SOON).data == b"1"
    older[0].unsubscribe()
    with nc.subscribe("one.more") as again:
        nc.publish("one.more", b"2")
        assert again.next(SOON).data == b"2"


def test_without_room_for_replies_a_request_raises(nc: jsync.Connection) -> None:
    older = fill(nc, LIMIT)
    with pytest.raises(errors.SubscriptionLimitError):
        nc.jetstream().account_info()
    older[0].unsubscribe()
    assert nc.jetstream().account_info().streams == 3


def test_a_refused_subscription_that_ended_harms_no_other(
    nc: jsync.Connection, reported: Recorder
) -> None:
    older = fill(nc, LIMIT)
    for _ in range(5):
        nc.subscribe("short.lived").unsubscribe()
    nc.flush()
    assert nc.stats().subscriptions == LIMIT
    wait_for(lambda: reported.waiting == 5)
    for i, subscription in enumerate(older):
        nc.publish(f"full.{i}", b"1")
        assert subscription.next(SOON).data == b"1"


def test_a_rejection_ends_no_newer_subscription(
    limited: LocalServer, nc: jsync.Connection
) -> None:
    older = fill(nc, LIMIT)
    limited.pause()
    refused = nc.subscribe("refused")
    older[0].unsubscribe()
    newer = nc.subscribe("newer")
    limited.resume()
    with pytest.raises(errors.SubscriptionLimitError, match="'refused'"):
        refused.next(SOON)
    nc.publish("newer", b"1")
    assert newer.next(SOON).data == b"1"


def test_no_refused_subscription_waits_in_silence(
    limited: LocalServer, nc: jsync.Connection
) -> None:
    """Although the server ends another one at a time that it does not tell."""
    older = fill(nc, LIMIT)
    older[0].unsubscribe(after=1)
    limited.pause()
    newer = [nc.subscribe("refused")]
    nc.publish("full.0", b"1")
    newer.append(nc.subscribe("accepted"))
    limited.resume()
    assert older[0].next(SOON).data == b"1"
    for subscription in newer:
        with pytest.raises(errors.SubscriptionLimitError):
            subscription.next(SOON)
    for i in range(1, LIMIT):
        nc.publish(f"full.{i}", b"1")
        assert older[i].next(SOON).data == b"1"


def test_thousands_of_rejections_end_no_older_subscription(
    limited: LocalServer, nc: jsync.Connection
) -> None:
    older = fill(nc, LIMIT - 1)
    limited.pause()
    newer = [nc.subscribe(f"burst.{i}") for i in range(3000)]
    limited.resume()
    for subscription in newer[1:]:
        with pytest.raises(errors.SubscriptionLimitError):
            subscription.next(SOON)
    for subscription, subject in ((older[0], "full.0"), (newer[0], "burst.0")):
        nc.publish(subject, b"1")
        assert subscription.next(SOON).data == b"1"


def test_all_refused_subscriptions_of_a_burst_end(nc: jsync.Connection) -> None:
    subscriptions = [nc.subscribe(f"burst.{i}") for i in range(3 * LIMIT)]
    nc.flush()
    for i, subscription in enumerate(subscriptions):
        nc.publish(f"burst.{i}", b"1")
        if i < LIMIT:
            assert subscription.next(SOON).data == b"1"
        else:
            with pytest.raises(errors.SubscriptionLimitError):
                subscription.next(SOON)


def test_interrupted_flushes_keep_no_old_commands(nc: jsync.Connection) -> None:
    for instruction in itertools.count():
        if not interrupted_before(instruction, {str(session.__file__)}, nc.flush):
            break
        for _ in range(session.MAX_COMMANDS):
            nc.subscribe("a").unsubscribe()
        nc.flush()
        nc.flush()  # the PONG of the last one may have been for an earlier command
        assert len(nc._session._commands) <= 2 * session.MAX_COMMANDS
    assert instruction > 10


def test_unused_inboxes_make_room_after_a_rejection(nc: jsync.Connection) -> None:
    stream = nc.jetstream().stream("LIMITED")
    stream.purge()
    consumer = stream.consumer("reader")
    pulls = [consumer.fetch(1, timeout=0.1) for _ in range(LIMIT - 1)]
    for pull in pulls:
        list(pull)
    with pytest.raises(errors.SubscriptionLimitError):
        nc.subscribe("one.more").next(SOON)
    nc.subscribe("one.more")
    nc.publish("one.more", b"1")
    with nc.subscribe("two.more") as subscription:
        nc.publish("two.more", b"2")
        assert subscription.next(SOON).data == b"2"


def test_a_lower_limit_ends_the_newest(own_server: StartServer, tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(CONFIG)
    server = own_server(config=config)
    with jsync.connect(server.url, reconnect_wait=0.05) as nc:
        subscriptions = fill(nc, LIMIT)
        config.write_text("max_subscriptions: 4\n")
        server.restart()
        nc.flush()
        for i, subscription in enumerate(subscriptions):
            nc.publish(f"full.{i}", b"1")
            if i < 4:
                assert subscription.next(SOON).data == b"1"
            else:
                with pytest.raises(errors.SubscriptionLimitError):
                    subscription.next(SOON)


def test_a_worker_without_a_subscription_ends(nc: jsync.Connection) -> None:
    worker = jsync.Worker(stream="LIMITED")

    @worker.handle("limited.a", consumer="worker")
    def handle(data: bytes) -> None:
        """Handle nothing."""

    nc.jetstream().account_info()
    fill(nc, LIMIT - 1)
    running = worker.start(nc)
    with pytest.raises(errors.SubscriptionLimitError):
        running.wait(SOON)
    assert not running.ready
    running.stop()
