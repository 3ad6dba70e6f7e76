"""Tests of the figures of a query, computed from the reports of Spark."""

from __future__ import annotations

from typing import Any

import msgspec

from jsync.spark.monitoring.metrics import QueryMetrics, StreamMetrics, prometheus_text


def report(batch: int, rows: int, **streams: int) -> dict[str, Any]:
    end = {
        "v": 1,
        "streams": {name: {"created": "t", "next": n} for name, n in streams.items()},
    }
    return {
        "runId": "r",
        "name": "hours",
        "batchId": batch,
        "numInputRows": rows,
        "inputRowsPerSecond": float("nan"),
        "processedRowsPerSecond": 50.0,
        "observedMetrics": {"mine": {"malformed": 2}, "other": {"total": 5}},
        "sources": [{"endOffset": msgspec.json.encode(end).decode()}, {"endOffset": 3}],
    }


def test_reports_add_up_and_keep_the_last_place() -> None:
    query = QueryMetrics(id="q")
    query.take(report(0, 10, A=11))
    query.streams["A"].lag = 4
    query.take(report(1, 5, A=16, B=2))
    query.take(report(2, 0, A=16, B=2))
    assert (query.batch, query.batches, query.rows, query.malformed) == (2, 2, 15, 6)
    assert (query.input_rate, query.processed_rate) == (None, 50.0)
    assert {name: (s.next, s.lag) for name, s in query.streams.items()} == {
        "A": (16, 4),
        "B": (2, None),
    }
    assert query.lag == 4


def test_missing_messages_are_counted_by_stream() -> None:
    query = QueryMetrics(id="q", name="hours")
    given = report(0, 1, A=20, B=7)
    end = msgspec.json.decode(given["sources"][0]["endOffset"])
    end["streams"]["A"]["missing"] = 3
    given["sources"][0]["endOffset"] = msgspec.json.encode(end).decode()
    query.take(given)
    query.take(given)
    assert query.missing == 3
    assert "3 gone before they were read" in query.line()
    lines = prometheus_text([query]).splitlines()
    assert 'jsync_spark_missing_total{query="hours",stream="A"} 3' in lines
    assert 'jsync_spark_missing_total{query="hours",stream="B"} 0' in lines


def test_the_slower_of_two_sources_gives_the_place() -> None:
    query = QueryMetrics(id="q")
    given = report(0, 1, A=20)
    given["sources"] += report(0, 1, A=7)["sources"]
    query.take(given)
    assert query.streams["A"].next == 7


def test_a_log_line_shows_the_known_figures() -> None:
    query = QueryMetrics(id="q", name="hours", rows=1500, processed_rate=50.4)
    query.streams = {
        "A": StreamMetrics(created="t", next=1, lag=1200, lag_seconds=2.34),
        "B": StreamMetrics(created="t", next=1, lag=0, lag_seconds=0.0),
        "C": StreamMetrics(created="t", next=1),
    }
    query.duplicates, query.malformed = 0, 3
    assert query.line() == (
        "hours: running, 1,500 rows, 50/s, A 1,200 behind (2.3 s), B 0 behind, "
        "C lag unknown, 3 malformed"
    )
    assert (query.lag, query.lag_seconds) == (1200, 2.34)


def test_prometheus_gets_known_figures_with_escaped_labels() -> None:
    query = QueryMetrics(id="q", name='a"b\\c\nd', rows=7, duplicates=1)
    query.streams = {"A": StreamMetrics(created="t", next=8, lag=3)}
    lines = prometheus_text([query]).splitlines()
    labels = r'query="a\"b\\c\nd"'
    assert f"jsync_spark_rows_total{{{labels}}} 7" in lines
    assert f"jsync_spark_duplicates_total{{{labels}}} 1" in lines
    assert f'jsync_spark_lag_messages{{{labels},stream="A"}} 3' in lines
    names = [line.split("{")[0] for line in lines if not line.startswith("#")]
    assert "jsync_spark_dead_letters_total" not in names
    assert "jsync_spark_lag_seconds" not in names
    assert all(line.split()[2] for line in lines if line.startswith("# TYPE"))
