"""Reading a stream into a DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    import jsync
    from jsync.server import LocalServer


def test_a_stream_is_a_dataframe_without_any_registration(
    spark: SparkSession, server: LocalServer, js: jsync.JetStream, stream: jsync.Stream
) -> None:
    for number in range(10):
        js.publish(f"{stream.name}.{number % 2}", b"%d" % number)
    frame = (
        spark.read.format("jetstream")
        .option("nats.servers", server.url)
        .option("stream", stream.name)
        .load()
    )
    assert frame.columns == ["stream", "subject", "sequence", "timestamp", "data"]
    rows = sorted(frame.collect(), key=lambda row: row.sequence)
    assert [bytes(row.data) for row in rows] == [b"%d" % n for n in range(10)]
    assert {row.subject for row in rows} == {f"{stream.name}.0", f"{stream.name}.1"}
