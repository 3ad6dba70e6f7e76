"""Tests of reading and checking the file of a pipeline, without Spark, a server or data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.errors import ConfigError, PipelineFileError
from jsync.spark import pipeline as pipelines
from jsync.spark.pipeline.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.spark.pipeline.config import Pipeline

WHOLE = """\
name = "delays"

[spark]
master = "local[2]"
[spark.conf]
"spark.sql.shuffle.partitions" = 2
"spark.sql.ansi.enabled" = true

[nats]
servers = ["nats://one:4222", "nats://two:4222"]
user = "etl"
passwordEnv = "NATS_PASSWORD"

[streaming]
checkpoint = "state"
trigger = "10 seconds"

[sources.messages]
format = "jetstream"
options = { stream = "FLIGHTS", startingTimestamp = 2026-01-31T12:00:00Z }
columns = ["subject"]
json = "carrier string, time timestamp"
malformed = "drop"
watermark = { column = "time", delay = "1 hour" }

[sources.airlines]
format = "csv"
path = "airlines.csv"
options = { header = true }
static = true

[steps]
named = "select * from messages join Airlines using (carrier)"
[steps.hours]
sql = "select window(time, '1 hour'), count(*) from named group by 1"

[sinks.hours]
format = "jetstream"
from = "hours"
output_mode = "update"
options = { stream = "HOURS", delivery = "exactly-once" }

[sinks.named]
format = "parquet"
from = "named"
path = "out"
partition_by = ["carrier"]

[sinks.show]
format = "console"
from = "messages"
"""

SHORT = """\
[sources.messages]
format = "jetstream"
options = { stream = "S" }

