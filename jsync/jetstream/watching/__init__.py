"""Watches: what changes in a bucket or a store, each once and in order.

The parts, lowest first:

    engine      what is watched, and where a watch is among what was there before; pure
    driver      an ordered consumer read as entries, on the user's thread or its own
    watch       the entries one by one, on top of it
"""
