"""The dashboard for Grafana: a real Prometheus runs its queries on a real monitor."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from jsync.spark import monitor
from jsync.spark.monitoring.metrics import QueryMetrics, StreamMetrics, prometheus_text

from ..integrations.test_dashboard import ROOT, prometheus
from ..support.servers import wait_for
from .support import LONG, Batches, Reading, begun, fill, numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer

DASHBOARD = json.loads((ROOT / "examples/grafana/spark.json").read_text())


def queries(query: str, stream: str) -> dict[str, str]:
    """Return the queries of all panels, as Grafana would send them."""
    found = {}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            text = target["expr"]
            for name, value in (
                *(("$__rate_interval", "30s"), ("$job", ".*")),
                *(("$query", query), ("$stream", stream)),
            ):
                text = text.replace(name, value)
            found[f"{panel['title']}: {target['legendFormat']}"] = text
    return found


def test_the_queries_of_the_dashboard_have_answers(
    spark: SparkSession,
    server: LocalServer,
    reading: Reading,
    batches: Batches,
    js: jsync.JetStream,
    stream: jsync.Stream,
    unique: str,
    tmp_path: Path,
) -> None:
    fill(js, stream, *numbers(10))
    stream.delete_message(3)
    frame = reading.stream(stream, startingOffsets="earliest", maxOffsetsPerTrigger=5)
    writer = frame.writeStream.queryName(unique).foreachBatch(batches.take)
    writer = writer.option("checkpointLocation", str(batches.checkpoint))
    place = {"nats.servers": server.url}
    with monitor(spark, place, bucket=None, http="127.0.0.1:0", interval=1) as watching:
        query = begun(writer)
        try:
            assert watching.port is not None
            with prometheus(watching.port, tmp_path) as asked:
                missing = f'jsync_spark_missing_total{{stream="{stream.name}"}}'
                wait_for(lambda: asked.values(missing) == [1.0], LONG)

                def unanswered() -> list[str]:
                    return [
                        where
                        for where, text in queries(unique, stream.name).items()
                        # Only the sink of JetStream has these metrics.
                        if not re.search("dead_letters|duplicates|collisions", text)
                        and not asked.values(text)
                    ]

                wait_for(lambda: not unanswered(), LONG)
        finally:
            query.stop()


def test_the_dashboard_shows_every_metric_of_queries() -> None:
    shown = " ".join(queries("q", "s").values())
    query = QueryMetrics(id="q", input_rate=1.0, processed_rate=1.0, time="2026-01-01")
    query.dead_letters = query.duplicates = query.collisions = 0
    query.streams = {"A": StreamMetrics(created="t", next=1, lag=1, lag_seconds=1.0)}
    names = set(re.findall(r"^# TYPE (\w+)", prometheus_text([query]), re.MULTILINE))
    assert len(names) >= 14
    assert not [name for name in names if name not in shown]
