"""The lag of streaming queries behind their streams.

metrics       the figures of a query, as data, as a line and as Prometheus text (pure)
lag           the lag of a position, as the leaders of streams report it
status_store  the figures of all queries in a key-value bucket
monitor       the listener of a Spark session
"""
