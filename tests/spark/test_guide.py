"""Tests that the code blocks of the guide of Spark do what its pages say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from jsync.spark import pipeline

from ..docs.markdown import ROOT, blocks
from ..docs.running import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..conftest import StartServer

PAGES = [
    ROOT / "docs" / page
    for page in (
        "guides/spark.md",
        "guides/spark-read.md",
        "guides/spark-write.md",
        "guides/spark-exactly-once.md",
        "guides/spark-pipelines.md",
        "guides/spark-operate.md",
    )
]
"""The pages in the order in which their examples run."""


@pytest.mark.slow
def test_the_examples_of_the_guide_work(
    spark: SparkSession,
    own_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = own_server()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NATS_URL", server.url)
    shown = []
    for block in (each for page in PAGES for each in blocks(page)):
        if block.language == "python":
            output = run(block, {"nats://127.0.0.1:4222": server.url})
            assert block.output in (None, output), f"{block} prints {output}"
        elif block.title and block.language == "toml":
            # Spark may have started in another directory, and resolves paths there.
            text = re.sub(
                r'"((?:out|checkpoint)[^"]*)"', rf'"{tmp_path}/\1"', block.text
            )
            Path(block.title).write_text(text)
        for line in block.text.splitlines():
            if line.startswith("jsync pipeline") and block.language == "sh":
                _, _, command, file = line.split()
                done = getattr(pipeline, command)(
                    file,
                    **({"spark": spark, "quiet": True} if command == "run" else {}),
                )
                shown.append((command, file, getattr(done, "exit_code", 0)))
    assert shown == [
        ("check", "late.toml", 0),
        ("run", "late.toml", 0),
        ("run", "airports.toml", 0),
        ("run", "hours.toml", 0),
    ]
    assert set(PAGES) == {*(ROOT / "docs/guides").glob("spark*.md")}
    assert "|     UA|   1000|   59|" in capfd.readouterr().out
    assert [*Path("out/flights/carrier=UA").glob("*.parquet")]
    named = pq.read_table("out/named")
    assert set(named["airport"].to_pylist()) == {"Kennedy"}
    operations = pq.read_table("out/changes")["operation"].to_pylist()
    assert sorted(operations) == ["DEL"] * 2 + ["PUT"] * 4