[sinks.show]
format = "console"
from = "messages"
"""


def checked(path: Path, text: str) -> Pipeline:
    path.write_text(text)
    return pipelines.check(path, offline=True)


def problems(path: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineFileError) as refused:
        checked(path, text)
    found = refused.value.problems
    assert str(refused.value).splitlines() == [
        f"{path}:{line}: {message}" for line, message in found
    ]
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.toml"


def test_a_whole_file_is_read(file: Path) -> None:
    pipeline = checked(file, WHOLE)
    assert repr(pipeline) == (
        "<Pipeline delays, streaming: messages, airlines, named, hours"
        " -> hours, named, show>"
    )
    assert pipeline.nats["servers"] == "nats://one:4222,nats://two:4222"
    messages = pipeline.sources["messages"]
    assert messages.options["startingTimestamp"] == "2026-01-31T12:00:00+00:00"
    assert pipeline.sources["airlines"].options == {"header": "true"}
    assert pipeline.spark.conf["spark.sql.shuffle.partitions"] == "2"
    assert pipeline.steps["hours"].sql.startswith("select window")
    assert pipeline.sinks["hours"].view == "hours"


def test_a_short_file_names_its_own_batch(file: Path) -> None:
    pipeline = checked(file, SHORT)
    assert repr(pipeline) == "<Pipeline pipeline, batch: messages -> show>"


# The right text, the wrong text, the text on the reported line, and the message.
WRONG: dict[str, tuple[str, str, str, str]] = {
    "a key at the top": (
        'name = "delays"',
        'naem = "delays"',
        "naem",
        "naem: there is no such key: did you mean 'name'?",
    ),
    "a key in a table": (
        "malformed =",
        "malfromed =",
        "malfromed",
        "sources.messages.malfromed: there is no such key: did you mean 'malformed'?",
    ),
    "a key of another format": (
        'path = "out"',
        'path = "out"\njson = "a int"',
        'json = "a int"',
        "sinks.named.json: there is no such key; there are format, from, path, "
        "partition_by, mode, options",
    ),
    "a key that is missing": (
        'path = "airlines.csv"\n',
        "",
        "[sources.airlines]",
        "sources.airlines: 'path' is missing",
    ),
    "a type": (
        'columns = ["subject"]',
        'columns = "subject"',
        'columns = "subject"',
        "sources.messages.columns: Expected array, got str",
    ),
    "a table that is none": (
        "[sinks.show]",
        "[sinks]\nx = 1\n[sinks.show]",
        "x = 1",
        "sinks.x: has to be a table: [sinks.x]",
    ),
    "a format": (
        'format = "csv"',
        'format = "cvs"',
        "cvs",
        "sources.airlines.format: there is no format 'cvs': did you mean 'csv'?",
    ),
    "no format": (
        'format = "csv"\n',
        "",
        "[sources.airlines]",
        "sources.airlines: 'format' is missing: jetstream, parquet, csv, ndjson, "
        "json, orc",
    ),
    "a choice": (
        'output_mode = "update"',
        'output_mode = "updates"',
        "updates",
        "sinks.hours.output_mode: cannot be 'updates': did you mean 'update'?",
    ),
    "an option that is a table": (
        "header = true",
        "header = {}",
        "header",
        "sources.airlines.options.header: has to be a text, a number, a time, true or false",
    ),
    "a name": (
        "[sources.airlines]",
        '[sources."air lines"]',
        "air lines",
        'sources."air lines": a name may have only letters, digits and _',
    ),
    "an option of jetstream": (
        'stream = "FLIGHTS"',
        'straem = "FLIGHTS"',
        "straem",
        "sources.messages.options.straem: there is no option straem: is it stream?",
    ),
    "an option's value": (
        'stream = "FLIGHTS"',
        'stream = "FLIGHTS", maxOffsetsPerTrigger = 0',
        "maxOffsetsPerTrigger",
        "sources.messages.options.maxOffsetsPerTrigger: option maxOffsetsPerTrigger has to "
        "be a whole number from 1 on, not '0'",
    ),
    "a secret": (
        "passwordEnv =",
        "password =",
        "password =",
        "nats.password: option nats.password would show a secret in plans and logs: give "
        "nats.passwordEnv or nats.passwordFile, which the executors read where they run",
    ),
    "a secret in a URL": (
        "nats://two:4222",
        "nats://user:secret@two:4222",
        "servers =",
        "nats.servers: option nats.servers: credentials in a URL would show in plans and "
        "logs; give nats.user and nats.passwordEnv, or nats.credentialsFile",
    ),
    "a column of a message": (
        'columns = ["subject"]',
        'columns = ["subjcet"]',
        "columns =",
        "sources.messages.columns: a message has no column 'subjcet': "
        "did you mean 'subject'?",
    ),
    "headers that are not read": (
        'columns = ["subject"]',
        'columns = ["headers"]',
        "columns =",
        "sources.messages.columns: a message has no column 'headers': "
        "set includeHeaders = true in the options",
    ),
    "a schema": (
        "time timestamp",
        "time timestammp",
        "json =",
        "sources.messages.json: this is not Spark SQL at 'timestammp'",
    ),
    "a column that is there twice": (
        "carrier string",
        "subject string",
        "json =",
        "sources.messages.json: both the payload and the message have 'subject': list in "
        "'columns' the columns of the message that you want",
    ),
    "the watermark's column": (
        'column = "time"',
        'column = "tme"',
        "watermark =",
        "sources.messages.watermark.column: there is no column 'tme': did you mean 'time'?",
    ),
    "the watermark's delay": (
        'delay = "1 hour"',
        'delay = "an hour"',
        "watermark =",
        "sources.messages.watermark.delay: has to be an interval such as '10 minutes'",
    ),
    "the trigger": (
        'trigger = "10 seconds"',
        'trigger = "10 sec"',
        "trigger =",
        "streaming.trigger: has to be 'available-now' or an interval such as '10 seconds'",
    ),
    "the address of the metrics": (
        'trigger = "10 seconds"',
        'http = "nonsense"',
        "http =",
        "streaming.http: has to be HOST:PORT, such as 127.0.0.1:8080",
    ),
    "SQL": (
        "from named group by 1",
        "from named where (",
        "from named",
        "steps.hours: this is not Spark SQL at '('",
    ),
    "a view that is not there": (
        "select * from messages join Airlines",
        "select * from messagges join Airlines",
        "messagges",
        "steps.named: there is no view 'messagges': did you mean 'messages'?",
    ),
    "a view before it is there": (
        "select * from messages join Airlines",
        "select * from hours join Airlines",
        "from hours",
        "steps.named: it reads from 'hours', which is defined further down: move that up",
    ),
    "a view of itself": (
        "select * from messages join Airlines",
        "select * from named join Airlines",
        "named =",
        "steps.named: it reads from itself",
    ),
    "a view's name again": (
        "[sources.airlines]",
        "[sources.Named]",
        "named =",
        "steps.named: there is a view of this name already",
    ),
    "a sink from nowhere": (
        'from = "hours"',
        'from = "huors"',
        "huors",
        "sinks.hours.from: there is no view 'huors': did you mean 'hours'?",
    ),
    "a sink that nothing streams into": (
        'from = "messages"\n',
        'from = "airlines"\n',
        'from = "airlines"',
        "sinks.show.from: view 'airlines' is static: nothing streams into this sink",
    ),
    "files to stream without a schema": (
        "static = true\n",
        "",
        "[sources.airlines]",
        "sources.airlines: 'schema' is missing: Spark streams files of a known one",
    ),
    "the mode of a batch": (
        'partition_by = ["carrier"]',
        'mode = "overwrite"',
        'mode = "overwrite"',
        "sinks.named.mode: a stream is appended: leave it out",
    ),
    "a setting": (
        '"spark.sql.ansi.enabled"',
        '"ansi"',
        "ansi",
        "spark.conf.ansi: Spark's settings begin with 'spark.'",
    ),
    "the master as a setting": (
        '"spark.sql.ansi.enabled" = true',
        '"spark.master" = "local"',
        "spark.master",
        'spark.conf."spark.master": set it as master in [spark], or with --master',
    ),
    "a variable": (
        'checkpoint = "state"',
        'checkpoint = "${NOWHERE}/state"',
        "NOWHERE",
        "streaming.checkpoint: the environment variable NOWHERE is not set",
    ),
    "TOML": (
        'name = "delays"',
        "name = delays",
        "name = delays",
        "this is not TOML: Invalid value",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_reported_with_its_line(file: Path, mistake: str) -> None:
    right, wrong, where, message = WRONG[mistake]
    assert WHOLE.count(right) == 1, "the mistake is made in one place"
    text = WHOLE.replace(right, wrong)
    (line,) = [
        number for number, each in enumerate(text.splitlines(), 1) if where in each
    ][:1]
    assert (line, message) in problems(file, text)


def test_all_mistakes_are_reported_at_once(file: Path) -> None:
    text = WHOLE
    for mistake in ("the trigger", "a schema", "a setting", "a sink from nowhere"):
        right, wrong, _, _ = WRONG[mistake]
        text = text.replace(right, wrong)
    assert [line for line, _ in problems(file, text)] == [7, 16, 22, 39]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no [sources.NAME]: a pipeline has one at least"),
        (SHORT.partition("[sinks")[0], "there is no [sinks.NAME]"),
        (
            SHORT + 'output_mode = "update"',
            "sinks.show.output_mode: is for [streaming]",
        ),
        (
            SHORT.replace("[sinks", "static = true\n[sinks"),
            "a batch reads everything once",
        ),
        (SHORT.replace("options", "[sources.x]\noptions"), "'options' is missing"),
        (SHORT.replace("stream =", "subjects ="), "option stream is missing"),
        (SHORT + "rows = 0", "sinks.show.rows: has to be 1 or more"),
        (
            SHORT.replace(
                "[sinks", 'watermark={column="timestamp",delay="1 day"}\n[sinks'
            ),
            "a batch has no late rows",
        ),
        (SHORT.replace("}", ', endingOffsets = "earliest" }'), "would be empty"),
    ],
)
def test_a_batch_with_a_mistake_is_refused(file: Path, text: str, message: str) -> None:
    assert any(message in found for _, found in problems(file, text))


def test_values_of_the_environment_are_not_shown(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", "elsewhere")
    text = SHORT + '[nats]\nservers = "nats://${WHERE}:4222"\nname = "$$ {x} $${WHERE}"'
    pipeline = checked(file, text)
    assert pipeline.nats == {
        "servers": "nats://elsewhere:4222",
        "name": "$ {x} ${WHERE}",
    }
    assert "elsewhere" not in repr(pipeline)


def test_sql_is_not_read_where_that_is_said(file: Path) -> None:
    text = (
        SHORT + "[steps.odd]\nsql = 'select data:a.b from nowhere'\nunchecked = true\n"
    )
    assert checked(file, text).steps["odd"].unchecked


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file"), (b"\xff", "it is not UTF-8")]
)
def test_an_unreadable_file_is_one_error(
    file: Path, content: bytes | None, reason: str
) -> None:
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(
        ConfigError, match=rf"pipeline.toml:1: cannot be read: {reason}"
    ):
        load(file)


def test_a_file_is_checked_without_pyspark(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(SHORT)
    assert pipelines.main(["check", "--offline", str(file)]) == 0
    assert capsys.readouterr().out == (
        f"{file}: a batch, 1 source, 0 steps, 1 sink: nothing is wrong with it\n"
    )
    file.write_text(SHORT + "rows = 0")
    assert pipelines.main(["check", "--offline", str(file)]) == 2
    assert (
        capsys.readouterr().err == f"{file}:8: sinks.show.rows: has to be 1 or more\n"
    )
