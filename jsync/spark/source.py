"""Reading: ranges of streams as Arrow record batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..errors import ConfigError
from .connecting import ConnectionOptions, jetstream
from .schema import arrow_schema, check_schema, conform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow
    from pyspark.sql.types import StructType

    from .options import Options


@dataclass(frozen=True)
class RangePartition(InputPartition):
    """A range of a stream, both ends included, that one task reads."""

    stream: str
    start: int
    end: int


class JetStreamReader(DataSourceReader):
    def __init__(self, options: Options, schema: StructType) -> None:
        check_schema(schema)
        self._connection = ConnectionOptions.of(options)
        self._streams = options.list("streams") or options.list("stream")
        if not self._streams:
            raise ConfigError("option stream: give the name of the stream to read")
        self._subjects = options.list("subjects")
        self._schema = schema

    def partitions(self) -> Sequence[RangePartition]:
        js = jetstream(self._connection)
        found = []
        for name in self._streams:
            state = js.stream(name).info().state
            found.append(RangePartition(name, max(1, state.first_seq), state.last_seq))
        return found

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow  # noqa: PLC0415

        assert isinstance(partition, RangePartition)
        schema = arrow_schema(self._schema)
        wanted = [name for name in schema.names if name != "stream"] or ["sequence"]
        messages = (
            jetstream(self._connection)
            .stream(partition.stream)
            .read_arrow(
                partition.start,
                partition.end,
                columns=wanted,
                filter_subjects=self._subjects or None,
            )
        )
        for batch in messages:
            yield conform(pyarrow.record_batch(batch), partition.stream, schema)
