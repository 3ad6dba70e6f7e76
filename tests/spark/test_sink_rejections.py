"""Tests that only the fault of a row makes a dead letter, without a session.

An error of the stream, the server or the moment fails the task, and Spark repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import jsync
from jsync import errors
from jsync.spark.connection import close_connections
from jsync.spark.options import Options
from jsync.spark.sink.columns import ColumnPlan
from jsync.spark.sink.options import SinkSettings
from jsync.spark.sink.publishers import TaskPublisher
from jsync.spark.sink.report import TaskReport
from jsync.spark.sink.target import target_of
from jsync.spark.sink.writer import JetStreamWriter

from ..support.servers import wait_for
from .sink_support import stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.datasource import WriterCommitMessage

    from jsync.server import LocalServer

FIELDS = [("subject", "string"), ("data", "string")]


@pytest.fixture
def dead(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    stream = js.create_stream(
        name=f"{unique}-dead", subjects=[f"dead.{unique}"], storage="memory"
    )
    yield stream
    stream.delete()


def task_of(
    js: jsync.JetStream,
    stream: jsync.Stream,
    delivery: str = "at-least-once",
    *,
    is_named: bool = True,
    prefix: str = "",
    timeout: float = 1.0,
) -> TaskPublisher:
    """Return a task that writes into the stream, and makes dead letters.

    Args:
        js: JetStream.
        stream: The stream.
        delivery: The option of the name.
        is_named: The option `stream` names it, so the sink knows its subjects.
        prefix: The option `nats.apiPrefix`.
        timeout: Seconds for each message, with its repetitions.
    """
    given = {"deadLetterSubject": f"dead.{stream.name}", "delivery": delivery}
    if is_named:
        given["stream"] = stream.name
    if prefix:
        given["nats.apiPrefix"] = prefix
    settings = SinkSettings.of(Options(given, "write"))
    plan = ColumnPlan.of([*FIELDS, ("msg_id", "string"), ("ttl", "int")])
    target = target_of(settings, plan, stream.info().config) if is_named else None
    return TaskPublisher(
        js, settings, plan, target, timeout=timeout, max_payload=1 << 20
    )


def send(task: TaskPublisher, rows: pa.RecordBatch) -> None:
    task.publish(rows)
    task.close()


def batch(*rows: tuple[str, int | None], data: str = "x") -> pa.RecordBatch:
    """Return rows of these subjects and times to live."""
    return pa.RecordBatch.from_pydict(
        {
            "subject": [subject for subject, _ in rows],
            "data": [data] * len(rows),
            "msg_id": [f"id {number}" for number in range(len(rows))],
            "ttl": pa.array([ttl for _, ttl in rows], pa.int32()),
        }
    )


def change_subjects(js: jsync.JetStream, stream: jsync.Stream) -> None:
    """As without a leader, nobody answers."""
    stream.update(subjects=[f"{stream.name}-other.>"])


def recreate_without_ttl(js: jsync.JetStream, stream: jsync.Stream) -> None:
    stream.delete()
    js.create_stream(name=stream.name, subjects=[f"{stream.name}.>"], storage="memory")


def give_to_another(js: jsync.JetStream, stream: jsync.Stream) -> None:
    stream.update(subjects=[f"{stream.name}-other.>"])
    dead = js.stream(f"{stream.name}-dead")
    subjects = [*(dead.config.subjects or ()), f"{stream.name}.>"]
    dead.update(subjects=subjects, allow_msg_ttl=True)


def fill_up(js: jsync.JetStream, stream: jsync.Stream) -> None:
    stream.update(max_msgs=1, discard="new")
    js.publish(f"{stream.name}.first", b"")


@pytest.mark.parametrize(
    ("change", "delivery"),
    [
        (change_subjects, "at-least-once"),
        (change_subjects, "exactly-once"),
        (recreate_without_ttl, "exactly-once"),
        (give_to_another, "exactly-once"),
        (fill_up, "exactly-once"),
    ],
)
def test_an_error_of_the_stream_fails_the_task(
    js: jsync.JetStream, unique: str, dead: jsync.Stream, delivery: str, change: Any
) -> None:
    stream = js.create_stream(
        name=unique, subjects=[f"{unique}.>"], storage="memory", allow_msg_ttl=True
    )
    task = task_of(js, stream, delivery)
    change(js, stream)
    with pytest.raises(errors.Error):
        send(task, batch((f"{unique}.a", 60), (f"{unique}.b", 60)))
    assert task.dead_letters == 0
    assert stored(dead, "data") == []
    js.delete_stream(unique)


def test_the_subject_of_requests_makes_dead_letters(
    js: jsync.JetStream, unique: str, stream: jsync.Stream, dead: jsync.Stream
) -> None:
    task = task_of(js, stream, is_named=False, prefix="js.hub")
    apis = ("$JS.API", "$JS.hub.API", "js.hub", "$SYS")
    subjects = [f"{unique}.a", *(f"{api}.STREAM.DELETE.{unique}" for api in apis)]
    send(task, batch(*((subject, None) for subject in subjects), data=""))
    assert stream.info().state.messages == 1
    assert len(stored(dead, "data")) == task.dead_letters == 4


def test_a_stream_without_a_leader_is_waited_for(
    nc: jsync.Connection,
    js: jsync.JetStream,
    unique: str,
    stream: jsync.Stream,
    dead: jsync.Stream,
) -> None:
    """Nobody answers at first, which is no reason to make a dead letter."""
    stream.update(allow_msg_ttl=True)
    task = task_of(js, stream, timeout=60)
    stream.update(subjects=[f"{unique}-other.>"])
    sent = nc.stats().out_messages
    task.publish(batch((f"{unique}.a", None)))
    wait_for(lambda: nc.stats().out_messages >= sent + 3)
    stream.update(subjects=[f"{unique}.>"])
    assert task.close().rows == 1
    assert stored(dead, "data") == []


def test_a_subject_of_no_stream_makes_dead_letters(
    js: jsync.JetStream, unique: str, stream: jsync.Stream, dead: jsync.Stream
) -> None:
    """The stream of a write without the option is not known."""
    task = task_of(js, stream, is_named=False)
    task.publish(batch((f"{unique}.a", None), ("nobody.takes.it", None)))
    assert task.close().rows == 1
    assert task.dead_letters == 1
    assert len(stored(dead, "data")) == 1


def test_an_unanswered_subject_of_a_stream_fails(
    js: jsync.JetStream,
    unique: str,
    stream: jsync.Stream,
    dead: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stream has no leader now, or it cannot be known whether there is a stream."""
    answers: list[str | Exception] = ["A", errors.TimeoutError("nobody")]

    def find(js: jsync.JetStream, subject: str) -> str:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(jsync.JetStream, "stream_name_by_subject", find)
    while answers:
        task = task_of(js, stream, is_named=False)
        with pytest.raises(errors.NoStreamResponseError):
            send(task, batch(("leaderless.subject", None)))
        assert task.dead_letters == 0


