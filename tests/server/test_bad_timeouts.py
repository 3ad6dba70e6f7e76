"""Tests that invalid timeouts are rejected before the call changes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import ConsumerConfig, StreamConfig, connect, errors
from jsync.errors import ConfigError

from ..support.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync import Connection
    from jsync.server import LocalServer

NO_TIMEOUTS = ["1", float("nan"), True, []]


@pytest.mark.parametrize("timeout", NO_TIMEOUTS)
def test_a_publisher_survives_bad_close_and_flush_timeouts(
    own_server: Callable[..., LocalServer], timeout: Any
) -> None:
    with connect(own_server().url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        with js.publisher() as publisher:
            for wait in (publisher.flush, publisher.close):
                with pytest.raises(ConfigError, match="timeout"):
                    wait(timeout)
            assert publisher.publish("s", b"x").result(30).seq == 1


@pytest.mark.parametrize("timeout", NO_TIMEOUTS)
def test_a_handler_survives_bad_stop_and_drain_timeouts(
    own_server: Callable[..., LocalServer], timeout: Any
) -> None:
    with connect(own_server().url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        consumer = js.create_consumer("S", ConsumerConfig(durable_name="c"))
        with consumer.consume(lambda msg: msg.ack()) as context:
            for end in (context.stop, context.drain):
                with pytest.raises(ConfigError, match="timeout"):
                    end(timeout)
            assert not context.closed


def readers(nc: Connection, name: str) -> dict[str, Callable[..., object]]:
    """Return the calls that wait for a message, on readers that have one already."""
    js = nc.jetstream()
    js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))
    bucket = js.create_key_value(bucket=name)
    bucket.put("k", b"v")
    consumer = js.create_consumer(name, ConsumerConfig(durable_name="c"))
    core = nc.subscribe(f"{name}.s")
    pushed = js.subscribe(f"{name}.s")
    messages = consumer.messages()
    watch = bucket.watch()
    with js.publisher() as publisher:
        futures = [publisher.publish(f"{name}.s", b"%d" % n) for n in range(8)]
    events = nc.events()
    batches = js.create_consumer(name, ConsumerConfig(durable_name="d")).arrow_batches()
    waiting: list[Any] = [core, pushed, messages, batches]
    wait_for(lambda: all(each.pending for each in waiting))
    ordered = js.stream(name).ordered_consumer()
    return {
        "next of a subscription": core.next,
        "next of a push subscription": pushed.next,
        "next_msg": pushed.next_msg,
        "next of messages": messages.next,
        "next of batches": batches.next,
        "next of a consumer": js.consumer(name, "d").next,
        "next of an ordered consumer": ordered.next,
        "next of a watch": watch.next,
        "next of events": events.next,
        "result of a publish": futures[0].result,
        "exception of a publish": futures[0].exception,
        "fetch": lambda timeout: js.consumer(name, "c").fetch(1, timeout=timeout),
        "fetch of an ordered consumer": lambda t: ordered.fetch(1, timeout=t),
        "fetch of pull_subscribe": lambda timeout: js.pull_subscribe(
            f"{name}.s", "c", name
        ).fetch(1, timeout),
        "wait of a handler": consumer.consume(lambda _: None).wait,
    }


def test_invalid_timeouts_are_refused_though_a_message_waits(
    own_server: Callable[..., LocalServer],
) -> None:
    with connect(own_server().url) as nc:
        for call in readers(nc, "WAITS").values():
            for timeout in NO_TIMEOUTS:
                with pytest.raises(ConfigError, match="timeout"):
                    call(timeout)


def test_a_timeout_of_zero_is_not_the_default(
    own_server: Callable[..., LocalServer],
) -> None:
    with connect(own_server().url) as nc:
        js = nc.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        pushed, pulled = js.subscribe("s"), js.pull_subscribe("s", "c")
        for call in (pushed.consumer_info, pulled.consumer_info, pushed.unsubscribe):
            with pytest.raises(errors.TimeoutError, match=r"timeout is 0 s"):
                call(timeout=0)
