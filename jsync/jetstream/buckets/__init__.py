"""What key-value buckets and object stores share: each is a stream with a name of its own.

The parts, lowest first:

    engine      the names, the metadata and the errors; pure
    driver      buckets created, changed, found, listed and deleted
"""
