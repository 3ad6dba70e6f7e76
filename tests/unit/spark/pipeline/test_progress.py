"""Tests of the progress of a pipeline, computed from the reports of Spark."""

from __future__ import annotations

from typing import Any

import pytest

from jsync.spark.pipeline.progress import SinkProgress, lag, table


def offset(**streams: int) -> dict[str, Any]:
    return {"v": 1, "streams": {name: {"next": n} for name, n in streams.items()}}


def report(batch: int, rows: int, end: object, latest: object) -> dict[str, Any]:
    return {
        "batchId": batch,
        "timestamp": f"2026-01-01T00:00:{batch:02}Z",
        "numInputRows": rows,
        "processedRowsPerSecond": 50.0,
        "durationMs": {"triggerExecution": 2000},
        "sources": [{"endOffset": end, "latestOffset": latest}],
    }


@pytest.mark.parametrize(
    ("end", "latest", "behind"),
    [
        (offset(A=11), offset(A=31), 20),
        (offset(A=11, B=5), offset(A=12, B=8), 4),
        (offset(A=11), offset(A=11, B=9), 0),
        (offset(A=11), offset(A=3), 0),
        (offset(A=11), {"streams": {"A": {"next": 31, "messages": 6}}}, 6),
        (offset(A=11), {"streams": {"A": {"next": 31, "messages": 30}}}, 20),
        ('{"v":1,"streams":{"A":{"next":3}}}', offset(A=5), 2),
        ({"logOffset": 1}, {"logOffset": 2}, None),
        (None, offset(A=1), None),
        ("no JSON", "no JSON", None),
    ],
)
def test_the_lag_is_counted_in_messages(
    end: object, latest: object, behind: int | None
) -> None:
    assert lag(report(0, 1, end, latest)) == behind


def test_a_report_counts_once_however_often_it_comes() -> None:
    progress = SinkProgress("out")
    first = report(0, 100, offset(A=101), offset(A=301))
    idle = report(1, 0, offset(A=101), offset(A=301))
    progress.update([first])
    assert progress.line() == "out: 100 rows, 50/s, 200 behind"
    running = progress.line("1 of 2 tasks")
    assert running == "out: 100 rows, 50/s, 200 behind, batch 2: 1 of 2 tasks"
    progress.update([first, idle, report(2, 200, offset(A=301), offset(A=301))])
    assert progress.summary() == {
        "sink": "out",
        "rows": 300,
        "batches": 2,
        "seconds": 4.0,
        "lag": 0,
        "malformed": 0,
    }


def test_the_summary_is_a_line_for_each_sink() -> None:
    summaries: list[dict[str, Any]] = [
        {"sink": "days", "rows": 1000, "seconds": 2.0, "batches": 1, "lag": 5},
        {"sink": "show", "rows": None, "seconds": 0.5},
    ]
    assert table(summaries) == (
        "days         1,000 rows in 1 batch, 2.0 s, 500/s, 5 messages behind\n"
        "show  shown, 0.5 s"
    )
