"""Where Spark finds `format("jetstream")` by itself.

It imports every top-level module whose name begins with `pyspark_`, and takes its
`DefaultSource`.
"""

from jsync.spark.data_source import JetStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
