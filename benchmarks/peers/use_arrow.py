"""Read a stream into a pyarrow table: `python -m benchmarks.peers.use_arrow JOB URL STREAM`.

With `columns`, jsync makes the columns. With `objects`, the program makes them from messages with
the times of `metadata.timestamp`. With `cheapest`, it uses the cheapest times, `timestamp_ns`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import jsync

from .measure import await_go, cpu_seconds, now, rate, report

if TYPE_CHECKING:
    from collections.abc import Iterable

AHEAD = 16 << 20
SCHEMA = pa.schema(
    [
        ("subject", pa.utf8()),
        ("data", pa.binary()),
        ("sequence", pa.uint64()),
        ("timestamp", pa.timestamp("ns", "UTC")),
        ("headers", pa.map_(pa.utf8(), pa.list_(pa.utf8()))),
    ]
)


def table_of(messages: Iterable[jsync.JetStreamMsg], job: str) -> pa.Table:
    subjects, payloads, sequences = [], [], []
    times: list[Any] = []
    blocks: list[Any] = []
    for msg in messages:
        metadata, headers = msg.metadata, msg.headers
        subjects.append(msg.subject)
        payloads.append(msg.data)
        sequences.append(metadata.stream_sequence)
        times.append(metadata.timestamp if job == "objects" else metadata.timestamp_ns)
        blocks.append(
            None
            if headers is None
            else [(name, headers.get_all(name)) for name in headers]
        )
    columns = (subjects, payloads, sequences, times, blocks)
    arrays = [
        pa.array(column, field.type)
        for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def main() -> None:
    job, url, name = sys.argv[1:]
    with jsync.connect(url) as nc:
        stream = nc.jetstream().stream(name)
        # the first table looks for pandas and imports it, which takes 0.2 s
        pa.table({"n": [0]})
        await_go()
        cpu, begin = cpu_seconds(), now()
        if job == "columns":
            table = pa.table(stream.read_arrow(max_bytes=AHEAD))
        else:
            consumer = stream.ordered_consumer()
            with consumer.messages(until_end=True, max_bytes=AHEAD) as messages:
                table = table_of(messages, job)
        report(rate(table.num_rows, begin, cpu))


if __name__ == "__main__":
    main()
