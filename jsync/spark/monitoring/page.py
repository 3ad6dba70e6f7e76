"""The page of `jsync pipeline status --http`: all queries and their streams. Pure."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from .metrics import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .metrics import QueryMetrics

REFRESH: Final = 5
"""Seconds until a browser loads the page again."""

_QUERY: Final = (
    *("query", "state", "lag", "oldest unread", "rows", "rows/s in", "rows/s"),
    *("dead letters", "malformed", "missing", "duplicates", "collisions"),
    *("batch", "measured"),
)
_STREAM: Final = ("query", "stream", "next sequence", "lag", "oldest unread", "missing")
_STYLE: Final = """\
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
table { border-collapse: collapse; margin-bottom: 2em; }
th, td { padding: .3em .8em; text-align: right; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
.failed { color: #d33; } .running { color: #2a2; }
pre { white-space: pre-wrap; }"""


def status_page(queries: Sequence[QueryMetrics], bucket: str) -> str:
    """Write the page of the queries in a bucket."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="refresh" content="{REFRESH}">',
        f"<title>{escape(bucket)}: Spark queries</title>",
        f"<style>{_STYLE}</style></head><body><h1>Spark queries</h1>",
    ]
    if not queries:
        parts.append(f"<p>No query in the bucket {escape(bucket)}.</p>")
    else:
        parts.append(_table(_QUERY, map(_query, queries)))
        parts += [
            f'<h2 class="failed">{escape(query.label)}</h2><pre>{escape(query.error)}</pre>'
            for query in queries
            if query.error is not None
        ]
        parts.append("<h2>Streams</h2>")
        parts.append(
            _table(_STREAM, (row for query in queries for row in _rows(query)))
        )
    return "\n".join([*parts, "</body></html>\n"])


def _query(query: QueryMetrics) -> list[str]:
    return [
        escape(query.label),
        f'<span class="{query.state}">{query.state}</span>',
        _number(query.lag),
        _age(query.lag, query.lag_seconds),
        *map(_number, (query.rows, query.input_rate, query.processed_rate)),
        *map(_number, (query.dead_letters, query.malformed, query.missing)),
        *map(_number, (query.duplicates, query.collisions, query.batch)),
        escape(query.time),
    ]


def _rows(query: QueryMetrics) -> Iterable[list[str]]:
    for name, stream in sorted(query.streams.items()):
        numbers = _number(stream.next), _number(stream.lag)
        age = _age(stream.lag, stream.lag_seconds)
        yield [
            escape(query.label),
            escape(name),
            *numbers,
            age,
            _number(stream.missing),
        ]


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _age(lag: int | None, seconds: float | None) -> str:
    return "" if not lag else escape(seconds_text(seconds))
