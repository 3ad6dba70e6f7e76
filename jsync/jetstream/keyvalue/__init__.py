"""Key-value buckets (ADR-8): streams of which the last message of a subject is a value.

The parts, lowest first:

    codecs         keys and values in another form (ADR-54, pure)
    aesgcm         values encrypted, each bound to its key
    engine         names, subjects, entries, and the meaning of a bucket's messages (pure)
    config         the configuration of a bucket, and of the stream behind it (pure)
    status         the contents and the configuration of a bucket (pure)
    expiry         the times at which entries expire (pure)
    watch          the changes of keys, one by one
    purge_deletes  delete markers removed
    live_view      a local copy of a bucket that its changes keep current
    lease          the time for which the holder of a lock may rely on it (pure)
    lock           a key that its holder renews
    election       a lock that a candidate waits for, again after each loss
    bucket         the API for the user: puts, gets, history, keys
    manager        buckets created, changed, found and deleted: a part of `JetStream`
"""
