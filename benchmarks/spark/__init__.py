"""The cost of the Spark data source compared with jsync itself: `python -m benchmarks.spark`."""
