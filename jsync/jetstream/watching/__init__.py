"""Watches: the changes of a bucket or a store, each once and in order.

The parts, lowest first:

    source     the stream that is watched, and its entries, as protocols (pure)
    freshness  how current a watch is, by the answers of the leader (pure)
    driver     an ordered consumer read as entries
    callback   the calls of a callback with these entries, on a pool of threads
    watch      the entries one by one, on top of `driver`
"""
