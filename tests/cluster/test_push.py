"""Tests of push subscriptions on a replicated stream while leaders change and servers die."""

from __future__ import annotations

import contextlib
import json
import queue
from typing import TYPE_CHECKING

import pytest

from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.servers import wait_for
from ..support.threads import Recorder
from .test_ordered import delete_stream, host, publish, with_retries

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsync

    from ..support.servers import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.fault]

LONG = 120.0


@pytest.fixture
def writer(whole: Cluster) -> Iterator[jsync.Connection]:
    with connect(whole.urls, Events()) as connection:
        yield connection


@pytest.fixture
def stream(writer: jsync.Connection, unique: str) -> Iterator[str]:
    """The name of a stream on all three servers."""
    js = writer.jetstream(timeout=2)
    with_retries(
        lambda: js.create_stream(name=unique, subjects=[unique], num_replicas=3)
    )
    yield unique
    delete_stream(js, unique)


def steps_down(writer: jsync.Connection, stream: str, consumer: str) -> bool:
    """Ask the leader of a consumer to step down, and return whether it does."""
    subject = f"$JS.API.CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}"
    with contextlib.suppress(errors.TimeoutError, errors.NoRespondersError):
        reply = writer.request(subject, timeout=2)
        return bool(json.loads(reply.data).get("success"))
    return False


def test_an_ordered_subscription_outlives_its_consumers_server(
    whole: Cluster, writer: jsync.Connection, stream: str
) -> None:
    problems = Recorder()
    publish(writer, stream, 20)
    with connect(whole.urls, Events()) as reader:
        js = reader.jetstream(timeout=2)
        sub = with_retries(
            lambda: js.subscribe(
                stream,
                stream=stream,
                ordered=True,
                idle_heartbeat=0.5,
                on_error=problems,
            )
        )
        seen = [int(sub.next(LONG).data) for _ in range(10)]
        host(whole, stream).kill()
        publish(writer, stream, 20)
        seen += [int(sub.next(LONG).data) for _ in range(30)]
        assert seen == list(range(40))
        sub.unsubscribe()


def test_every_message_is_handled_during_consumer_leader_changes(
    whole: Cluster, writer: jsync.Connection, stream: str
) -> None:
    handled: queue.SimpleQueue[int] = queue.SimpleQueue()
    with connect(whole.urls, Events()) as reader:
        js = reader.jetstream(timeout=5)
        sub = with_retries(
            lambda: js.subscribe(
                stream,
                stream=stream,
                durable="lasting",
                callback=lambda msg: handled.put(int(msg.data)),
                ack_wait=1,
                idle_heartbeat=0.5,
                flow_control=True,
            )
        )
        for round_ in range(2):
            publish(writer, stream, 10)
            wait_for(lambda: steps_down(writer, stream, "lasting"), LONG)
            seen: set[int] = set()
            while not set(range(round_ * 10, round_ * 10 + 10)) <= seen:
                seen.add(handled.get(timeout=LONG))
        with_retries(sub.unsubscribe)
