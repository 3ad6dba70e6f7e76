"""Tests of pipelines in one session with the real server."""

from __future__ import annotations

import json
import os
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from jsync.errors import PipelineError, PipelineFileError
from jsync.server import LocalServer
from jsync.spark import pipeline, query_statuses
from jsync.spark.pipeline import streaming
from jsync.spark.pipeline.console import Report
from jsync.spark.pipeline.load import load
from jsync.spark.pipeline.signals import stop_signals
from jsync.spark.pipeline.views import make_views

from ..cli.support import Jsync
from ..support.servers import wait_for
from .support import LONG, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    import jsync


READ = """\
[nats]
servers = "${SERVER}"

[sources.messages]
format = "jetstream"
options = { stream = "${STREAM}", startingOffsets = "earliest" }
columns = ["sequence"]
json = "name string, amount int"
"""


@pytest.fixture
def file(
    tmp_path: Path,
    server: LocalServer,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The file of a test's pipeline, which takes its other values from the environment."""
    monkeypatch.setenv("SERVER", server.url)
    monkeypatch.setenv("STREAM", stream.name)
    monkeypatch.setenv("OUT", str(tmp_path))
    return tmp_path / "pipeline.toml"


@pytest.fixture
def run(file: Path, spark: SparkSession) -> Callable[[str], pipeline.Result]:
    def run(text: str) -> pipeline.Result:
        file.write_text(text)
        return pipeline.run(file, spark=spark, quiet=True)

    return run


def orders(count: int, start: int = 1) -> list[bytes]:
    return [
        json.dumps({"name": "ab"[n % 2], "amount": n}).encode()
        for n in range(start, start + count)
    ]


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def problems(refused: pytest.ExceptionInfo[PipelineFileError]) -> list[tuple[int, str]]:
    return refused.value.problems


# Batches ------------------------------------------------------------------------------


def test_a_batch_writes_files_and_messages_showing_rows(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    fill(js, stream, *orders(100))
    result = run(
        READ
        + """
[steps]
sums = "select name, sum(amount) as total from messages group by name"
out = '''
select '${STREAM}' as nothing, concat('sums.', name) as s, total from sums
'''
totals = "select s as msg_id, cast(total as string) as data from out"
[sinks.files]
format = "parquet"
from = "messages"
path = "${OUT}/files"
partition_by = ["name"]
[sinks.totals]
format = "jetstream"
from = "totals"
options = { stream = "${STREAM}", subject = "${STREAM}.totals" }
[sinks.show]
format = "console"
from = "sums"
"""
    )
    assert result.exit_code == 0
    assert [(each["sink"], each["rows"]) for each in result.sinks] == [
        ("files", 100),
        ("totals", 2),
        ("show", None),
    ]
    found = rows(tmp_path / "files")
    assert sorted(row["sequence"] for row in found) == list(range(1, 101))
    assert {(row["name"], row["amount"] % 2) for row in found} == {("a", 0), ("b", 1)}
    written = stream.read_arrow(101, columns=["data"])
    assert sorted(pa.table(written)["data"].to_pylist()) == [b"2500", b"2550"]
    assert "|   a| 2550|" in capfd.readouterr().out


def test_rows_that_are_shown_cannot_command_a_terminal(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    capfd: pytest.CaptureFixture[str],
) -> None:
    evil = "\x1b]0;x\x07\x1b[2J\x9b5n\u202e\U000e0041"
    fill(js, stream, json.dumps({"name": f"a{evil}b", "amount": 1}).encode())
    result = run(
        READ
        + """
[steps]
twice = "select name, name, array(name) as names, map(name, amount) as m from messages"
[sinks.show]
format = "console"
from = "twice"
truncate = false
"""
    )
    assert result.exit_code == 0
    shown = capfd.readouterr().out
    assert shown.count("a\N{REPLACEMENT CHARACTER}]0;x") == 4
    assert not set(evil) & set(shown) - {*"]0;x[2J5n"}


@pytest.mark.parametrize("format_", ["csv", "ndjson", "parquet"])
def test_files_become_messages(
    run: Callable[[str], pipeline.Result],
    spark: SparkSession,
    stream: jsync.Stream,
    tmp_path: Path,
    format_: str,
) -> None:
    frame = spark.createDataFrame([("x", 1), ("y", 2)], "name string, amount int")
    writer = frame.coalesce(1).write.format({"ndjson": "json"}.get(format_, format_))
    writer.save(str(tmp_path / "in"))
    run(
        f"""
[nats]
servers = "${{SERVER}}"
[sources.files]
format = "{format_}"
path = "${{OUT}}/in"
schema = "name string, amount int"
[steps]
messages = "select to_json(struct(*)) as data from files"
[sinks.messages]
format = "jetstream"
from = "messages"
options = {{ stream = "${{STREAM}}", subject = "${{STREAM}}.files" }}
"""
    )
    table = pa.table(stream.read_arrow(columns=["data"]))
    found = sorted(json.loads(data)["name"] for data in table["data"].to_pylist())
    assert found == ["x", "y"]


def sink_of_files(malformed: str) -> str:
    return f"""{READ}
malformed = "{malformed}"
[sinks.files]
format = "parquet"
from = "messages"
path = "${{OUT}}/files"
"""


BROKEN = (b'{"name": "a", "amount": 1}', b"no JSON", b'{"amount": "many"}', b"")


@pytest.mark.parametrize(
    ("malformed", "found"),
    [("drop", [(1, 1)]), ("null", [(1, 1), *((n, None) for n in (2, 3, 4))])],
)
def test_the_file_decides_what_happens_to_invalid_json(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    malformed: str,
    found: list[tuple[int, int | None]],
) -> None:
    fill(js, stream, *BROKEN)
    run(sink_of_files(malformed))
    read = [(row["sequence"], row["amount"]) for row in rows(tmp_path / "files")]
    assert sorted(read) == found


GOOD = {
    b'{"name": "a", "amount": 1}': ("a", 1, None),
    b' {"amount": 2.0, "name": "b}"}\n': ("b}", 2, None),
    b'{"amount": null}': (None, None, None),
    b'{"amount": 4, "parts": [1.0, 2], "more": {}}': (None, 4, [1, 2]),
}
BAD = (
    b'{"amount": 1}{"amount": 2}',
    b'{"amount": 1},{"amount": 2}',
    b'{"amount": 1} trailing',
    b'{"amount": 1}]',
    b'{"amount": 1}}',
    b'{"amount": 1.5}',
    b'{"parts": [1.5]}',
    b'{"more": 1}',
    b'{"Amount": 1}',
    b"{'amount': 1}",
    b"{}",
    b'[{"amount": 1}]',
    b"null",
)


@pytest.mark.sparks
def test_only_one_object_of_the_schema_is_valid(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    fill(js, stream, *GOOD, *BAD)
    text = READ.replace("amount int", "amount int, parts array<int>")
    bad = FILES.replace("files", "bad").replace("messages", "messages_malformed")
    run(f'{text}malformed = "drop"\n{FILES}{bad}')
    found = sorted(rows(tmp_path / "files"), key=lambda row: row["sequence"])
    columns = [(row["name"], row["amount"], row["parts"]) for row in found]
    assert columns == [*GOOD.values()]
    assert {row["data"] for row in rows(tmp_path / "bad")} == set(BAD)
    (tmp_path / "files").rename(tmp_path / "dropped")
    run(f'{text}malformed = "null"\nrequired = ["name", "amount"]\n{FILES}')
    found = sorted(rows(tmp_path / "files"), key=lambda row: row["sequence"])
    amounts = [(row["sequence"], row["amount"]) for row in found]
    assert amounts == [(1, 1), (2, 2), *((n, None) for n in range(3, len(found) + 1))]
    assert len(found) == len(GOOD) + len(BAD)


@pytest.mark.sparks
@pytest.mark.parametrize("malformed", ["fail", "drop", "null"])
def test_each_payload_is_parsed_once(
    spark: SparkSession, file: Path, tmp_path: Path, malformed: str
) -> None:
    """The fallback for whole numbers such as 1.0 is the other place of the schema."""
    file.write_text(sink_of_files(malformed))
    found, faults = load(file)
    assert found is not None
    with stop_signals() as stop:
        views = make_views(spark, found, faults, stop, Report(quiet=True), tmp_path)
    rows = views["messages"].where("sequence > 5 and amount > 1")
    plan = str(rows._jdf.queryExecution().optimizedPlan())
    assert plan.count("from_json(StructField(name") == 2, plan


def test_files_of_another_schema_are_left_alone(
    run: Callable[[str], pipeline.Result],
    file: Path,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    """Otherwise the whole folder could not be read any more."""
    fill(js, stream, *orders(3))
    steps = """
[steps]
passed = "select *, 1 as one from messages"
computed = "select sequence, amount + 1 as total from messages"
"""
    sinks = FILES.replace('"messages"', '"passed"')
    sinks += FILES.replace('"messages"', '"computed"').replace("files", "totals")
    text = READ + STREAMING + steps + sinks
    for _ in range(2):
        run(text)
    fill(js, stream, *orders(3))
    # A declared type is compared without Spark.
    file.write_text(text.replace("amount int", "amount string"))
    with pytest.raises(PipelineFileError) as refused:
        pipeline.check(file)
    ((_, message),) = problems(refused)
    assert message.startswith(
        "sinks.files.path: the files there have the column amount"
    )
    assert "as int, and this writes string" in message
    # A computed type is compared before any row is read.
    with pytest.raises(PipelineFileError) as refused:
        run(text.replace("amount + 1", "cast(amount as string)"))
    ((_, message),) = problems(refused)
    assert message.startswith(
        "sinks.totals.path: the files there have the column total"
    )
    assert len(rows(tmp_path / "files")) == len(rows(tmp_path / "totals")) == 3
    # So are the streams of the checkpoint.
    file.write_text(text.replace("${STREAM}", "KV_NONE"))
    with pytest.raises(PipelineFileError, match=f"has read stream {stream.name}"):
        pipeline.check(file)


def test_dropped_messages_of_a_stream_are_counted(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    fill(js, stream, *BROKEN)
    source = READ + 'malformed = "drop"\n'
    (sink,) = run(source + STREAMING + FILES).sinks
    assert [(row["sequence"], row["amount"]) for row in rows(tmp_path / "files")] == [
        (1, 1)
    ]
    assert (sink["rows"], sink["malformed"]) == (4, 3)


@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "streaming"])
def test_malformed_messages_become_replayable_dead_letters(
    run: Callable[[str], pipeline.Result],
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    tmp_path: Path,
    streaming: bool,
) -> None:
    dead = js.create_stream(name=f"{unique}DEAD", subjects=[f"dead.{unique}"])
    fill(js, stream, *BROKEN)
    options = f'{{ stream = "{dead.name}", subject = "dead.{unique}", delivery = "exactly-once" }}'
    sink = f"""
[sinks.dead]
format = "jetstream"
from = "Messages_malformed"
options = {options}
"""
    source = READ + 'malformed = "drop"\n' + (STREAMING if streaming else "")
    for _ in range(2 if streaming else 1):
        result = run(source + FILES + sink)
        assert result.exit_code == 0
    assert [(row["sequence"], row["amount"]) for row in rows(tmp_path / "files")] == [
        (1, 1)
    ]
    command = Jsync(server)
    letters = command("dead", "ls", dead.name, "--json").json
    assert [each["dead_letter"]["sequence"] for each in letters] == ["2", "3", "4"]
    ended = command("dead", "replay", dead.name, "1", "--force")
    assert ended.code == 0, ended.errors
    assert stream.get_message(5).data == BROKEN[1]
    assert stream.get_message(5).subject == stream.get_message(2).subject
    dead.delete()


def test_invalid_json_fails_the_pipeline_and_is_named(
    run: Callable[[str], pipeline.Result], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *BROKEN)
    with pytest.raises(PipelineError) as failed:
        run(sink_of_files("fail"))
    assert str(failed.value) == (
        f"sink files: message 2 of stream {stream.name} is not JSON of the declared schema"
    )


# Errors of Spark and of the environment ------------------------------------------------


def test_a_spark_error_about_sql_has_its_line(
    run: Callable[[str], pipeline.Result],
) -> None:
    with pytest.raises(PipelineFileError) as refused:
        run(
            READ
            + """
[steps]
sums = '''
select name,
  sum(amuont) as total
from messages
group by name
'''
[sinks.show]
format = "console"
from = "sums"
"""
        )
    ((line, message),) = problems(refused)
    assert line == 13
    assert message.startswith("steps.sums: [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
    assert "`amuont`" in message
    assert "\n" not in message


def test_a_sink_rejects_columns_that_no_message_has(
    run: Callable[[str], pipeline.Result],
) -> None:
    with pytest.raises(PipelineFileError) as refused:
        run(
            READ
            + """
[sinks.out]
format = "jetstream"
from = "messages"
options = { stream = "${STREAM}" }
"""
        )
    ((line, message),) = problems(refused)
    assert (line, message.partition(":")[0]) == (10, "sinks.out")
    assert "the server gives the column sequence: drop it" in message


def test_unsupported_stream_options_are_rejected_before_the_start(
    run: Callable[[str], pipeline.Result], tmp_path: Path
) -> None:
    with pytest.raises(PipelineFileError) as refused:
        run(
            READ
            + """
[streaming]
checkpoint = "${OUT}/checkpoint"
trigger = "available-now"
[steps]
sums = "select name, sum(amount) as total from messages group by name"
[sinks.files]
format = "parquet"
from = "sums"
path = "${OUT}/files"
"""
        )
    ((line, message),) = problems(refused)
    assert (line, message.partition(":")[0]) == (15, "sinks.files")
    assert "watermark" in message
    assert not [*(tmp_path / "files").glob("*.parquet")]


def test_missing_files_and_streams_are_reported_before_starting(
    file: Path, stream: jsync.Stream, js: jsync.JetStream, tmp_path: Path
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "no-directory").write_text("")
    file.write_text(
        READ.replace("${STREAM}", "${STREAM}x")
        + """
[sources.files]
format = "csv"
path = "${OUT}/nothing*.csv"
[sinks.files]
format = "csv"
from = "files"
path = "${OUT}/there"
[sinks.other]
format = "csv"
from = "files"
path = "${OUT}/no-directory/out"
[sinks.back]
format = "jetstream"
from = "files"
options = { stream = "${STREAM}", subject = "elsewhere" }
"""
    )
    with pytest.raises(PipelineFileError) as refused:
        pipeline.check(file)
    name = stream.name
    assert problems(refused) == [
        (
            6,
            f"sources.messages.options.stream: there is no stream '{name}x': "
            f"did you mean '{name}'?",
        ),
        (12, f"sources.files.path: there is nothing at {tmp_path}/nothing*.csv"),
        (
            16,
            f"sinks.files.path: {tmp_path}/there exists: remove it, or choose a 'mode'",
        ),
        (20, f"sinks.other.path: {tmp_path}/no-directory is no directory"),
        (
            24,
            f"sinks.back.options.stream: stream {name} does not take 'elsewhere', but "
            f"{name}.>",
        ),
    ]


def test_a_missing_server_is_reported_once(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalServer() as gone:
        monkeypatch.setenv("SERVER", gone.url)
    file.write_text(
        READ
        + """
[sinks.back]
format = "jetstream"
from = "messages"
options = { stream = "S", subject = "x" }
"""
    )
    with pytest.raises(PipelineFileError) as refused:
        pipeline.check(file)
    ((line, message),) = problems(refused)
    assert line == 2
    assert message.startswith("nats.servers: ")
    file.write_text(file.read_text().replace("[sinks.back]", "[sinks.back]\nx = 1"))
    assert pipeline.main(["check", str(file)]) == 2


# Streams -------------------------------------------------------------------------------

STREAMING = """
[streaming]
checkpoint = "${OUT}/checkpoint"
trigger = "available-now"
"""
FILES = """
[sinks.files]
format = "parquet"
from = "messages"
path = "${OUT}/files"
"""


def test_a_streaming_pipeline_continues_at_its_end(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    text = READ + STREAMING + "monitor = true\n" + FILES
    text = text.replace('"earliest" }', '"earliest", maxOffsetsPerTrigger = 40 }')
    fill(js, stream, *orders(100))
    (first,) = run(text).sinks
    assert (first["rows"], first["batches"], first["lag"]) == (100, 3, 0)
    fill(js, stream, *orders(20, start=101))
    (second,) = run(text).sinks
    assert (second["rows"], second["lag"]) == (20, 0)
    found = sorted(row["amount"] for row in rows(tmp_path / "files"))
    assert found == list(range(1, 121))
    (query,) = [each for each in query_statuses(js) if stream.name in each.streams]
    assert (query.name, query.state, query.rows) == ("files", "ended", 120)
    assert (query.lag, query.lag_seconds) == (0, 0.0)


def test_a_query_whose_worker_was_late_starts_again(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = [PySparkException("Python worker failed to connect back.") for _ in range(9)]
    begin = streaming._begin

    def begin_late(*given: Any) -> Any:
        if len(late) > 1:
            raise late.pop()
        query = begin(*given)
        if late:  # in the middle: each batch needs workers, too
            query.stop()
            error = late.pop()
            return SimpleNamespace(
                isActive=False, recentProgress=[], exception=lambda: error, stop=list
            )
        return query

    monkeypatch.setattr(streaming, "_begin", begin_late)
    fill(js, stream, *orders(10))
    (sink,) = run(READ + STREAMING + FILES).sinks
    assert sink["rows"] == 10
    assert not late


def test_updated_rows_go_back_into_a_stream_once(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    tmp_path: Path,
) -> None:
    fill(js, stream, *orders(50))
    text = (
        READ
        + STREAMING
        + """
[steps]
sums = "select name, count(*) as n, sum(amount) as total from messages group by name"
back = '''
select concat('back', '.', name) as subject, concat(name, n) as msg_id,
  to_json(struct(*)) as data
from sums
'''
[sinks.back]
format = "jetstream"
from = "back"
output_mode = "update"
options = { stream = "${BACK}", delivery = "exactly-once" }
"""
    )
    name = f"{unique}B"
    os.environ["BACK"] = name
    text = text.replace("'back', '.', name", f"'{name}.', name")

    back = js.create_stream(
        name=name, subjects=[f"{name}.>"], storage="memory", max_msgs_per_subject=1
    )
    try:
        for count in (50, 51):
            run(text)
            table = pa.table(back.read_arrow(columns=["data"]))
            found = [json.loads(data) for data in table["data"].to_pylist()]
            assert sum(each["n"] for each in found) == count
            assert sum(each["total"] for each in found) == count * (count + 1) // 2
            fill(js, stream, *orders(1, start=count + 1))
        assert back.info().state.last_seq == 3
        # As if Spark had ended between the commit of the sink and its own.
        commits = tmp_path / "checkpoint" / "back" / "commits"
        for file in (commits / "1", commits / ".1.crc"):
            file.unlink()
        back.purge()
        run(text)
        (data,) = pa.table(back.read_arrow(columns=["data"]))["data"].to_pylist()
        assert json.loads(data)["n"] == 26, "the batch behind the one that was done"
    finally:
        back.delete()
        del os.environ["BACK"]


def test_a_static_table_joins_a_stream(
    run: Callable[[str], pipeline.Result],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
) -> None:
    (tmp_path / "names.csv").write_text("name,long\na,Anna\nb,Bert\n")
    fill(js, stream, *orders(10))
    run(
        READ
        + STREAMING
        + """
[sources.names]
format = "csv"
path = "${OUT}/names.csv"
options = { header = true }
static = true
[steps]
messages_of_people = "select * from messages join names using (name)"
"""
        + FILES.replace('"messages"', '"messages_of_people"')
    )
    assert {row["long"] for row in rows(tmp_path / "files")} == {"Anna", "Bert"}


def test_failed_queries_end_the_pipeline_with_one_line(
    run: Callable[[str], pipeline.Result], js: jsync.JetStream, stream: jsync.Stream
) -> None:
    fill(js, stream, *BROKEN)
    with pytest.raises(PipelineError) as failed:
        run(READ + STREAMING + FILES)
    assert str(failed.value) == (
        f"sink files: message 2 of stream {stream.name} is not JSON of the declared schema"
    )


@pytest.fixture
def later() -> Iterator[Callable[[Callable[[], bool], signal.Signals], None]]:
    """Send a signal to this process as soon as a condition is true."""
    threads = []

    def later(so: Callable[[], bool], number: signal.Signals) -> None:
        def send() -> None:
            wait_for(so, timeout=LONG)
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=send)
        thread.start()
        threads.append(thread)

    yield later
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_ends_a_stream_between_micro_batches(
    run: Callable[[str], pipeline.Result],
    later: Callable[[Callable[[], bool], signal.Signals], None],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    text = READ + STREAMING.replace("available-now", "1 second") + FILES
    text = text.replace('"earliest" }', '"earliest", maxOffsetsPerTrigger = 10 }')
    fill(js, stream, *orders(1000))
    checkpoint = tmp_path / "checkpoint/files"
    later((checkpoint / "offsets/1").exists, number)
    before = signal.getsignal(number)
    result = run(text)
    assert result.exit_code == code
    assert signal.getsignal(number) is before

    def numbers(of: str) -> list[int]:
        names = (path.name for path in (checkpoint / of).iterdir())
        return sorted(int(name) for name in names if name.isdigit())

    assert numbers("offsets") == numbers("commits")
    assert len(rows(tmp_path / "files")) == 10 * len(numbers("commits")) < 1000


def test_a_late_stop_spares_the_next_micro_batch(
    run: Callable[[str], pipeline.Result],
    later: Callable[[Callable[[], bool], signal.Signals], None],
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine the next micro-batch has begun long before the test sees an end."""
    monkeypatch.setattr(streaming, "_BOUNDARY_POLL", 0.7)
    text = READ + STREAMING.replace("available-now", "1 millisecond") + FILES
    text = text.replace('"earliest" }', '"earliest", maxOffsetsPerTrigger = 10 }')
    fill(js, stream, *orders(2000))
    checkpoint = tmp_path / "checkpoint/files"
    later((checkpoint / "offsets/1").exists, signal.SIGTERM)
    assert run(text).exit_code == 143
    begun, done = (
        {path.name for path in (checkpoint / of).iterdir() if path.name.isdigit()}
        for of in ("offsets", "commits")
    )
    assert begun == done
    assert len(rows(tmp_path / "files")) == 10 * len(done) < 2000


def test_a_signal_cancels_a_batch(
    run: Callable[[str], pipeline.Result],
    later: Callable[[Callable[[], bool], signal.Signals], None],
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    def writes() -> bool:
        return bool(spark.sparkContext.statusTracker().getActiveStageIds())

    later(writes, signal.SIGINT)
    result = run(
        """
[sources.files]
format = "csv"
path = "${OUT}/pipeline.toml"
[steps]
long = "select count(*) from files, range(100000000000)"
[sinks.files]
format = "parquet"
from = "long"
path = "${OUT}/files"
"""
    )
    assert (result.exit_code, result.sinks) == (130, [])
    assert not (tmp_path / "files/_SUCCESS").exists()