def test_lost_rows_are_said_at_the_commit(
    server: LocalServer, stream: jsync.Stream, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"nats.servers": server.url, "stream": stream.name, "subject": stream.name}
    given["subject"] += ".x"
    schema = StructType([StructField("data", StringType())])
    writer = JetStreamWriter(Options(given), schema, overwrite=False)
    writer.commit([TaskReport(rows=2, confirmed=2, duplicates=1, key="job.x")])
    assert "lost" not in caplog.text
    lost = TaskReport(rows=2, confirmed=2, duplicates=1, collisions=1, key="job.x")
    writer.commit([lost])
    assert "up to 1 rows of batch 0 of job.x are lost" in caplog.text
    assert "for example" not in caplog.text
    close_connections()


def test_the_commit_names_repeated_ids(
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"nats.servers": server.url, "stream": stream.name}
    schema = StructType(
        [StructField(name, StringType()) for name in ("subject", "data")]
    )
    writer = JetStreamWriter(Options(given), schema, overwrite=False)
    subject = f"{stream.name}.x"
    sequences = [js.publish(subject, b"", msg_id=f"n{each}").seq for each in range(5)]
    stream.delete_message(sequences[4])
    tasks: list[WriterCommitMessage | None] = [
        TaskReport(rows=2, collisions=1, collision_sequence=sequence, key="job.x")
        for sequence in sequences[::-1]
    ]
    writer.commit(tasks)
    assert "up to 5 rows of batch 0 of job.x are lost" in caplog.text
    assert "for example 'n0', 'n1', 'n2'. Give" in caplog.text
    close_connections()


def test_a_fence_that_expires_is_refused(
    server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    js.create_key_value(bucket=stream.name, ttl=60)
    chosen = {
        "nats.servers": server.url,
        "stream": stream.name,
        "delivery": "exactly-once",
        "fenceBucket": stream.name,
    }
    names = ("subject", "data", "msg_id")
    schema = StructType([StructField(name, StringType()) for name in names])
    try:
        with pytest.raises(errors.ConfigError, match=r"fenceBucket.* ttl of 60 s"):
            JetStreamWriter(Options(chosen, "write"), schema, overwrite=False)
    finally:
        close_connections()
        js.delete_key_value(stream.name)
