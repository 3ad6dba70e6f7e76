"""`jsync ingest`: rows of files into a stream."""
