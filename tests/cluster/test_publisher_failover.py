"""Tests of a publisher into a replicated stream while its leader changes and servers die."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

import pytest

import jsync
from jsync import errors

from ..support.connection_faults import Events, connect
from ..support.proxy import FaultProxy
from ..support.servers import wait_for
from ..support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

LONG = 120.0
Result = TypeVar("Result")


def answered(call: Callable[[], Result]) -> Result:
    """Retry the call until the cluster answers it, and return the result."""
    results: list[Result] = []

    def works() -> bool:
        with contextlib.suppress(errors.Error):
            results.append(call())
        return bool(results)

    wait_for(works, LONG)
    return results[0]


def held(js: jsync.JetStream, name: str) -> list[bytes]:
    """Return every payload of the stream."""

    def read() -> list[bytes]:
        stream = js.stream(name)
        with stream.ordered_consumer().messages(until_end=True) as messages:
            found = [msg.data for msg in messages]
        if len(found) < stream.info().state.messages:
            raise errors.TimeoutError("the leader may have more by now")
        return found

    return answered(read)


@pytest.mark.parametrize("harm", ["step down", "kill the leader"])
@pytest.mark.parametrize("resend", [False, True])
def test_messages_reported_stored_outlive_the_leader(
    whole: Cluster, unique: str, harm: str, resend: bool
) -> None:
    futures: list[tuple[bytes, jsync.PubAckFuture]] = []
    step_down = f"$JS.API.STREAM.LEADER.STEPDOWN.{unique}"
    stop = threading.Event()
    with connect(whole.urls, Events()) as nc:
        js = nc.jetstream(timeout=2)
        answered(
            lambda: js.create_stream(name=unique, subjects=[unique], num_replicas=3)
        )
        # A leader that steps down never answers the messages on their way to it.
        ack_timeout = LONG if resend else 2.0
        # An election can take longer than two attempts, the default.
        publisher = js.publisher(
            window=200,
            resend=resend,
            ack_timeout=ack_timeout,
            stall_timeout=LONG,
            retry_attempts=-1,
        )

        def publish() -> None:
            count = 0
            while not stop.is_set():
                data = b"%d" % count
                count += 1
                future = publisher.publish(unique, data, msg_id=data.decode())
                futures.append((data, future))

        def wait_for_acks() -> None:
            """Wait until many more messages are stored."""
            before = len(futures)
            wait_for(lambda: len(futures) > before + 2000, LONG)
            wait_for(futures[before + 1000][1].done, LONG)

        writer = Thread(publish)
        wait_for_acks()
        for _ in range(2 if harm == "step down" else 1):
            if harm == "step down":
                answered(lambda: nc.request(step_down, timeout=2))
            else:
                leader = whole.stream_leader(unique)
                leader.kill()
                wait_for_acks()
                leader.start()
                whole.wait_until_ready()
            wait_for_acks()
        stop.set()
        writer.result()
        with contextlib.suppress(errors.PublisherError):
            publisher.close()
        stored = Counter(held(js, unique))
        failed = {
            data: error
            for data, future in futures
            if (error := future.exception()) is not None
        }
        acked = {data for data, future in futures if future.exception() is None}
        assert acked <= set(stored)
        assert set(stored) <= acked | set(failed)
        assert max(stored.values()) == 1
        if resend:
            assert failed == {}
        with contextlib.suppress(errors.TimeoutError):
            js.delete_stream(unique)


@contextlib.contextmanager
def under_way(cluster: Cluster, stream: str) -> Iterator[None]:
    """Keep the messages that reach the leader of the stream from being stored until the end."""
    leader = cluster.stream_leader(stream)
    followers = [server for server in cluster.servers if server is not leader]
    for follower in followers:
        follower.pause()
    try:
        yield
    finally:
        for follower in followers:
            follower.resume()


def test_a_resent_message_waits_for_its_first_copy(whole: Cluster, unique: str) -> None:
    with connect(whole.urls, Events()) as direct:
        js = direct.jetstream(timeout=LONG)
        answered(
            lambda: js.create_stream(name=unique, subjects=[unique], num_replicas=3)
        )
        leader = whole.stream_leader(unique)
        with (
            FaultProxy("127.0.0.1", leader.port) as proxy,
            connect(proxy.url, Events(), ignore_discovered_servers=True) as nc,
            nc.jetstream().publisher(resend=True, ack_timeout=LONG) as publisher,
        ):
            publisher.publish(unique, b"", msg_id="first").result(LONG)
            with under_way(whole, unique):
                ids = [str(number) for number in range(300)]
                futures = publisher.publish_many(
                    unique, [msg_id.encode() for msg_id in ids], msg_ids=ids
                )
                nc.flush(LONG)
                proxy.cut()
                wait_for(lambda: nc.stats().out_messages > 2 * len(ids))
                # The replies to these messages say that their first copies are in process.
                nc.flush(LONG)
            for future in futures:
                future.result(LONG)
        assert publisher.failed == 0
        stored = Counter(held(js, unique))
        assert stored == {b"": 1, **{msg_id.encode(): 1 for msg_id in ids}}
        js.delete_stream(unique)


def test_publishing_an_id_in_process_is_a_conflict(whole: Cluster, unique: str) -> None:
    with connect(whole.urls, Events()) as direct:
        js = direct.jetstream(timeout=LONG)
        answered(
            lambda: js.create_stream(name=unique, subjects=[unique], num_replicas=3)
        )
        leader = whole.stream_leader(unique)
        with (
            connect(leader.url, Events(), ignore_discovered_servers=True) as nc,
            nc.jetstream().publisher(ack_timeout=LONG) as one,
            nc.jetstream().publisher(resend=True, ack_timeout=LONG) as other,
        ):
            one.publish(unique, b"", msg_id="first").result(LONG)
            with under_way(whole, unique):
                mine = one.publish(unique, b"mine", msg_id="id")
                theirs = other.publish(unique, b"theirs", msg_id="id")
                error = theirs.exception(LONG)
            assert isinstance(error, errors.DuplicateMessageConflictError)
            mine.result(LONG)
        assert held(js, unique) == [b"", b"mine"]
        js.delete_stream(unique)
