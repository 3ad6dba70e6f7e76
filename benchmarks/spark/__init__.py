"""The cost of the Spark data source compared with jsync itself: `make bench-spark`."""
