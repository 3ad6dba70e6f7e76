"""Writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from .options import Options


class JetStreamWriter(DataSourceArrowWriter):
    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        raise NotImplementedError

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        raise NotImplementedError


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        raise NotImplementedError

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        raise NotImplementedError
