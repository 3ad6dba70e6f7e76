"""The module by which Spark finds `format("jetstream")` automatically.

Spark imports every top-level module whose name begins with `pyspark_`, and registers
its `DefaultSource`.
"""

from jsync.spark.data_source import JetStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
