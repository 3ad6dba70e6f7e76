"""What the Spark data source costs beside jsync itself: `make bench-spark`."""
