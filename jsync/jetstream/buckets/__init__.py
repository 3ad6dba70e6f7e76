"""The code that key-value buckets and object stores share, because both are streams.

The parts, lowest first:

    engine      the names, the metadata and the errors (pure)
    driver      buckets created, changed, found, listed and deleted
"""
