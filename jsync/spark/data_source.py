"""`format("jetstream")`, as Spark's Python data source API wants it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ..errors import ConfigError
from .options import Options
from .schema import (
    bucket_schema,
    object_schema,
    options_of,
    source_schema,
    table_options,
    with_options,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from .options import Purpose


class JetStreamDataSource(DataSource):
    """Reads and writes streams of JetStream. See `jsync.spark` for columns and options.

    Spark makes it from the options, in separate processes, and passes arguments by keyword.
    """

    @classmethod
    def name(cls) -> str:
        return "jetstream"

    def schema(self) -> StructType:
        table = table_options(self.options)
        options = Options(self.options if table is None else table)
        if options.text("objectStore") is not None:
            columns = object_schema()
        elif options.text("bucket") is not None:
            columns = bucket_schema()
        else:
            columns = source_schema(
                include_headers=options.flag("includeHeaders", False)
            )
        return columns if table is None else with_options(columns, table)

    def _chosen(self, schema: StructType, purpose: Purpose) -> Options:
        """Return the options of a read or a write. A table in SQL has one set for both."""
        table = options_of(schema)
        chosen = {**table, **self.options}
        if not chosen:
            raise ConfigError(
                "the data source got no options. If you created a table with a list of "
                "columns, Spark does not pass its options on: leave the list out, as in "
                "create table t using jetstream options (...), or create a temporary view, "
                "which may have the list. Otherwise give an option, such as stream or "
                "nats.servers"
            )
        return Options(chosen, None if table else purpose)

    def reader(self, schema: StructType) -> DataSourceReader:
        from .source import JetStreamReader, PushdownReader  # noqa: PLC0415
        from .source_options import SourceOptions  # noqa: PLC0415

        options = self._chosen(schema, "read")
        if options.text("objectStore") is not None:
            from .objects import ObjectStoreReader  # noqa: PLC0415

            return ObjectStoreReader(options, schema)
        if SourceOptions.of(options, streaming=False).is_table:
            from .tables import TableReader  # noqa: PLC0415

            return TableReader(options, schema)
        # Spark loads this module only in the process that pushes filters down.
        pushes_filters = (
            "pyspark.sql.worker.data_source_pushdown_filters" in sys.modules
        )
        reader = PushdownReader if pushes_filters else JetStreamReader
        return reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from .micro_batch import JetStreamStreamReader  # noqa: PLC0415

        options = self._chosen(schema, "read")
        if options.text("objectStore") is not None:
            from .object_options import ObjectOptions  # noqa: PLC0415

            ObjectOptions.of(options, streaming=True)  # raises: it is for a batch
        return JetStreamStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .sink.writer import JetStreamWriter  # noqa: PLC0415

        return JetStreamWriter(self._chosen(schema, "write"), schema, overwrite)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from .sink.writer import JetStreamStreamWriter  # noqa: PLC0415

        return JetStreamStreamWriter(self._chosen(schema, "write"), schema, overwrite)
