"""Tests of whose word on the end of a stream the data source believes. No JVM is needed."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import jsync
from jsync.spark.monitoring.lag import measure_lag
from jsync.spark.monitoring.metrics import QueryMetrics, StreamMetrics
from jsync.spark.stream_state import fetch_bounds

from ..support.connection_faults import FakeServer
from ..support.fake_jetstream import FakeReply, answer_requests

if TYPE_CHECKING:
    from collections.abc import Iterator


def said(last: int, silence: float) -> FakeReply:
    """What a leader says that most servers answered so many seconds ago."""
    replicas = [
        {"name": name, "current": True, "active": int(silence * 1e9)} for name in "bc"
    ]
    info = {
        "config": {"name": "S", "num_replicas": 3},
        "created": "2026-01-31T12:00:00Z",
        "state": {"messages": last, "first_seq": 1, "last_seq": last},
        "cluster": {"name": "C", "leader": "a", "replicas": replicas},
    }
    return FakeReply(json.dumps(info).encode())


@contextlib.contextmanager
def answering(*answers: FakeReply) -> Iterator[jsync.JetStream]:
    """Answer requests for the info of S with these answers, and then with the last one."""
    left = list(answers)

    def answer(subject: str, payload: bytes) -> list[FakeReply]:
        assert subject == "$JS.API.STREAM.INFO.S", subject
        return [left.pop(0) if len(left) > 1 else left[0]]

    with FakeServer(answer_requests(answer)) as fake, jsync.connect(fake.url) as nc:
        yield nc.jetstream(timeout=0.3)


def test_a_batch_ends_where_its_leader_says() -> None:
    """A leader that was cut off does not know of the last messages."""
    with answering(said(7, 60.0), said(9, 0.1)) as js:
        assert fetch_bounds(js, "S", 5)[1].next == 10


def test_an_old_word_is_no_lag() -> None:
    place = StreamMetrics(created="2026-01-31T12:00:00+00:00", next=8)
    query = QueryMetrics(id="q", streams={"S": place})
    with answering(said(7, 60.0)) as js:
        assert measure_lag(js, query) is not None
    assert query.lag is None
    with answering(said(7, 0.1)) as js:
        assert measure_lag(js, query) is None
    assert query.lag == 0
