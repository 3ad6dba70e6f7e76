"""Tests of valid pipelines, close to those that the checks reject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jsync.errors import PipelineFileError
from jsync.spark.pipeline.config import JetStreamSource
from jsync.spark.pipeline.load import load
from jsync.spark.pipeline.source_columns import source_columns
from jsync.spark.pipeline.validator import validate

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = """
[sources.messages]
format = "jetstream"
options = { stream = "A" }
"""
STATIC = """
[sources.names]
format = "csv"
path = "names.csv"
schema = "name string"
static = true
"""
STREAMING = '[streaming]\ncheckpoint = "checkpoint"\ntrigger = "available-now"\n'
SINK = '[sinks.out]\nformat = "console"\nfrom = "{view}"\n'


def problems(directory: Path, *parts: str) -> str:
    path = directory / "pipeline.toml"
    path.write_text("\n".join(parts))
    pipeline, found = load(path)
    if pipeline is not None:
        validate(pipeline, found)
    try:
        found.raise_any()
    except PipelineFileError as refused:
        return str(refused)
    return ""


BUCKET = MESSAGES.replace("{ stream", "{ bucket")


def test_a_pipeline_may_read_a_bucket(tmp_path: Path) -> None:
    text = BUCKET + 'columns = ["key", "revision"]\njson = "name string"\n'
    assert not problems(tmp_path, text, SINK.format(view="messages"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('columns = ["subject"]', "a bucket has no column 'subject'"),
        ('columns = ["headers"]', "a bucket has no column 'headers'"),
        ('json = "key string"', "both the payload and the bucket have 'key'"),
        ('json = "a int"\nrequired = ["b"]', "the payload has no field 'b'"),
    ],
)
def test_a_bucket_has_its_own_columns(tmp_path: Path, more: str, message: str) -> None:
    found = problems(tmp_path, f"{BUCKET}{more}\n", SINK.format(view="messages"))
    assert message in found
    assert "includeHeaders" not in found


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('columns = ["subject"]', "an object has no column 'subject'"),
        ('json = "a int"', "is for messages and buckets: decode content in a step"),
        ("", ""),
    ],
)
def test_a_pipeline_may_read_an_object_store(
    tmp_path: Path, more: str, message: str
) -> None:
    source = MESSAGES.replace("{ stream", "{ objectStore")
    assert message in problems(tmp_path, source, more, SINK.format(view="messages"))
    streamed = problems(
        tmp_path,
        '[streaming]\ncheckpoint = "c"\n',
        source,
        more,
        SINK.format(view="messages"),
    )
    assert "option objectStore is for a batch" in streamed


def test_an_option_outside_of_options_is_placed(tmp_path: Path) -> None:
    text = MESSAGES.replace("options = { stream", "bucket = 'b'\noptions = { stream")
    found = problems(tmp_path, text, SINK.format(view="messages"))
    assert "sources.messages.bucket: is an option: write options = { bucket = " in found


@pytest.mark.parametrize(
    ("given", "columns"),
    [
        ({}, "stream subject sequence timestamp data"),
        ({"json": "a int"}, "stream subject sequence timestamp"),
        ({"columns": ["data"], "json": "a int"}, "data"),
        (
            {"options": {"includeHeaders": "true"}},
            "stream subject sequence timestamp headers data",
        ),
        (
            {"options": {"includeheaders": "True"}, "json": "a int"},
            "stream subject sequence timestamp headers",
        ),
        ({"options": {"Bucket": "b"}}, "key value revision timestamp operation"),
        (
            {"options": {"bucket": "b"}, "json": "a int"},
            "key revision timestamp operation",
        ),
        (
            {"options": {"bucket": " "}, "json": "a int"},
            "stream subject sequence timestamp",
        ),
    ],
)
def test_the_columns_of_a_view(given: dict[str, Any], columns: str) -> None:
    source = JetStreamSource(**{"format": "jetstream", "options": {}, **given})
    assert source_columns(source) == columns.split()


@pytest.mark.parametrize(
    "parts",
    [
        ('[sources.a]\nformat = "csv"\npath = "a"\n', SINK.format(view="a")),
        (
            MESSAGES,
            '[sinks.a]\nformat = "csv"\nfrom = "messages"\npath = "a"\nmode = "overwrite"',
        ),
        (
            MESSAGES.replace('"A"', '"A", includeHeaders = true'),
            'columns = ["headers"]',
            SINK.format(view="messages"),
        ),
        (
            STREAMING,
            MESSAGES,
            MESSAGES.replace(".messages", ".once").replace(
                '"A"', '"A", endingOffsets = 7'
            ),
            "static = true",
            SINK.format(view="messages"),
        ),
        (
            STREAMING,
            STATIC,
            '[steps.own]\nsql = "for Spark alone"\nunchecked = true',
            '[steps]\nbehind = "select * from own join names"',
            SINK.format(view="behind"),
        ),
    ],
    ids=[
        "a batch reads files of whatever schema",
        "a batch overwrites",
        "headers that are included",
        "a static source that ends",
        "a step that nobody knows of whether it streams",
    ],
)
def test_a_correct_pipeline_passes(tmp_path: Path, parts: tuple[str, ...]) -> None:
    assert problems(tmp_path, *parts) == ""


def test_a_view_of_static_views_is_static(tmp_path: Path) -> None:
    steps = '[steps]\nshort = "select substr(name, 1, 3) from names"\n'
    found = problems(
        tmp_path, STREAMING, MESSAGES, STATIC, steps, SINK.format(view="short")
    )
    assert "view 'short' is static: nothing streams into this sink" in found


def test_the_sql_of_a_step_keeps_its_dollars(tmp_path: Path) -> None:
    step = "[steps.shown]\nsql = \"select '${NOWHERE}' as a from messages\"\n"
    assert problems(tmp_path, MESSAGES, step, SINK.format(view="shown")) == ""


def test_malformed_messages_have_a_view_unless_they_fail(
    tmp_path: Path,
) -> None:
    source = MESSAGES + 'json = "a int"\n'
    sink = SINK.format(view="messages_malformed")
    refused = problems(tmp_path, source, sink)
    assert "messages_malformed is empty" in refused
    assert "say malformed = 'drop' or 'null'" in refused
    for wanted in ("drop", "null"):
        assert not problems(tmp_path, source, f'malformed = "{wanted}"', sink)
    assert "there is no view" in problems(tmp_path, MESSAGES, sink)
