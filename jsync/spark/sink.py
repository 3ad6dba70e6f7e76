"""Writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .options import Options


class JetStreamWriter(DataSourceArrowWriter):
    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        raise NotImplementedError


class JetStreamStreamWriter(DataSourceStreamWriter):
    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        raise NotImplementedError
