"""Tests of formats that Spark knows by name, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jsync.errors import PipelineFileError
from jsync.spark.pipeline.config import FormatSink
from jsync.spark.pipeline.formats import (
    is_format,
    missing_driver,
    missing_format,
    settings_of_formats,
)
from jsync.spark.pipeline.load import load
from jsync.spark.pipeline.merge_statement import merge_statement
from jsync.spark.pipeline.validator import validate

if TYPE_CHECKING:
    from pathlib import Path

    from jsync.spark.pipeline.config import Pipeline

SOURCE = """
[sources.rows]
format = "{format}"
path = "rows"
"""
SINK = """
[sinks.out]
format = "{format}"
from = "rows"
{more}
"""
STREAMING = '[streaming]\ncheckpoint = "checkpoint"\n'


def loaded(directory: Path, *parts: str) -> Pipeline:
    path = directory / "pipeline.toml"
    path.write_text("\n".join(parts))
    pipeline, problems = load(path)
    if pipeline is not None:
        validate(pipeline, problems)
    problems.raise_any()
    assert pipeline is not None
    return pipeline


def refused(directory: Path, *parts: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        loaded(directory, *parts)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *[("delta", True), ("Delta", True), ("jdbc", True), ("com.example.Rows", True)],
        *[("huggingface", True), ("detla", False), ("", False), ("cvs", False)],
        ("CSV", False),
    ],
)
def test_slips_of_known_formats_are_refused(name: str, is_one: bool) -> None:
    assert is_format(name, ["csv", "jetstream"]) == is_one


def test_the_hint_names_formats_of_packages(tmp_path: Path) -> None:
    found = refused(tmp_path, SOURCE.format(format="icebreg"))
    assert "there is no format 'icebreg': did you mean 'iceberg'?" in found


def test_a_missing_format_names_its_package() -> None:
    assert "'io.delta:delta-spark_4.2_2.13:VERSION'" in missing_format("delta", "4.2.1")
    kafka = "'org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'"
    assert kafka in missing_format("kafka", "4.3.0")
    assert "spark.jars.packages" in missing_format("com.example.Rows", "4.3.0")
    assert "give its class as the option driver" in missing_driver({"url": "jdbc:a:b"})
    assert "org.a.B is not there" in missing_driver({"Driver": "org.a.B"})


def test_delta_brings_its_settings(tmp_path: Path) -> None:
    both = SINK.format(format="delta", more="path = 'out'")
    pipeline = loaded(tmp_path, SOURCE.format(format="iceberg"), both)
    settings = settings_of_formats(pipeline)
    delta, iceberg = "DeltaSparkSessionExtension", "IcebergSparkSessionExtensions"
    assert delta in settings["spark.sql.extensions"]
    assert iceberg in settings["spark.sql.extensions"]
    assert settings["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    plain = loaded(
        tmp_path, SOURCE.format(format="orc"), SINK.format(format="noop", more="")
    )
    assert settings_of_formats(plain) == {}


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("delta", "path = 'a'\ntable = 'b'", "out.table: leave 'path' or 'table' out"),
        ("delta", "path = 'a'\nmerge_on = ['k']", "merge_on: needs sequence_by"),
        (
            "orders",
            "path = 'a'\nmerge_on = ['k']\nsequence_by = 's'",
            "merge_on: needs 'table'",
        ),
        ("delta", "merge_on = ['k']\nsequence_by = 's'", "needs 'path' or 'table'"),
        (
            "delta",
            "path = 'a'\nmerge_on = ['k']\nsequence_by = 's'",
            "out.path: merge_on needs a path from the root",
        ),
        ("delta", "path = 'a'\nsequence_by = 's'", "sequence_by: needs merge_on"),
        ("delta", "path = 'a'\ndelete_when = 's'", "delete_when: needs merge_on"),
        (
            "delta",
            "path = 'a'\nmerge_on = ['k']\nsequence_by = 's'\nmode = 'overwrite'",
            "mode: merge_on adds and updates: leave it out",
        ),
        (
            "delta",
            "path = 'a'\nforeach_batch = true",
            "foreach_batch: is for [streaming]",
        ),
        (
            "delta",
            "path = 'a'\noutput_mode = 'update'",
            "output_mode: is for [streaming]",
        ),
    ],
)
def test_a_sink_with_a_mistake_is_refused(
    tmp_path: Path, name: str, more: str, message: str
) -> None:
    source, sink = SOURCE.format(format="orc"), SINK.format(format=name, more=more)
    assert message in refused(tmp_path, source, sink)


def test_a_database_takes_no_stream(tmp_path: Path) -> None:
    source = SOURCE.format(format="delta")
    sink = SINK.format(format="jdbc", more="options = { dbtable = 'a' }")
    assert "set foreach_batch = true" in refused(tmp_path, STREAMING, source, sink)
    loaded(tmp_path, STREAMING, source, sink + "foreach_batch = true")
    merge = 'path = "a"\nmerge_on = ["k"]\nsequence_by = "s"\nforeach_batch = true'
    found = refused(
        tmp_path, STREAMING, source, SINK.format(format="delta", more=merge)
    )
    assert "merge_on writes each micro-batch as a batch: leave it out" in found


def test_names_of_columns_are_quoted_in_a_merge() -> None:
    sink = FormatSink(
        format="delta", view="rows", path="a", merge_on=["a`b"], sequence_by="s t"
    )
    found = merge_statement(sink, "delta.`/a`", "rows", ["a`b", "s t"])
    assert "on target.`a``b` <=> source.`a``b`" in found
    assert "source.`s t` >= target.`s t`" in found
    assert "insert (`a``b`, `s t`) values (source.`a``b`, source.`s t`)" in found


def test_a_merge_changes_no_newer_row() -> None:
    sink = FormatSink(
        format="delta", view="rows", path="a", merge_on=["id"], sequence_by="at"
    )
    found = merge_statement(sink, "delta.`/a`", "rows", ["id", "at"]).split("\n")
    matched = [line for line in found if line.startswith("when matched")]
    newer = "(target.`at` is null or source.`at` >= target.`at`)"
    assert [line.split(" then ")[0] for line in matched] == [
        f"when matched and {newer} and source._jsync_deletes",
        f"when matched and {newer}",
    ]
