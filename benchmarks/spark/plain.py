"""A first attempt at a data source, for comparison: rows as tuples, with nats-py."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any

import nats
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

Row = tuple[str, str, int, datetime, bytes]


class PlainDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "plain"

    def schema(self) -> str:
        return (
            "stream string, subject string, sequence bigint, timestamp timestamp, "
            "data binary"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return PlainReader(dict(self.options))


class PlainReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        half = int(self._options["count"]) // 2
        return [InputPartition((1, half)), InputPartition((half + 1, 2 * half))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        first, last = partition.value
        with asyncio.Runner() as runner:
            nc = runner.run(nats.connect(self._options["servers"]))
            stream = self._options["stream"]
            pull = runner.run(subscribe(nc, stream, first))
            left = last - first + 1
            while left:
                messages = runner.run(pull.fetch(min(left, 1000)))
                left -= len(messages)
                for msg in messages:
                    meta = msg.metadata
                    yield (
                        *(stream, msg.subject, meta.sequence.stream),
                        *(meta.timestamp, msg.data),
                    )
            runner.run(nc.close())


async def subscribe(nc: Any, stream: str, first: int) -> Any:
    config = nats.js.api.ConsumerConfig(
        deliver_policy=nats.js.api.DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=first,
        ack_policy=nats.js.api.AckPolicy.NONE,
        mem_storage=True,
        inactive_threshold=30,
    )
    js = nc.jetstream()
    info = await js.add_consumer(stream, config)
    return await js.pull_subscribe_bind(info.name, stream)
