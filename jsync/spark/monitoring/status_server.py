"""A page and the metrics of all noted queries over HTTP, for tools outside Spark."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ...worker import http as web
from .metrics import prometheus_text
from .page import status_page
from .status_store import BUCKET, query_statuses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ... import JetStream
    from .metrics import QueryMetrics


@contextlib.contextmanager
def serve_statuses(js: JetStream, http: str, bucket: str = BUCKET) -> Iterator[int]:
    """Serve the metrics of all queries that a monitor has noted, while the block runs.

    `/` is a page for a browser, `/metrics` is for Prometheus. `/livez` always succeeds, and
    `/readyz` fails if a query has failed. Each request reads the bucket and measures the lag.

    Args:
        js: The context of the server that the monitor uses.
        http: `HOST:PORT`. Port 0 takes any.
        bucket: The bucket of the monitor.

    Returns:
        A context manager that yields the port.

    Raises:
        ConfigError: `http` is not `HOST:PORT`.

    Example:
        ```python
        import time

        with jsync.connect() as nc:
            with jsync.spark.serve_statuses(nc.jetstream(), "127.0.0.1:8080"):
                time.sleep(3600)
        ```
    """
    source = _Statuses(js, bucket)
    with web.serve(web.parse_address(http), source, source.page) as port:
        yield port


class _Statuses:
    """The queries of a bucket, read again for each request."""

    def __init__(self, js: JetStream, bucket: str) -> None:
        self._js = js
        self._bucket = bucket

    def _queries(self) -> list[QueryMetrics]:
        return query_statuses(self._js, self._bucket)

    def page(self) -> str:
        return status_page(self._queries(), self._bucket)

    def is_alive(self) -> bool:
        return True

    def is_ready(self) -> bool:
        return all(query.state != "failed" for query in self._queries())

    def metrics(self) -> str:
        return prometheus_text(self._queries())
