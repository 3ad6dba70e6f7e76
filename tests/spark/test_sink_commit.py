"""Tests of what a commit notes in the fence while others write there too. No JVM is needed."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

import jsync
from jsync import errors
from jsync.spark.monitoring.status_store import open_status_bucket
from jsync.spark.sink.batch_fence import BatchFence, commit
from jsync.spark.sink.bucket import Bucket, open_bucket
from jsync.spark.sink.fence_state import Digest, TaskAttempt
from jsync.spark.sink.report import BatchReport, TaskReport
from jsync.spark.sink.target import SinkTarget

from ..support.accounts import MAX_BYTES_REQUIRED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..conftest import StartServer


class Fence:
    """A fence, and the commits of one query into it."""

    key = "query.q"

    def __init__(self, js: jsync.JetStream, stream: jsync.Stream) -> None:
        self._js = js
        self._stream = stream
        self.name = f"{stream.name}fence"
        self.bucket = open_bucket(js, self.name)

    def commit(
        self, batch: int, rows: int, *, fenced: bool = True, **report: Any
    ) -> None:
        task = TaskReport(rows=rows, digest=Digest(rows), key=self.key, **report)
        commit(
            lambda: self._js,
            self.name,
            self.key,
            batch,
            BatchReport.of([task]),
            fenced=self._stream.name if fenced else None,
            last=False,
        )

    def put(self, key: str, data: bytes) -> None:
        self._js.publish(f"$KV.{self.name}.{key}", data)

    @property
    def entry(self) -> dict[str, Any]:
        subject = f"$KV.{self.name}.{self.key}.committed"
        message = self.bucket.get_message(last_by_subject=subject)
        found: dict[str, Any] = json.loads(message.data)
        return found


@pytest.fixture
def fence(js: jsync.JetStream, stream: jsync.Stream) -> Iterator[Fence]:
    fence = Fence(js, stream)
    yield fence
    fence.bucket.delete()


def test_buckets_of_queries_exist_where_streams_need_limits(
    own_server: StartServer,
) -> None:
    server = own_server(config=MAX_BYTES_REQUIRED)
    with jsync.connect(server.url) as nc:
        js = nc.jetstream()
        open_bucket(js, "fence")
        Bucket(js, "fence").put("key", b"data")
        open_status_bucket(js, "progress").put("key", b"data")


@pytest.mark.parametrize("rows", [0, 5])
def test_a_fence_never_goes_back(fence: Fence, rows: int) -> None:
    """Two drivers run a query, and one of them was held up. Or its checkpoint is old."""
    fence.commit(4, 10)
    with pytest.raises(errors.CheckpointError, match="older than the last batch"):
        fence.commit(3, rows)
    assert fence.entry["batch"] == 4


def test_a_slow_commit_replaces_no_later_batch(
    fence: Fence, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Bucket.put

    def overtaken(self: Bucket, *args: Any, **options: Any) -> int:
        monkeypatch.setattr(Bucket, "put", put)
        fence.commit(5, 10)  # another driver, between the look and the put
        return put(self, *args, **options)

    fence.commit(3, 10)
    monkeypatch.setattr(Bucket, "put", overtaken)
    with pytest.raises(errors.CheckpointError, match="older than the last batch"):
        fence.commit(4, 10)
    assert fence.entry["batch"] == 5


@pytest.mark.parametrize("rows", [0, 5])
def test_two_jobs_of_one_name_are_noticed(fence: Fence, rows: int) -> None:
    """Both have written before one of them commits."""
    fence.commit(4, 10)
    with pytest.raises(errors.CheckpointError, match=f"other rows .10, now {rows}"):
        fence.commit(4, rows)
    fence.commit(4, 10)
    assert fence.entry["digest"]["rows"] == 10


@pytest.mark.parametrize("fenced", [True, False])
def test_a_commit_without_an_answer_counts_once(
    fence: Fence, monkeypatch: pytest.MonkeyPatch, fenced: bool
) -> None:
    put, lost = Bucket.put, [True]

    def unanswered(self: Bucket, *args: Any, **options: Any) -> int:
        revision = put(self, *args, **options)
        if lost and lost.pop():
            raise errors.TimeoutError("the answer was lost")
        return revision

    monkeypatch.setattr(Bucket, "put", unanswered)
    fence.commit(0, 10, fenced=fenced, dead_letters=2)
    lost.append(False)
    fence.commit(1, 10, fenced=fenced, dead_letters=1)
    assert fence.entry["totals"]["dead_letters"] == 3
    assert not lost


def test_a_damaged_entry_stops_its_query_alone(
    fence: Fence, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "jsync.spark")
    fence.put("query.other.committed", b"\xff")
    fence.put("query.third.committed", b'{"type": "committed"}')
    fence.commit(0, 10)
    fence.put("query.q.committed", b'{"type": 1}')
    with pytest.raises(
        errors.CheckpointError, match=r"query\.q\.committed .* unreadable"
    ):
        fence.commit(1, 10)


def test_a_stream_recreated_before_the_commit_is_noticed(
    js: jsync.JetStream, stream: jsync.Stream, fence: Fence
) -> None:
    """The commit would otherwise note the new stream, in which the rows are missing."""
    attempt = TaskAttempt(0, "run")
    target = SinkTarget(stream.name, window=120, ingest=False, subjects=None)
    BatchFence(js, fence.name, target, fence.key, attempt, 0).check_in()
    js.publish(f"{stream.name}.a", b"row")
    js.delete_stream(stream.name)
    js.create_stream(name=stream.name, subjects=[f"{stream.name}.>"])
    with pytest.raises(errors.DataLossError, match="was recreated"):
        fence.commit(0, 1)
    again = BatchFence(js, fence.name, target, fence.key, attempt, 1)
    with pytest.raises(errors.DataLossError, match="was recreated"):
        again.check_in()
    fence.bucket.purge(subject=f"$KV.{fence.name}.{fence.key}.begun")
    BatchFence(js, fence.name, target, fence.key, attempt, 0).check_in()
    fence.commit(0, 1)
    assert fence.entry["batch"] == 0
