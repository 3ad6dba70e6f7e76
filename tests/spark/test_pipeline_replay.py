"""Tests of replaying a part of a stream into a sink, beside the running pipeline."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from jsync.errors import ConfigError, StreamNotFoundError
from jsync.spark import pipeline

from ..support.servers import wait_for
from .support import LONG, Reading, begun, fill, numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer

FILE = """
[nats]
servers = "{server}"
[streaming]
checkpoint = "{folder}/checkpoint"
trigger = "1 second"
[sources.messages]
format = "jetstream"
options = {{ stream = "{name}", startingOffsets = "earliest", pauseFile = "{folder}/no", maxOffsetsPerTrigger = 1000 }}
columns = ["subject", "sequence", "data"]
[steps]
rows = '''
select '{name}-out.a' as subject, concat('row ', sequence) as msg_id, data from messages
'''
[sinks.out]
format = "jetstream"
from = "rows"
options = {{ stream = "{name}OUT", delivery = "exactly-once" }}
[sinks.shown]
format = "console"
from = "rows"
"""


@pytest.fixture
def out(js: jsync.JetStream, unique: str) -> Iterator[jsync.Stream]:
    made = js.create_stream(
        name=f"{unique}OUT", subjects=[f"{unique}-out.>"], duplicate_window=3600.0
    )
    yield made
    made.delete()


@pytest.fixture
def replay(
    spark: SparkSession, server: LocalServer, unique: str, tmp_path: Path
) -> Callable[..., pipeline.Result]:
    file = tmp_path / "copy.toml"
    file.write_text(FILE.format(server=server.url, name=unique, folder=tmp_path))

    def replay(sink: str, **given: object) -> pipeline.Result:
        return pipeline.replay(file, sink, spark=spark, quiet=True, **given)  # type: ignore[arg-type]

    return replay


def payloads(js: jsync.JetStream, name: str) -> list[int]:
    found = js.ordered_consumer(name).messages(until_end=True)
    with found as messages:
        return [int(message.data) for message in messages]


def test_a_replay_beside_the_query_stores_rows_once(
    spark: SparkSession,
    server: LocalServer,
    replay: Callable[..., pipeline.Result],
    reading: Reading,
    js: jsync.JetStream,
    stream: jsync.Stream,
    out: jsync.Stream,
    tmp_path: Path,
) -> None:
    fill(js, stream, *numbers(10))
    # Run the same query as the pipeline runs for this sink.
    query = begun(
        reading.stream(stream, startingOffsets="earliest")
        .selectExpr(
            f"'{stream.name}-out.a' as subject",
            "concat('row ', sequence) as msg_id",
            "data",
        )
        .writeStream.format("jetstream")
        .option("nats.servers", server.url)
        .options(stream=out.name, delivery="exactly-once")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    try:
        wait_for(lambda: out.info().state.messages == 10, LONG)
        # The sink has these rows already, and drops them as duplicates.
        result = replay("out", start="3", end="8")
        assert [each["rows"] for each in result.sinks] == [5]
        fill(js, stream, *numbers(4, start=11))
        wait_for(lambda: out.info().state.messages == 14, LONG)
    finally:
        query.stop()
    assert payloads(js, out.name) == list(range(1, 15))


def test_a_repeated_replay_fills_another_stream_once(
    replay: Callable[..., pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    out: jsync.Stream,
) -> None:
    fill(js, stream, *numbers(9))
    out.update(subjects=[f"{unique}-none.>"])
    other = js.create_stream(
        name=f"{unique}AGAIN", subjects=[f"{unique}-out.>"], duplicate_window=6.0
    )
    moment = stream.get_message(4).timestamp.isoformat()
    part = {"start": moment, "end": "9", "subjects": [f"{unique}.0", f"{unique}.1"]}
    replay("out", stream=other.name, **part)
    assert payloads(js, other.name) == [4, 5, 7, 8]
    # The stream has forgotten the ids, but the fence knows the replay.
    js.publish(f"{unique}-out.a", b"0", msg_id="other")
    assert replay("out", stream=other.name, **part).exit_code == 0
    assert payloads(js, other.name) == [4, 5, 7, 8, 0]
    other.delete()


OTHERS = """
[sources.others]
format = "jetstream"
options = {{ stream = "{name}TWO", startingOffsets = "earliest" }}
columns = ["subject", "sequence", "data"]
[sources.files]
format = "ndjson"
path = "{folder}/files"
schema = "data string"
[steps]
everything = '''
select * from messages
union all select * from others
union all select 'x', 1000, cast(data as binary) from files
'''
"""


def test_a_replay_leaves_other_sources_out(
    spark: SparkSession,
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    out: jsync.Stream,
    tmp_path: Path,
) -> None:
    """The sink may have forgotten their ids, and would store their rows twice."""
    other = js.create_stream(name=f"{unique}TWO", subjects=[f"{unique}-two.>"])
    (tmp_path / "files").mkdir()
    (tmp_path / "files/1.json").write_text('{"data": "300"}')
    js.publish(f"{unique}-two.a", b"200")
    fill(js, stream, *numbers(4))
    text = FILE.replace("from messages", "from everything").replace("[steps]", OTHERS)
    file = tmp_path / "union.toml"
    file.write_text(text.format(server=server.url, name=unique, folder=tmp_path))
    with pytest.raises(
        ConfigError, match="name the source to replay: messages, others"
    ):
        pipeline.replay(file, "out", spark=spark, quiet=True)
    result = pipeline.replay(
        file, "out", source="messages", start="2", end="4", spark=spark, quiet=True
    )
    assert [each["rows"] for each in result.sinks] == [2]
    assert payloads(js, out.name) == [2, 3]
    other.delete()


def test_a_replay_that_could_double_rows_is_refused(
    replay: Callable[..., pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    out: jsync.Stream,
) -> None:
    fill(js, stream, *numbers(3))
    out.update(duplicate_window=6.0)
    first = stream.get_message(1).timestamp
    wait_for(lambda: (datetime.now(UTC) - first).total_seconds() > 6, LONG)
    with pytest.raises(ConfigError, match="remembers ids for 6 s"):
        replay("out")
    with pytest.raises(ConfigError, match="sink shown is console"):
        replay("shown")
    with pytest.raises(ConfigError, match="no sink 'oat': did you mean 'out'"):
        replay("oat")
    for place in ("yesterday", "0", "2026-01-31"):
        with pytest.raises(ConfigError, match="option end has to be a sequence"):
            replay("out", end=place)
    with pytest.raises(StreamNotFoundError, match="there is no stream 'NONE'"):
        replay("out", stream="NONE")
    with pytest.raises(ConfigError, match="no source 'rows' of streams"):
        replay("out", source="rows")
    assert payloads(js, out.name) == []
