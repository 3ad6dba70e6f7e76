"""Tests of Avro payloads in a pipeline, decoded as in docs/guides/spark-pipelines.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from jsync.spark import pipeline

from ..docs.markdown import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer


def avro(carrier: str, delay: int) -> bytes:
    """Return a record of the schema in the guide. Its two numbers are small zigzag varints."""
    return bytes([2 * len(carrier)]) + carrier.encode() + bytes([2 * delay])


@pytest.mark.parametrize("mode", ["PERMISSIVE", "FAILFAST"])
def test_avro_payloads_are_rows(
    spark: SparkSession,
    server: LocalServer,
    js: jsync.JetStream,
    stream: jsync.Stream,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """The session has the jar that `make jars` fetches."""
    monkeypatch.setenv("NATS_URL", server.url)
    (shown,) = (
        block
        for block in blocks(ROOT / "docs/guides/spark-pipelines.md")
        if block.title == "avro.toml"
    )
    text = shown.text.replace('"AVRO"', f'"{stream.name}"')
    text = text.replace("out/avro", f"{tmp_path}/avro").replace("PERMISSIVE", mode)
    file = tmp_path / "avro.toml"
    file.write_text(text)
    good = [avro("UA", 5), avro("", 0), avro("AA", 60)]
    for payload in good:
        js.publish(f"{stream.name}.a", payload)
    if mode == "PERMISSIVE":
        js.publish(f"{stream.name}.a", b"\xff not Avro")
    assert pipeline.run(file, spark=spark, quiet=True).exit_code == 0
    found = pq.read_table(tmp_path / "avro").sort_by("sequence").to_pylist()
    expected = [("UA", 5), ("", 0), ("AA", 60), (None, None)]
    assert [(row["carrier"], row["delay"]) for row in found] == expected[: len(found)]
    assert len(found) == (4 if mode == "PERMISSIVE" else 3)
