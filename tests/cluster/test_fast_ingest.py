"""Tests of fast ingest into a replicated stream while leaders step down and die."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync.jetstream.ingest.engine import IngestState, RecoveryPoint
from jsync.jetstream.ingest.recovery import find_ambiguity

from ..server.jetstream.ingest.test_faults import check, pour
from ..server.jetstream.ingest.test_ingest import numbers, stored
from ..support.connection_faults import Events, connect
from ..support.servers import wait_for
from ..support.threads import Recorder, Thread
from .test_failover import lent as lent, whole as whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jsync import FastIngest, JetStream

    from ..support.servers import Cluster

pytestmark = pytest.mark.cluster

COUNT = 40_000


@pytest.fixture
def js(whole: Cluster, unique: str) -> Iterator[JetStream]:
    """A context with a replicated stream for this test alone."""
    whole.wait_until_ready()
    with connect(whole.urls, Events()) as nc:
        js = nc.jetstream(timeout=20)
        js.create_stream(
            name=unique, subjects=[f"{unique}.>"], allow_batched=True, num_replicas=3
        )
        yield js
        js.delete_stream(unique)


def step_down(js: JetStream, stream: str) -> None:
    """Ask the leader to step down. Without a leader the request fails or gets no reply."""
    with contextlib.suppress(jsync.errors.APIError, jsync.errors.TimeoutError):
        js._api.request(f"STREAM.LEADER.STEPDOWN.{stream}", timeout=2)


def pouring(ingest: FastIngest, unique: str) -> Thread[None]:
    thread = Thread(pour, ingest, f"{unique}.a", numbers(COUNT), 300)
    wait_for(lambda: ingest.acked > 1000 or thread.ended)
    return thread


def test_leaders_that_step_down_lose_and_double_nothing(
    js: JetStream, unique: str
) -> None:
    ingest = js.fast_ingest()
    thread = pouring(ingest, unique)
    changes = 0
    while not thread.ended and changes < 8:
        step_down(js, unique)
        changes += 1
        # Step down sometimes right after the new leader has started, and sometimes later.
        acked = ingest.acked + (0, 2000)[changes % 2]
        wait_for(lambda: thread.ended or ingest.acked > acked)  # noqa: B023
    thread._future.result(60)
    assert changes
    found = stored(js, unique)
    check(ingest, found, numbers(COUNT))


def test_the_leader_answers_which_messages_a_stream_holds(
    whole: Cluster, js: JetStream, unique: str
) -> None:
    with js.fast_ingest() as ingest:
        ingest.add_many(f"{unique}.a", numbers(100))
    end = ingest.pub_ack.seq
    nothing_behind = RecoveryPoint(unique, end, 0, final=True)
    for _ in range(3):
        step_down(js, unique)
        assert find_ambiguity(js._api, nothing_behind, b"x", in_seconds(30)) is None
        some_behind = RecoveryPoint(unique, end - 1, 0, final=True)
        doubt = find_ambiguity(js._api, some_behind, b"99", in_seconds(30))
        assert doubt == f"message {end} of stream {unique!r} may belong to the ingest"
        assert find_ambiguity(js._api, some_behind, b"x", in_seconds(30)) is None


def in_seconds(seconds: float) -> float:
    return time.monotonic() + seconds


def test_ok_reports_messages_lost_by_a_leader_change(
    js: JetStream, unique: str
) -> None:
    ingest = js.fast_ingest(gaps="ok", on_error=Recorder())
    thread = pouring(ingest, unique)
    step_down(js, unique)
    thread._future.result(60)
    unsure = {
        n - 1
        for one in ingest.unconfirmed_ranges
        for n in range(one.first, one.last + 1)
    }
    lost = {n - 1 for one in ingest.lost for n in range(one.first, one.last + 1)}
    found = stored(js, unique)
    payloads = numbers(COUNT)
    said = [p for n, p in enumerate(payloads) if n not in lost | unsure]
    assert not {payloads[n] for n in lost} & set(found)
    assert not lost & unsure
    assert ingest.pub_ack.count == COUNT
    assert set(said) <= set(found)
    assert found == sorted(set(found), key=int)


@pytest.mark.parametrize("ids", [True, False])
def test_every_message_reported_stored_survives_a_killed_leader(
    whole: Cluster, js: JetStream, unique: str, ids: bool
) -> None:
    payloads = numbers(COUNT)
    # Connect to another server, so that only the leader of the stream goes away.
    leader = whole.stream_leader(unique)
    url = next(server.url for server in whole.servers if server is not leader)
    with connect(url, Events(), ignore_discovered_servers=True) as nc:
        ingest = nc.jetstream().fast_ingest(ack_timeout=20)

        def work() -> None:
            try:
                with ingest:
                    for number, payload in enumerate(payloads):
                        options: Any = {"msg_id": f"{number}"} if ids else {}
                        ingest.add(f"{unique}.a", payload, **options)
            except jsync.errors.IngestError:
                pass

        thread = Thread(work)
        wait_for(lambda: ingest.acked > 1000 or thread.ended)
        leader.kill()
        thread._future.result(60)
        leader.start()
        whole.wait_until_ready()
        wait_for(lambda: bool(whole.stream_leader(unique)))
        found = stored(js, unique)
        check(ingest, found, payloads)
        if ids:
            assert ingest._engine.state is IngestState.ENDED, ingest._engine.error()
