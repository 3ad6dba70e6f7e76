"""Tests of ordered consumers of a replicated stream while leaders change and servers die."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

from jsync import errors
from jsync.spark.stream_state import pending

from ..support.connection_faults import Events, connect
from ..support.servers import monitor, wait_for
from ..support.threads import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import jsync
    from jsync.server import LocalServer

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

LONG = 120.0
QUICK: dict[str, Any] = {"expires": 2.0, "idle_heartbeat": 0.5, "max_messages": 50}
LOST = (
    errors.OrderedConsumerResetError,
    errors.APIError,
    errors.TimeoutError,
    errors.PullError,
    errors.NoRespondersError,
)


@pytest.fixture
def writer(whole: Cluster) -> Iterator[jsync.Connection]:
    with connect(whole.urls, Events()) as connection:
        yield connection


@pytest.fixture
def reader(whole: Cluster) -> Iterator[jsync.Connection]:
    with connect(whole.urls, Events()) as connection:
        yield connection


def with_retries(call: Callable[[], Any]) -> Any:
    """Retry the call until the cluster can answer it."""
    result: list[Any] = []

    def works() -> bool:
        with contextlib.suppress(
            errors.APIError,
            errors.TimeoutError,
            errors.ConnectionError,
            errors.NoStreamResponseError,
            errors.NoRespondersError,
        ):
            result.append(call())
        return bool(result)

    wait_for(works, LONG)
    return result[0]


def delete_stream(js: jsync.JetStream, name: str) -> None:
    """Delete a stream. A request is lost with the leader that gets it."""

    def delete() -> bool:
        with contextlib.suppress(errors.StreamNotFoundError):
            js.stream(name).delete(timeout=5)
        return True

    with_retries(delete)


@pytest.fixture
def stream(writer: jsync.Connection, unique: str) -> Iterator[str]:
    """The name of a stream on all three servers."""
    js = writer.jetstream(timeout=2)
    with_retries(
        lambda: js.create_stream(name=unique, subjects=[unique], num_replicas=3)
    )
    yield unique
    delete_stream(js, unique)


def publish(writer: jsync.Connection, stream: str, count: int) -> None:
    """Store the next `count` numbers."""
    js = writer.jetstream(timeout=2)
    first = with_retries(lambda: js.stream(stream)).info().state.last_seq
    for number in range(first, first + count):
        with_retries(partial(js.publish, stream, b"%d" % number, msg_id=str(number)))


def take(messages: jsync.MessagesContext, count: int) -> list[int]:
    return [int(messages.next(LONG).data) for _ in range(count)]


def host(cluster: Cluster, stream: str) -> LocalServer:
    """Return the server that hosts the only consumer of the stream."""
    found: list[LocalServer] = []

    def has_it(server: LocalServer) -> bool:
        jsz = monitor(server, "jsz?accounts=1&streams=1&consumers=1")
        return any(
            detail["name"] == stream and detail.get("consumer_detail")
            for account in jsz.get("account_details", ())
            for detail in account.get("stream_detail", ())
        )

    def is_found() -> bool:
        found.extend(s for s in cluster.servers if s.is_running and has_it(s))
        return bool(found)

    wait_for(is_found, LONG)
    return found[0]


def step_down(writer: jsync.Connection, what: str) -> None:
    def stepped_down() -> bool:
        reply = writer.request(f"$JS.API.{what}", timeout=2)
        return bool(json.loads(reply.data).get("success"))

    assert with_retries(stepped_down)


def all_are(told: Recorder, kinds: tuple[type[Exception], ...]) -> bool:
    while told.waiting:
        error = told.get()
        assert isinstance(error, kinds), error
    return True


def test_order_is_exact_while_the_stream_leader_changes(
    writer: jsync.Connection, reader: jsync.Connection, stream: str
) -> None:
    told = Recorder()
    consumer = with_retries(lambda: reader.jetstream().ordered_consumer(stream))
    with consumer.messages(**QUICK, on_error=told) as messages:
        got: list[int] = []
        for _ in range(4):
            publish(writer, stream, 100)
            got += take(messages, 50)
            step_down(writer, f"STREAM.LEADER.STEPDOWN.{stream}")
            got += take(messages, 50)
        assert got == list(range(400))
        assert not messages.closed
    assert all_are(told, LOST)


@pytest.mark.parametrize("victim", ["the consumer's server", "the reader's server"])
def test_order_is_exact_when_a_server_is_killed(
    whole: Cluster,
    writer: jsync.Connection,
    reader: jsync.Connection,
    stream: str,
    victim: str,
) -> None:
    told = Recorder()
    publish(writer, stream, 200)
    consumer = with_retries(
        lambda: reader.jetstream(timeout=2).ordered_consumer(stream)
    )
    with consumer.messages(**QUICK, on_error=told) as messages:
        got = take(messages, 100)
        if victim == "the consumer's server":
            killed = host(whole, stream)
        else:
            killed = next(s for s in whole.servers if s.url == reader.connected_url)
        killed.kill()
        publish(writer, stream, 100)
        got += take(messages, 150)
        killed.start()
        whole.wait_until_ready()
        publish(writer, stream, 100)
        got += take(messages, 150)
    assert got == list(range(400))
    assert all_are(told, LOST)


def test_reading_to_the_end_is_exact_despite_kills(
    whole: Cluster, writer: jsync.Connection, reader: jsync.Connection, stream: str
) -> None:
    publish(writer, stream, 300)
    consumer = with_retries(
        lambda: reader.jetstream(timeout=2).ordered_consumer(stream)
    )
    with consumer.messages(**QUICK, until_end=True) as messages:
        got = take(messages, 60)
        killed = host(whole, stream)
        killed.kill()
        got += take(messages, 120)
        killed.start()
        whole.wait_until_ready()
        got += [int(msg.data) for msg in messages]
    assert got == list(range(300))


READS: dict[str, Callable[[jsync.Stream], list[bytes]]] = {
    "messages": lambda stream: [
        msg.data for msg in stream.ordered_consumer().messages(until_end=True)
    ],
    "fetch": lambda stream: [
        msg.data for msg in stream.ordered_consumer().fetch(1, timeout=LONG)
    ],
    "arrow": lambda stream: [
        data
        for batch in stream.read_arrow(columns=["data"])
        for data in pyarrow.record_batch(batch)["data"].to_pylist()
    ],
}


@pytest.fixture
def interest(writer: jsync.Connection, unique: str) -> Iterator[jsync.Stream]:
    """A replicated stream that keeps its one message for its consumer."""
    js = writer.jetstream(timeout=10)
    fields: dict[str, Any] = {"num_replicas": 3, "retention": "interest"}
    stream: jsync.Stream = with_retries(
        lambda: js.create_stream(name=unique, subjects=[f"0.{unique}"], **fields)
    )
    stream.create_consumer(durable_name="keeps")
    js.publish(f"0.{unique}", b"1")
    yield stream
    stream.delete()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_replicated_stream_with_interest_is_read(
    interest: jsync.Stream, read: Callable[[jsync.Stream], list[bytes]]
) -> None:
    assert read(interest) == [b"1"]


def test_spark_counts_a_replicated_stream_with_interest(
    interest: jsync.Stream,
) -> None:
    assert pending(interest, 1, []) == 1


def test_a_group_counts_a_replicated_stream_with_interest(
    writer: jsync.Connection, interest: jsync.Stream
) -> None:
    js = writer.jetstream(timeout=10)
    group = js.create_consumer_group(
        interest.name, "a", partitions=1, members=["m"], kind="static"
    )
    assert group.lag() == {0: 1}
    js.delete_consumer_group(interest.name, "a")
