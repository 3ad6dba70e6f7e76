"""Tests of the settings that jsync chooses for Spark in local mode."""

from __future__ import annotations

import pytest

from jsync.spark.pipeline.local_mode import (
    collector,
    cores_of,
    java_texts,
    partitions,
    shares_classes,
)


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[*]", 8),
        ("local[2,4]", 2),
        ("local[*, 4]", 8),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_a_local_master_has_cores(master: str, cores: int | None) -> None:
    assert cores_of(master, 8) == cores


@pytest.mark.parametrize(
    "given",
    [
        "-XX:+UseG1GC",
        "-Xmx1g -XX:+UseParallelGC",
        "--driver-java-options '-XX:+UseZGC' pyspark-shell",
    ],
)
def test_a_collector_of_the_user_wins(given: str) -> None:
    """Java does not start with two collectors."""
    chosen = collector(2, [""])
    assert chosen is not None
    assert chosen.value == "-XX:+UseSerialGC"
    assert collector(2, ["", given]) is None
    assert collector(3, []) is None


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ("-Xmx1g", True),
        ("-Xshare:off", False),
        ("-XX:SharedArchiveFile=/a.jsa", False),
        ("-XX:ArchiveClassesAtExit=/a.jsa", False),
        ("-XX:+AutoCreateSharedArchive", False),
        ("-XX:+RecordDynamicDumpInfo", False),
    ],
)
def test_an_archive_of_the_user_wins(given: str, shares: bool) -> None:
    assert shares_classes(["", given]) is shares


def test_options_of_java_have_many_places() -> None:
    settings = {"spark.driver.extraJavaOptions": "-Da=1", "spark.app.name": "x"}
    env = {"JAVA_TOOL_OPTIONS": "-Db=2", "PYSPARK_SUBMIT_ARGS": "c", "PATH": "d"}
    found = java_texts(settings, env)
    assert [text for text in found if text] == ["-Da=1", "-Db=2", "c"]


@pytest.mark.parametrize(
    ("cores", "options", "chosen"),
    [
        (2, {"stream": "A"}, {"minPartitions": "2", "minRecordsPerPartition": "10000"}),
        (1, {"stream": "A"}, {}),
        (2, {"MINPARTITIONS": "1"}, {}),
        (2, {"maxPartitions": "1"}, {}),
        (2, {"maxRecordsPerPartition": "5"}, {}),
        (2, {"objectStore": "A"}, {"minPartitions": "2"}),
    ],
)
def test_a_backlog_keeps_each_core_busy(
    cores: int, options: dict[str, str], chosen: dict[str, str]
) -> None:
    assert partitions(cores, options) == chosen
