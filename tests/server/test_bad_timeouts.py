"""A timeout that is none is refused before anything ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync import ConsumerConfig, StreamConfig, connect
from jsync.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jsync.server import LocalServer

NO_TIMEOUTS = ["1", float("nan"), True, []]


@pytest.mark.parametrize("timeout", NO_TIMEOUTS)
def test_a_publisher_goes_on_after_a_close_or_flush_without_sense(
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
def test_a_handler_goes_on_after_a_stop_or_drain_without_sense(
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
