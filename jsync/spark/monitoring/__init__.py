"""The lag of streaming queries behind their streams.

The parts, lowest first:

    metrics        the metrics of a query, as data, as a line and as Prometheus text (pure)
    lag            the lag of a position, as the leaders of streams report it
    status_store   the metrics of all queries in a key-value bucket
    page           the HTML page of all queries (pure)
    status_server  the page and the metrics over HTTP
    monitor        the listener of a Spark session
"""
