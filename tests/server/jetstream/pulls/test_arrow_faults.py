"""Tests of polars and DuckDB reading a stream on threads while connections and the server fail."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import duckdb
import polars
import pytest

from ....support.campaign import seeded
from ....support.connection_faults import Events, connect
from ....support.proxy import FaultProxy
from ....support.servers import wait_for
from ....support.threads import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsync

    from ....conftest import StartServer

pytestmark = [pytest.mark.server, pytest.mark.fault]

logger = logging.getLogger("jsync.tests.arrow")

ROWS = 100_000
READERS = 3
PATIENCE = 180.0


def by_polars(rows: jsync.ArrowRange) -> tuple[int, int, int]:
    sequence = polars.col("sequence")
    found = (
        polars.DataFrame(rows)
        .lazy()
        .select(
            count=sequence.len(), distinct=sequence.n_unique(), total=sequence.sum()
        )
        .collect()
    )
    return found.row(0)


def by_duckdb(rows: jsync.ArrowRange) -> tuple[int, int, int]:
    with duckdb.connect(config={"threads": 4}) as db:
        db.register("stream", rows)
        found = db.sql(
            "SELECT count(*), count(DISTINCT sequence), sum(sequence) FROM stream"
        ).fetchall()[0]
    assert found is not None
    return found


@pytest.mark.parametrize("read", [by_polars, by_duckdb])
def test_threads_of_other_libraries_read_each_row_once(
    own_server: StartServer, read: Callable[[jsync.ArrowRange], tuple[int, int, int]]
) -> None:
    rng, server = seeded(), own_server()
    with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        connect(server.url, Events()) as near,
        connect(proxy.url, Events(), max_reconnects=-1) as far,
    ):
        js = near.jetstream()
        js.create_stream(name="ROWS", subjects=["rows"])
        with js.publisher() as publisher:
            publisher.publish_many("rows", [b"x" * 200] * ROWS)
        stream = far.jetstream().stream("ROWS")
        ranges = [
            stream.read_arrow(max_rows=1000, max_bytes=1 << 18) for _ in range(READERS)
        ]
        threads = [Thread(read, rows) for rows in ranges]
        cuts = kills = 0
        while not all(thread.ended for thread in threads):
            size = int(10 ** rng.uniform(4, 7))
            links, kills_due = proxy.connections, cuts % 8 == 7 and kills < 3
            if kills_due:
                server.kill()
                server.start()
                kills += 1
            else:
                proxy.cut_after(size, "client")
            cuts += 1
            wait_for(
                lambda made=links: (  # type: ignore[misc]
                    proxy.connections > made or all(thread.ended for thread in threads)
                ),
                PATIENCE,
            )
        logger.info("%d cuts, %d kills, %d readers", cuts, kills, READERS)
        for thread in threads:
            assert thread._future.result(PATIENCE) == (
                ROWS,
                ROWS,
                ROWS * (ROWS + 1) // 2,
            )
        assert cuts > READERS
